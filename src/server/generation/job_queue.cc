#include "server/generation/job_queue.h"

#include <algorithm>

namespace mference::server {

JobQueue::Admission JobQueue::Claim() {
  const std::lock_guard lock(mutex_);
  if (closed_) return Admission::kClosed;
  if (claimed_ >= waiting_limit_ + 1) return Admission::kFull;
  ++claimed_;
  return Admission::kClaimed;
}

void JobQueue::Abandon() {
  const std::lock_guard lock(mutex_);
  --claimed_;
}

std::optional<size_t> JobQueue::Push(std::shared_ptr<Job> job) {
  const std::lock_guard lock(mutex_);
  if (closed_) {
    --claimed_;
    return std::nullopt;
  }
  const size_t before = waiting_.size() + (active_ != nullptr ? 1 : 0);
  waiting_.push_back(std::move(job));
  changed_.notify_one();
  return before;
}

bool JobQueue::Remove(const Job* job) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [job](const auto& waiting) { return waiting.get() == job; });
  if (found == waiting_.end()) return false;
  waiting_.erase(found);
  --claimed_;
  return true;
}

std::shared_ptr<Job> JobQueue::Take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
  if (closed_) return nullptr;
  active_ = std::move(waiting_.front());
  waiting_.pop_front();
  return active_;
}

void JobQueue::Done() {
  const std::lock_guard lock(mutex_);
  active_.reset();
  --claimed_;
}

std::vector<std::shared_ptr<Job>> JobQueue::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  if (active_ != nullptr) active_->cancelled = true;
  std::vector<std::shared_ptr<Job>> left(waiting_.begin(), waiting_.end());
  claimed_ -= left.size();
  waiting_.clear();
  changed_.notify_all();
  return left;
}

bool JobQueue::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

JobQueue::Occupancy JobQueue::occupancy() const {
  const std::lock_guard lock(mutex_);
  const size_t active = active_ != nullptr ? 1 : 0;
  return {active, claimed_ - active, waiting_limit_};
}

}  // namespace mference::server
