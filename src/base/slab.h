// Page-backed memory for what is large and lives long: slots, KV caches, scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/ledger.h"

namespace mference {

// Anonymous memory, aligned to 2 MiB (a huge page on x86-64 and arm64), zero at first, transparent
// huge pages requested, reserved in a ledger before it is mapped. Movable; not thread-safe.
class Slab {
 public:
  static constexpr size_t kAlignment = size_t{2} << 20;

  Slab() = default;
  // Throws kOutOfBudget (the ledger refuses) or kIo (the kernel refuses). With `prefault` every
  // page is touched now, so that later writes never fault.
  Slab(MemoryLedger& ledger, const std::string& part, size_t bytes, bool prefault = false);
  ~Slab();
  Slab(Slab&& other) noexcept;
  Slab& operator=(Slab&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  Reservation reservation_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
};

}  // namespace mference
