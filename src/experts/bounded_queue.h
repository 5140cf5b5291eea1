// A bounded lock-free queue between any number of threads.
//
// Each cell carries a sequence number that says whose turn it is: equal to the position, the cell
// is free for the producer of that position; one more, it is full for the consumer of it. Positions
// are claimed by compare-and-swap, contents are published by the sequence number. (The scheme is
// Dmitry Vyukov's bounded MPMC queue.) All memory is claimed at construction.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <optional>
#include <vector>

namespace mference {

template <typename T>
class BoundedQueue {
 public:
  // Holds at least `capacity` elements.
  explicit BoundedQueue(size_t capacity) : cells_(std::bit_ceil(capacity)) {
    for (size_t i = 0; i < cells_.size(); ++i) {
      cells_[i].sequence.store(i, std::memory_order_relaxed);
    }
  }

  // False when the queue is full.
  bool Push(const T& value) {
    size_t position = push_position_.load(std::memory_order_relaxed);
    while (true) {
      Cell& cell = cells_[position & (cells_.size() - 1)];
      const size_t sequence = cell.sequence.load(std::memory_order_acquire);
      if (sequence == position) {
        if (push_position_.compare_exchange_weak(position, position + 1,
                                                 std::memory_order_relaxed)) {
          cell.value = value;
          cell.sequence.store(position + 1, std::memory_order_release);
          return true;
        }
      } else if (static_cast<ptrdiff_t>(sequence - position) < 0) {
        return false;
      } else {
        position = push_position_.load(std::memory_order_relaxed);
      }
    }
  }

  // Nothing when the queue is empty.
  std::optional<T> Pop() {
    size_t position = pop_position_.load(std::memory_order_relaxed);
    while (true) {
      Cell& cell = cells_[position & (cells_.size() - 1)];
      const size_t sequence = cell.sequence.load(std::memory_order_acquire);
      if (sequence == position + 1) {
        if (pop_position_.compare_exchange_weak(position, position + 1,
                                                std::memory_order_relaxed)) {
          T value = cell.value;
          cell.sequence.store(position + cells_.size(), std::memory_order_release);
          return value;
        }
      } else if (static_cast<ptrdiff_t>(sequence - (position + 1)) < 0) {
        return std::nullopt;
      } else {
        position = pop_position_.load(std::memory_order_relaxed);
      }
    }
  }

 private:
  struct Cell {
    std::atomic<size_t> sequence;
    T value;
  };
  static constexpr size_t kCacheLine = 64;

  std::vector<Cell> cells_;
  alignas(kCacheLine) std::atomic<size_t> push_position_ = 0;
  alignas(kCacheLine) std::atomic<size_t> pop_position_ = 0;
};

}  // namespace mference
