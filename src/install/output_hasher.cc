#include "install/output_hasher.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace mference {

OutputHasher::OutputHasher(const RangePlan& plan, OutputFiles& outputs, bool background)
    : plan_(plan), outputs_(outputs), states_(plan.outputs.size()), written_(plan.copies.size()) {
  for (uint32_t i = 0; i < plan.copies.size(); ++i) {
    states_[plan.copies[i].output].copies.push_back(i);
  }
  for (FileState& state : states_) {
    std::sort(state.copies.begin(), state.copies.end(), [&](uint32_t a, uint32_t b) {
      return plan_.copies[a].output_offset < plan_.copies[b].output_offset;
    });
  }
  if (background) thread_ = std::thread([this] { Run(); });
}

OutputHasher::~OutputHasher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void OutputHasher::MarkWritten(size_t range_number) {
  const SourceRange& range = plan_.ranges[range_number];
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < range.copy_count; ++i) written_[range.first_copy + i] = true;
  }
  changed_.notify_all();
}

OutputHasher::Work OutputHasher::FindWork() const {
  for (uint32_t output = 0; output < states_.size(); ++output) {
    const FileState& state = states_[output];
    size_t next = state.next;
    while (next < state.copies.size() && written_[state.copies[next]]) ++next;
    // Between copies lie only the index and padding, which are final from the beginning.
    const uint64_t end = next == state.copies.size()
                             ? plan_.outputs[output].bytes
                             : plan_.copies[state.copies[next]].output_offset;
    if (end > state.hashed) return {.output = output, .end = end, .next = next};
  }
  return {};
}

void OutputHasher::HashTo(FileState& file, const Work& work) {
  File& output = outputs_.file(work.output);
  while (file.hashed < work.end) {
    const uint64_t bytes = std::min<uint64_t>(scratch_.bytes().size(), work.end - file.hashed);
    const auto tile = scratch_.bytes().first(bytes);
    output.ReadAt(file.hashed, tile);
    file.hash.Update(tile);
    output.DropCache(file.hashed, bytes);
    file.hashed += bytes;
    const std::lock_guard lock(mutex_);
    hashed_bytes_ += bytes;
    if (stop_) return;
  }
  file.next = work.next;
}

void OutputHasher::Run() {
  try {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      const Work work = FindWork();
      if (work.end == 0) {
        changed_.wait(lock);
        continue;
      }
      lock.unlock();
      HashTo(states_[work.output], work);
      lock.lock();
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

std::vector<FileRecord> OutputHasher::Finish(
    const std::function<void(uint64_t hashed)>& on_progress) {
  const uint64_t total = plan_.output_bytes();
  if (!thread_.joinable()) {
    for (Work work = FindWork(); work.end != 0; work = FindWork()) {
      HashTo(states_[work.output], work);
      on_progress(hashed_bytes_);
    }
    Check(hashed_bytes_ == total, "outputs were finished before every range was written");
  }
  std::unique_lock lock(mutex_);
  while (hashed_bytes_ < total && failure_ == nullptr) {
    changed_.wait_for(lock, std::chrono::milliseconds(200));
    const uint64_t hashed = hashed_bytes_;
    lock.unlock();
    on_progress(hashed);
    lock.lock();
  }
  stop_ = true;
  lock.unlock();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (failure_ != nullptr) std::rethrow_exception(failure_);

  std::vector<FileRecord> records;
  for (size_t i = 0; i < states_.size(); ++i) {
    records.push_back({.size = plan_.outputs[i].bytes, .sha256 = states_[i].hash.FinishHex()});
  }
  return records;
}

}  // namespace mference
