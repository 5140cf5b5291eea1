// Holds the sum of all transfers to a rate.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

namespace mference {

// Thread-safe.
class RateLimiter {
 public:
  explicit RateLimiter(uint64_t bytes_per_s) : bytes_per_s_(bytes_per_s) {}

  // Accounts for `bytes` that arrived, and sleeps until they are due. Without a limit, nothing.
  void Take(uint64_t bytes) {
    if (bytes_per_s_ == 0) return;
    Clock::time_point due;
    {
      const std::lock_guard lock(mutex_);
      // What was not used is not saved up: a pause must not be followed by a burst.
      due = std::max(due_, Clock::now());
      due_ = due + std::chrono::nanoseconds(bytes * 1'000'000'000u / bytes_per_s_);
    }
    std::this_thread::sleep_until(due);
  }

 private:
  using Clock = std::chrono::steady_clock;
  const uint64_t bytes_per_s_;
  std::mutex mutex_;
  Clock::time_point due_;
};

}  // namespace mference
