// When to try again, and how long to wait first.
#pragma once

#include <chrono>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>

namespace mference {

struct RetryPolicy {
  int attempts = 4;  // in total
  // Before attempt k + 1: base * 2^(k-1), at most `longest`, plus up to `jitter`; never less than
  // the server's Retry-After.
  std::chrono::milliseconds base{1000};
  std::chrono::milliseconds longest{16000};
  std::chrono::milliseconds jitter{250};
  std::chrono::seconds longest_retry_after{3600};
};

// `jitter` in [0, 1). `failed_attempts` >= 1.
std::chrono::milliseconds RetryDelay(const RetryPolicy& policy, int failed_attempts, double jitter);

// Of a Retry-After header: seconds, or any of the three HTTP date forms relative to `now` (never
// negative). Throws TransferError (not retryable) when it is neither, or longer than the policy
// allows.
std::chrono::seconds ParseRetryAfter(std::string_view value, std::time_t now,
                                     const RetryPolicy& policy);

// 408, 429, 500, 502, 503, 504.
bool IsRetryableStatus(int status);

struct RetryNotice {
  std::string label;
  int attempt = 0;  // that failed, from 1
  std::string detail;
};

// Calls `attempt` until it returns, fails for good, or the attempts are used up. `attempt` gets a
// function to call when it made real progress, which gives back the attempts: a transfer that moves
// forward is not given up however often it breaks. `abandoned` ends a wait with kCancelled.
void WithRetries(const RetryPolicy& policy, const std::string& label,
                 const std::function<bool()>& abandoned,
                 const std::function<void(const RetryNotice&)>& on_retry,
                 const std::function<void(const std::function<void()>& made_progress)>& attempt);

}  // namespace mference
