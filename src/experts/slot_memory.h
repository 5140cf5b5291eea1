// The memory that experts are cached in: equal slots, claimed once, reused in place.
//
// The interface exists because memory belongs to the backend. A CPU reads blobs straight into the
// slab its kernels work from; a discrete GPU reads into pinned staging and copies on `Commit`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ledger.h"
#include "base/slab.h"

namespace mference {

// Slots are numbered [0, slots()). Called by the store's thread only.
class SlotMemory {
 public:
  // Slot sizes are multiples of this, and the memory begins on a multiple: enough for O_DIRECT
  // with any logical block size in use.
  static constexpr size_t kSlotAlignment = 16384;

  virtual ~SlotMemory() = default;

  virtual int slots() const = 0;
  virtual size_t slot_bytes() const = 0;
  // Where a read of `slot` lands. The address is valid until `Commit(slot)`; readers write to it
  // from other threads.
  virtual std::byte* ReadTarget(int slot) = 0;
  // The blob has landed in ReadTarget(slot): makes it visible to consumers and returns the address
  // that leases carry (for a GPU, a device address).
  virtual const std::byte* Commit(int slot) = 0;
  // The host memory that contains every ReadTarget, for readers that register buffers.
  virtual std::span<std::byte> ReadRegion() = 0;
};

// Bytes of a slot for blobs of `blob_bytes`.
uint64_t SlotBytes(uint64_t blob_bytes);

// Slots in one 2 MiB-aligned slab of huge pages, which come into being in the background, first
// slots first, while the first reads already land.
class HostSlotMemory : public SlotMemory {
 public:
  // Reserves slots * SlotBytes(blob_bytes) in `ledger` as "expert slots" before mapping it. Throws
  // kOutOfBudget when that does not fit, kInvalidArgument without slots or bytes.
  HostSlotMemory(MemoryLedger& ledger, int slots, uint64_t blob_bytes);

  int slots() const override { return slots_; }
  size_t slot_bytes() const override { return slot_bytes_; }
  std::byte* ReadTarget(int slot) override { return SlotAddress(slot); }
  const std::byte* Commit(int slot) override { return SlotAddress(slot); }
  std::span<std::byte> ReadRegion() override { return slab_.bytes(); }
  // Returns when no slot will fault any more.
  void WaitUntilPopulated() const { slab_.WaitUntilPopulated(); }

 private:
  std::byte* SlotAddress(int slot) {
    return slab_.data() + static_cast<size_t>(slot) * slot_bytes_;
  }

  int slots_;
  size_t slot_bytes_;
  Slab slab_;
};

}  // namespace mference
