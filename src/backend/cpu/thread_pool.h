// The compute threads: persistent workers that a kernel's caller spreads ranges over.
//
// A token passes through hundreds of short parallel sections, tens of microseconds each, so a
// section costs neither an allocation nor a mutex nor, while workers are still spinning from the
// last one, a system call. Tasks are claimed dynamically: a thread that loses its core for a moment
// delays one task, not a fixed share. Results must not depend on who runs a task.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace mference::cpu {

class ThreadPool {
 public:
  // `threads` >= 1 counts the calling thread, which takes part in every run.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(i) once for each i in [0, tasks), on any thread and in any order, and returns when
  // all are done; what they wrote is then visible to the caller. Tasks must not throw. One run at a
  // time: a nested or concurrent call is a bug and ends the program with a message.
  void Run(int tasks, FunctionRef<void(int task)> task);

  // Calls body(begin, end) on ranges that partition [0, count), one per thread or fewer, each
  // starting at a multiple of `grain`. Same rules as `Run`.
  void ParallelFor(int count, int grain, FunctionRef<void(int begin, int end)> body);

 private:
  void WorkerLoop();
  // Claims and runs tasks of the current run until none is left to claim.
  void Work();

  // The run's number (high half) and how many of its tasks are still unclaimed (low half). A claim
  // is a compare-and-swap of the whole word, so a worker that wakes late, with the run it saw long
  // over, can never take a task of a later one by mistake.
  alignas(64) std::atomic<uint64_t> claim_{0};
  // Valid while a task of the current run is unclaimed or unfinished.
  std::atomic<const FunctionRef<void(int)>*> task_{nullptr};
  std::atomic<int> tasks_{0};
  alignas(64) std::atomic<int> finished_{0};
  // What idle workers wait on: changes with every run, and at the end.
  alignas(64) std::atomic<int> epoch_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> running_{false};
  std::vector<std::thread> workers_;
};

}  // namespace mference::cpu
