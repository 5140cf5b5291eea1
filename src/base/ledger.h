// The memory ledger: bytes are reserved under a named part before they exist.
//
// One ledger per loaded model holds the whole process to the budget the user stated. Every
// allocation of weight, state, scratch and slot size takes a `Reservation` first; what does not fit
// is refused with the figures, never discovered later by the kernel.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace mference {

class MemoryLedger;

// Bytes held in a ledger until this object goes. Movable; the ledger must outlive it.
class Reservation {
 public:
  Reservation() = default;
  ~Reservation();
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;

  uint64_t bytes() const { return bytes_; }

 private:
  friend class MemoryLedger;
  Reservation(MemoryLedger* ledger, std::string part, uint64_t bytes)
      : ledger_(ledger), part_(std::move(part)), bytes_(bytes) {}

  MemoryLedger* ledger_ = nullptr;
  std::string part_;
  uint64_t bytes_ = 0;
};

struct LedgerPart {
  std::string name;
  uint64_t bytes = 0;
};

// Thread-safe.
class MemoryLedger {
 public:
  explicit MemoryLedger(uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  // Takes `bytes` for `part`. Throws kOutOfBudget with the budget, what is taken and by whom.
  [[nodiscard]] Reservation Reserve(const std::string& part, uint64_t bytes);

  uint64_t budget_bytes() const { return budget_bytes_; }
  uint64_t reserved_bytes() const;
  uint64_t available_bytes() const;
  // Parts with something reserved, in alphabetical order.
  std::vector<LedgerPart> parts() const;

 private:
  friend class Reservation;
  void Release(const std::string& part, uint64_t bytes);

  const uint64_t budget_bytes_;
  mutable std::mutex mutex_;
  uint64_t reserved_bytes_ = 0;
  std::map<std::string, uint64_t> parts_;
};

}  // namespace mference
