// Runs the same work on several threads at the same time and adds up their rates.
#pragma once

#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

namespace mference::bench {

// Calls work(thread) on each of `threads` threads, all starting at once, `passes` times. `work`
// returns how much it did. Returns, per pass, the sum over threads of amount per second.
template <typename Work>
std::vector<double> RatesTogether(int threads, int passes, const Work& work) {
  using Clock = std::chrono::steady_clock;
  const auto count = static_cast<size_t>(threads);
  std::vector<std::vector<double>> rates(count, std::vector<double>(static_cast<size_t>(passes)));
  std::barrier together(threads);
  std::vector<std::thread> workers;
  workers.reserve(count);
  for (int thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      for (double& rate : rates[static_cast<size_t>(thread)]) {
        together.arrive_and_wait();
        const Clock::time_point start = Clock::now();
        const double amount = work(thread);
        rate = amount / std::chrono::duration<double>(Clock::now() - start).count();
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  std::vector<double> totals(static_cast<size_t>(passes));
  for (size_t pass = 0; pass < totals.size(); ++pass) {
    for (const std::vector<double>& of_thread : rates) totals[pass] += of_thread[pass];
  }
  return totals;
}

}  // namespace mference::bench
