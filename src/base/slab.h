// Page-backed memory for what is large and lives long: slots, KV caches, scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/ledger.h"

namespace mference {

// Anonymous memory, aligned to 2 MiB (a huge page on x86-64 and arm64), zero at first, transparent
// huge pages requested, reserved in a ledger before it is mapped. Movable; not thread-safe.
class Slab {
 public:
  static constexpr size_t kAlignment = size_t{2} << 20;

  Slab();
  // When pages come into being. Touching memory for the first time can take as long as reading it
  // from disk (1 to 4 s per GiB in some virtual machines).
  enum class Pages : uint8_t {
    kWhenTouched,
    kNow,
    kInBackground,  // a thread populates them from the first on, while they may already be used
  };
  // Throws kOutOfBudget (the ledger refuses) or kIo (the kernel refuses).
  Slab(MemoryLedger& ledger, const std::string& part, size_t bytes,
       Pages pages = Pages::kWhenTouched);
  ~Slab();
  Slab(Slab&& other) noexcept;
  Slab& operator=(Slab&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }
  // Returns when a thread that populates pages, if there is one, is done.
  void WaitUntilPopulated() const;

 private:
  struct Populating;

  Reservation reservation_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  std::unique_ptr<Populating> populating_;
};

}  // namespace mference
