#include "install/transfer.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"

namespace mference {
namespace {

// Bytes received per range, summed up so that the sum never falls although an attempt that starts
// over begins at zero again.
class ReceivedBytes {
 public:
  void Set(size_t range, uint64_t received) {
    const std::lock_guard lock(mutex_);
    uint64_t& known = by_range_[range];
    if (received <= known) return;
    total_ += received - known;
    known = received;
  }
  uint64_t total() const {
    const std::lock_guard lock(mutex_);
    return total_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<size_t, uint64_t> by_range_;
  uint64_t total_ = 0;
};

RangeRequest RequestFor(const RangePlan& plan, size_t range_number, ReceivedBytes& received,
                        std::function<bool()> abandoned) {
  const SourceRange& range = plan.ranges[range_number];
  return {.label = RangePlan::RangeId(range_number),
          .shard = plan.shards[range.shard],
          .offset = range.offset,
          .bytes = range.bytes,
          .on_progress = [&received,
                          range_number](uint64_t bytes) { received.Set(range_number, bytes); },
          .abandoned = std::move(abandoned)};
}

// Hands out fetched ranges in the order asked for, keeping up to `in_flight` fetches going.
class FetchQueue {
 public:
  FetchQueue(SnapshotSource& source, const RangePlan& plan, std::vector<size_t> order,
             int in_flight, ReceivedBytes& received)
      : source_(source), plan_(plan), order_(std::move(order)), received_(received) {
    if (in_flight <= 1) return;
    slots_.resize(static_cast<size_t>(in_flight));
    for (int i = 0; i < in_flight; ++i) threads_.emplace_back([this] { Run(); });
  }

  ~FetchQueue() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      abandoned_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  FetchQueue(const FetchQueue&) = delete;
  FetchQueue& operator=(const FetchQueue&) = delete;

  // The `position`-th range of the order; positions are asked for one after the other. While the
  // fetch is under way `while_waiting` runs now and then and may throw.
  std::unique_ptr<FetchedRange> Take(size_t position, const std::function<void()>& while_waiting) {
    if (threads_.empty()) return Fetch(position);
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[position % slots_.size()];
    while (!slot.ready) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      lock.unlock();
      while_waiting();
      lock.lock();
    }
    if (slot.failure != nullptr) std::rethrow_exception(slot.failure);
    return std::move(slot.range);
  }

  // The range taken last is consumed (and destroyed): its slot may be used again.
  void Release(size_t position) {
    if (threads_.empty()) return;
    const std::lock_guard lock(mutex_);
    slots_[position % slots_.size()] = {};
    released_ = position + 1;
    changed_.notify_all();
  }

 private:
  struct Slot {
    bool ready = false;
    std::unique_ptr<FetchedRange> range;
    std::exception_ptr failure;
  };

  std::unique_ptr<FetchedRange> Fetch(size_t position) {
    return source_.Fetch(
        RequestFor(plan_, order_[position], received_, [this] { return abandoned_.load(); }));
  }

  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] {
        return stop_ || next_ >= order_.size() || next_ < released_ + slots_.size();
      });
      if (stop_ || next_ >= order_.size()) return;
      const size_t position = next_++;
      lock.unlock();
      Slot result{.ready = true, .range = nullptr, .failure = nullptr};
      try {
        result.range = Fetch(position);
      } catch (...) {
        result.failure = std::current_exception();
      }
      lock.lock();
      if (result.failure != nullptr) stop_ = true;  // what follows would be thrown away
      slots_[position % slots_.size()] = std::move(result);
      changed_.notify_all();
    }
  }

  SnapshotSource& source_;
  const RangePlan& plan_;
  const std::vector<size_t> order_;
  ReceivedBytes& received_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;  // [in flight]; position modulo its size
  size_t next_ = 0;          // position to fetch next
  size_t released_ = 0;      // positions consumed
  bool stop_ = false;
  std::atomic<bool> abandoned_ = false;
  std::vector<std::thread> threads_;
};

// Flushes and records copied ranges, in order, at most one behind the copier.
class Committer {
 public:
  Committer(const RangePlan& plan, Checkpoint& checkpoint, const TransferFiles& target,
            bool background)
      : plan_(plan), checkpoint_(checkpoint), target_(target) {
    if (background) thread_ = std::thread([this] { Run(); });
  }
  ~Committer() { Stop(); }
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  struct Copied {
    size_t range = 0;
    std::string digest;
    SourceProgress source_progress;
  };

  void Commit(Copied copied) {
    if (!thread_.joinable()) return Record(std::move(copied));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !pending_ || failure_ != nullptr; });
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    pending_ = std::move(copied);
    changed_.notify_all();
  }

  // Waits for everything handed over to be recorded.
  void Finish() {
    Stop();
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  void Stop() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void Record(Copied copied) {
    SyncOutputsOf(plan_, copied.range, target_.outputs);
    const SourceRange& range = plan_.ranges[copied.range];
    checkpoint_.completed.insert_or_assign(
        RangePlan::RangeId(copied.range),
        CompletedRange{.destination_digest = std::move(copied.digest),
                       .source_bytes = range.bytes,
                       .destination_bytes = plan_.OutputBytesOf(range)});
    checkpoint_.source_progress = std::move(copied.source_progress);
    WriteCheckpoint(target_.files, target_.checkpoint_path, checkpoint_);
  }

  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return pending_ || stop_; });
      if (!pending_) return;
      Copied copied = *std::move(pending_);
      lock.unlock();
      try {
        Record(std::move(copied));
      } catch (...) {
        lock.lock();
        failure_ = std::current_exception();
        changed_.notify_all();
        return;
      }
      lock.lock();
      pending_.reset();
      changed_.notify_all();
    }
  }

  const RangePlan& plan_;
  Checkpoint& checkpoint_;  // the thread's alone until it is joined
  const TransferFiles& target_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Copied> pending_;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace

void TransferRanges(SnapshotSource& source, const RangePlan& plan, Checkpoint& checkpoint,
                    const TransferFiles& target, const TransferOptions& options,
                    const ExpectedDigests& expected_digests, SourceVerifier* verifier) {
  std::vector<size_t> order;
  for (size_t i = 0; i < plan.ranges.size(); ++i) {
    if (!checkpoint.completed.contains(RangePlan::RangeId(i))) order.push_back(i);
  }
  const Checkpoint saved = checkpoint;  // the committer changes the other one
  ReceivedBytes received;
  const auto report = [&] {
    options.check_cancelled();
    options.on_progress(received.total());
  };

  FetchQueue queue(source, plan, order, options.ranges_in_flight, received);
  Committer committer(plan, checkpoint, target, options.background_commit);
  const auto transfer = [&](size_t position) {
    const size_t range = order[position];
    report();
    std::string digest;
    {
      const std::unique_ptr<FetchedRange> fetched = queue.Take(position, report);
      if (verifier != nullptr) verifier->AddRange(plan.ranges[range], *fetched);
      digest = target.copier.Copy(range, *fetched);
    }
    queue.Release(position);
    received.Set(range, plan.ranges[range].bytes);
    const auto expected = expected_digests.find(RangePlan::RangeId(range));
    if (expected != expected_digests.end() && expected->second != digest) {
      Fail(ErrorCode::kSourceInvalid,
           "{} of {} is not what was fetched before: the source changed or is damaged",
           RangePlan::RangeId(range), plan.shards[plan.ranges[range].shard]);
    }
    target.hasher.MarkWritten(range);
    committer.Commit(
        {.range = range,
         .digest = std::move(digest),
         .source_progress = verifier != nullptr ? verifier->progress() : saved.source_progress});
  };

  size_t position = 0;
  for (size_t first = 0; first < plan.ranges.size();) {
    const uint32_t shard = plan.ranges[first].shard;
    size_t end = first;
    while (end < plan.ranges.size() && plan.ranges[end].shard == shard) ++end;
    if (verifier != nullptr) verifier->BeginShard(shard);
    for (; position < order.size() && order[position] < end; ++position) transfer(position);
    if (verifier != nullptr && !verifier->EndShard()) {
      committer.Finish();
      for (size_t i = first; i < end; ++i) checkpoint.completed.erase(RangePlan::RangeId(i));
      checkpoint.source_progress = verifier->progress();
      WriteCheckpoint(target.files, target.checkpoint_path, checkpoint);
      Fail(ErrorCode::kSourceInvalid,
           "{} arrived with another SHA-256 than was published for it; nothing of it is kept, "
           "installing again fetches it again",
           plan.shards[shard]);
    }
    first = end;
  }
  committer.Finish();
  if (verifier != nullptr) checkpoint.source_progress = verifier->progress();
  report();
}

}  // namespace mference
