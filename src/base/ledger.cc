#include "base/ledger.h"

#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace mference {

Reservation::~Reservation() {
  if (ledger_ != nullptr) ledger_->Release(part_, bytes_);
}
Reservation::Reservation(Reservation&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      part_(std::move(other.part_)),
      bytes_(std::exchange(other.bytes_, 0)) {}
Reservation& Reservation::operator=(Reservation&& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(part_, other.part_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Reservation MemoryLedger::Reserve(const std::string& part, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > budget_bytes_ - reserved_bytes_) {
    std::string taken;
    for (const auto& [name, size] : parts_) {
      taken += fmt::format("{}{} {}", taken.empty() ? "" : ", ", name, FormatByteCount(size));
    }
    Fail(ErrorCode::kOutOfBudget,
         "{} needs {}, but of the memory budget of {} only {} is left (taken: {}); raise --memory",
         part, FormatByteCount(bytes), FormatByteCount(budget_bytes_),
         FormatByteCount(budget_bytes_ - reserved_bytes_), taken.empty() ? "nothing" : taken);
  }
  Reservation reservation(this, part, bytes);
  parts_[part] += bytes;
  reserved_bytes_ += bytes;
  return reservation;
}

uint64_t MemoryLedger::reserved_bytes() const {
  const std::lock_guard lock(mutex_);
  return reserved_bytes_;
}

uint64_t MemoryLedger::available_bytes() const {
  const std::lock_guard lock(mutex_);
  return budget_bytes_ - reserved_bytes_;
}

std::vector<LedgerPart> MemoryLedger::parts() const {
  const std::lock_guard lock(mutex_);
  std::vector<LedgerPart> result;
  for (const auto& [name, bytes] : parts_) {
    if (bytes > 0) result.push_back({name, bytes});
  }
  return result;
}

void MemoryLedger::Release(const std::string& part, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  parts_[part] -= bytes;
  reserved_bytes_ -= bytes;
}

}  // namespace mference
