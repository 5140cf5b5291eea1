#include "backend/cpu/thread_pool.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace mference::cpu {
namespace {

// How long a thread polls before it asks the kernel to sleep: longer than the gap between the
// parallel sections of a layer (1 to 10 us), far shorter than a read from an SSD. A pause takes
// about 40 cycles on recent CPUs, so 2,000 of them are some 20 us.
constexpr int kSpins = 2000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns once `value` no longer equals `old`.
void AwaitChange(const std::atomic<int>& value, int old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  workers_.reserve(static_cast<size_t>(std::max(threads, 1) - 1));
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { WorkerLoop(); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int tasks, FunctionRef<void(int)> task) {
  if (tasks <= 0) return;
  if (running_.exchange(true, std::memory_order_acquire)) {
    std::fputs("ThreadPool::Run: called while another run is in progress\n", stderr);
    std::abort();
  }
  if (tasks == 1 || workers_.empty()) {
    for (int i = 0; i < tasks; ++i) task(i);
    running_.store(false, std::memory_order_release);
    return;
  }
  task_.store(&task, std::memory_order_relaxed);
  tasks_.store(tasks, std::memory_order_relaxed);
  finished_.store(0, std::memory_order_relaxed);
  const uint64_t run = (claim_.load(std::memory_order_relaxed) >> 32) + 1;
  claim_.store(run << 32 | static_cast<uint32_t>(tasks), std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();  // a system call only if a worker sleeps

  Work();
  for (int done = finished_.load(std::memory_order_acquire); done != tasks;
       done = finished_.load(std::memory_order_acquire)) {
    AwaitChange(finished_, done);
  }
  running_.store(false, std::memory_order_release);
}

void ThreadPool::ParallelFor(int count, int grain, FunctionRef<void(int, int)> body) {
  const int grains = (count + grain - 1) / grain;
  const int parts = std::min(grains, threads());
  Run(parts, [&](int part) {
    // Spread evenly: part p gets grains [p * grains / parts, (p + 1) * grains / parts).
    const auto start = [&](int p) {
      const auto first = static_cast<int64_t>(p) * grains / parts * grain;
      return static_cast<int>(std::min<int64_t>(first, count));
    };
    body(start(part), start(part + 1));
  });
}

void ThreadPool::Work() {
  uint64_t claim = claim_.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(claim) != 0) {
    // Read before the claim succeeds: if it does, a task of this run was unclaimed until then, so
    // the run was not over and these were its values.
    const FunctionRef<void(int)>* task = task_.load(std::memory_order_relaxed);
    const int tasks = tasks_.load(std::memory_order_relaxed);
    if (!claim_.compare_exchange_weak(claim, claim - 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      continue;
    }
    (*task)(tasks - static_cast<int>(static_cast<uint32_t>(claim)));
    if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 == tasks) finished_.notify_one();
    claim = claim_.load(std::memory_order_acquire);
  }
}

void ThreadPool::WorkerLoop() {
  int seen = 0;
  while (true) {
    AwaitChange(epoch_, seen);
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    Work();
  }
}

}  // namespace mference::cpu
