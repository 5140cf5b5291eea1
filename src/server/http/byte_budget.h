// A bound on bytes that are in flight, shared by all connections.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace mference::server {

// Thread-safe.
class ByteBudget {
 public:
  explicit ByteBudget(uint64_t bytes) : bytes_(bytes) {}

  bool Take(uint64_t bytes) {
    uint64_t used = used_.load();
    do {
      if (bytes > bytes_ - used) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes));
    return true;
  }
  void Give(uint64_t bytes) { used_.fetch_sub(bytes); }
  uint64_t used() const { return used_.load(); }

 private:
  const uint64_t bytes_;
  std::atomic<uint64_t> used_{0};
};

// Bytes taken from a budget until this object goes. The budget must outlive it.
class HeldBytes {
 public:
  HeldBytes() = default;
  explicit HeldBytes(ByteBudget& budget) : budget_(&budget) {}
  HeldBytes(HeldBytes&& other) noexcept { *this = std::move(other); }
  HeldBytes& operator=(HeldBytes&& other) noexcept {
    Release();
    budget_ = other.budget_;
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~HeldBytes() { Release(); }

  // Makes it at least `bytes` altogether; false when the budget has no room.
  bool Grow(uint64_t bytes) {
    if (bytes <= bytes_) return true;
    if (budget_ == nullptr || !budget_->Take(bytes - bytes_)) return false;
    bytes_ = bytes;
    return true;
  }

 private:
  void Release() {
    if (budget_ != nullptr && bytes_ > 0) budget_->Give(bytes_);
    bytes_ = 0;
  }

  ByteBudget* budget_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace mference::server
