#include "experts/slot_memory.h"

#include "base/error.h"
#include "base/units.h"

namespace mference {
namespace {

size_t PoolBytes(int slots, uint64_t blob_bytes) {
  if (slots < 1 || blob_bytes < 1) {
    Fail(ErrorCode::kInvalidArgument, "expert slots: {} slots for blobs of {} bytes", slots,
         blob_bytes);
  }
  const uint64_t slot_bytes = SlotBytes(blob_bytes);
  const auto count = static_cast<uint64_t>(slots);
  if (slot_bytes > SIZE_MAX / count) {
    Fail(ErrorCode::kInvalidArgument, "expert slots: {} times {} bytes is too much", slots,
         slot_bytes);
  }
  return slot_bytes * count;
}

}  // namespace

uint64_t SlotBytes(uint64_t blob_bytes) { return RoundUp(blob_bytes, SlotMemory::kSlotAlignment); }

HostSlotMemory::HostSlotMemory(MemoryLedger& ledger, int slots, uint64_t blob_bytes)
    : slots_(slots),
      slot_bytes_(SlotBytes(blob_bytes)),
      slab_(ledger, "expert slots", PoolBytes(slots, blob_bytes), Slab::Pages::kInBackground) {}

}  // namespace mference
