// Who is generated next, and who is told to come back later.
//
// First come, first served: one request runs, a bounded number waits. A place is claimed before a
// prompt is rendered, so that no more requests are prepared than can be answered, and is held until
// the request ends, whichever way.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "server/generation/job.h"

namespace mference::server {

// Thread-safe.
class JobQueue {
 public:
  // At most `waiting_limit` requests wait beside the one that runs.
  explicit JobQueue(size_t waiting_limit) : waiting_limit_(waiting_limit) {}

  enum class Admission { kClaimed, kFull, kClosed };
  // Takes one place. It is given back by `Abandon`, by `Remove` or by `Done`.
  Admission Claim();
  // The claim came to nothing before the request was queued.
  void Abandon();

  // Queues a request that holds a place; returns how many are before it, or nullopt if the queue
  // has been closed (the place is then given back).
  std::optional<size_t> Push(std::shared_ptr<Job> job);
  // Takes a waiting request out; false if it is not waiting.
  bool Remove(const Job* job);

  // Waits for the next request; null once the queue is closed.
  std::shared_ptr<Job> Take();
  // The request taken last has ended.
  void Done();

  // Nothing is admitted any more; returns those that were waiting, and cancels the running one.
  std::vector<std::shared_ptr<Job>> Close();
  bool closed() const;

  struct Occupancy {
    size_t active = 0;   // 0 or 1
    size_t waiting = 0;  // queued or being prepared
    size_t limit = 0;
  };
  Occupancy occupancy() const;

 private:
  const size_t waiting_limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> waiting_;
  std::shared_ptr<Job> active_;
  size_t claimed_ = 0;  // places taken: preparing, waiting, running
  bool closed_ = false;
};

}  // namespace mference::server
