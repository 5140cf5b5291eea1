// How many slots the pool gets: `--expert-cache-slots` against the memory there is.
#pragma once

#include <cstdint>
#include <string_view>

namespace mference {

struct SlotRequest {
  enum class Kind { kAuto, kResident, kPerLayer };
  Kind kind = Kind::kAuto;
  int per_layer = 0;  // kPerLayer only
};

// "auto", "resident", or slots per layer: 8, 16, 24, 32, 64, 96, 128. Throws kInvalidArgument.
SlotRequest ParseSlotRequest(std::string_view text);

struct SlotFacts {
  int moe_layers = 0;
  int experts_per_layer = 0;
  int top_k = 0;
  uint64_t blob_bytes = 0;
  uint64_t available_bytes = 0;  // what the ledger has left for slots
};

// Slots of the one pool: per_layer * moe_layers, all experts for kResident, as many as fit in
// available_bytes for kAuto; never more than there are experts, never fewer than top_k. Throws
// kOutOfBudget, with the bytes it would take, when that does not fit in available_bytes.
int SlotCount(const SlotRequest& request, const SlotFacts& facts);

}  // namespace mference
