#include "install/retry.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <random>
#include <thread>

#include "install/http_client.h"

namespace mference {
namespace {

double RandomUnit() {
  static thread_local std::minstd_rand generator(std::random_device{}());
  return std::uniform_real_distribution<double>(0.0, 1.0)(generator);
}

void Wait(std::chrono::milliseconds delay, const std::function<bool()>& abandoned) {
  constexpr std::chrono::milliseconds kSlice{50};
  const auto end = std::chrono::steady_clock::now() + delay;
  while (true) {
    if (abandoned && abandoned()) {
      Fail(ErrorCode::kCancelled, "stopped while waiting to try again");
    }
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds(0)) return;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, kSlice));
  }
}

}  // namespace

std::chrono::milliseconds RetryDelay(const RetryPolicy& policy, int failed_attempts,
                                     double jitter) {
  std::chrono::milliseconds delay = policy.base;
  for (int i = 1; i < failed_attempts && delay < policy.longest; ++i) delay *= 2;
  const auto extra = static_cast<int64_t>(jitter * static_cast<double>(policy.jitter.count()));
  return std::min(delay, policy.longest) + std::chrono::milliseconds(extra);
}

std::chrono::seconds ParseRetryAfter(std::string_view value, std::time_t now,
                                     const RetryPolicy& policy) {
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (error != std::errc() || end != value.data() + value.size() || seconds < 0) {
    // HTTP dates begin with a day's name; libcurl's reader alone would take much more.
    const bool dated = value.find(',') != std::string_view::npos ||
                       std::count(value.begin(), value.end(), ':') == 2;
    const std::time_t date = dated ? curl_getdate(std::string(value).c_str(), nullptr) : -1;
    if (date < 0) {
      throw TransferError(
          ErrorCode::kSourceInvalid,
          fmt::format("Retry-After '{}' is neither seconds nor a date", value.substr(0, 80)),
          false);
    }
    seconds = std::max<int64_t>(0, static_cast<int64_t>(date) - static_cast<int64_t>(now));
  }
  if (seconds > policy.longest_retry_after.count()) {
    throw TransferError(ErrorCode::kNetwork,
                        fmt::format("Retry-After {} s exceeds the {}-second cap: try again later",
                                    seconds, policy.longest_retry_after.count()),
                        false);
  }
  return std::chrono::seconds(seconds);
}

bool IsRetryableStatus(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
         status == 504;
}

void WithRetries(const RetryPolicy& policy, const std::string& label,
                 const std::function<bool()>& abandoned,
                 const std::function<void(const RetryNotice&)>& on_retry,
                 const std::function<void(const std::function<void()>& made_progress)>& attempt) {
  int failed = 0;
  const std::function<void()> made_progress = [&failed] { failed = 0; };
  while (true) {
    try {
      return attempt(made_progress);
    } catch (const TransferError& error) {
      if (!error.retryable()) throw;
      if (++failed >= policy.attempts) {
        Fail(error.code(), "{} (gave up after {} attempts)", error.what(), failed);
      }
      if (on_retry) on_retry({.label = label, .attempt = failed, .detail = error.what()});
      const std::chrono::milliseconds after = error.retry_after().value_or(std::chrono::seconds(0));
      Wait(std::max(RetryDelay(policy, failed, RandomUnit()), after), abandoned);
    }
  }
}

}  // namespace mference
