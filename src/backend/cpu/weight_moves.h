// Where copies of weights have been made, told by the thread that makes them to the one that uses
// them: the latter changes its pointers between two steps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mference::cpu {

// The same bytes at another place. The old place stays valid until the move is taken.
struct WeightMove {
  const std::byte* from = nullptr;
  const std::byte* to = nullptr;
};

// One thread publishes, one at a time takes; neither locks nor allocates.
class WeightMoves {
 public:
  explicit WeightMoves(size_t capacity) : moves_(capacity) {}

  // ---- The publishing thread's side. At most `capacity` moves.
  void Publish(const WeightMove& move) {
    const size_t at = published_.load(std::memory_order_relaxed);
    moves_[at] = move;
    published_.store(at + 1, std::memory_order_release);
    Signal();
  }
  // No more moves will come.
  void Close() {
    closed_.store(true, std::memory_order_release);
    Signal();
  }
  // Returns when `count` moves are taken; false when `Stop` was called instead.
  bool WaitUntilTaken(size_t count) const {
    while (!stopped()) {
      const uint32_t seen = events_.load(std::memory_order_acquire);
      if (taken_.load(std::memory_order_acquire) >= count) return true;
      if (!stopped()) events_.wait(seen, std::memory_order_acquire);
    }
    return false;
  }

  // ---- The taking thread's side.
  // Calls take(move) for what has been published since the last call.
  template <typename Take>
  void TakeNew(const Take& take) {
    size_t at = taken_.load(std::memory_order_relaxed);
    const size_t end = published_.load(std::memory_order_acquire);
    if (at == end) return;
    while (at < end) take(moves_[at++]);
    taken_.store(end, std::memory_order_release);
    Signal();
  }
  // Returns when there is something to take; false when nothing is left and nothing will come.
  bool WaitForNew() const {
    while (true) {
      const uint32_t seen = events_.load(std::memory_order_acquire);
      const bool closed = closed_.load(std::memory_order_acquire);
      if (published_.load(std::memory_order_acquire) > taken_.load(std::memory_order_relaxed)) {
        return true;
      }
      if (closed) return false;
      events_.wait(seen, std::memory_order_acquire);
    }
  }

  // Any thread: nothing will be taken any more.
  void Stop() {
    stopped_.store(true, std::memory_order_release);
    Signal();
  }
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

 private:
  void Signal() {
    events_.fetch_add(1, std::memory_order_release);
    events_.notify_all();
  }

  std::vector<WeightMove> moves_;
  std::atomic<size_t> published_ = 0;
  std::atomic<size_t> taken_ = 0;
  std::atomic<bool> closed_ = false;
  std::atomic<bool> stopped_ = false;
  std::atomic<uint32_t> events_ = 0;  // counts changes of the above; what waiting threads watch
};

}  // namespace mference::cpu
