#include "experts/slot_count.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/units.h"
#include "experts/slot_memory.h"

namespace mference {

SlotRequest ParseSlotRequest(std::string_view text) {
  if (text == "auto") return {.kind = SlotRequest::Kind::kAuto};
  if (text == "resident") return {.kind = SlotRequest::Kind::kResident};
  for (const int rung : std::array{8, 16, 24, 32, 64, 96, 128}) {
    if (text == std::to_string(rung)) {
      return {.kind = SlotRequest::Kind::kPerLayer, .per_layer = rung};
    }
  }
  Fail(ErrorCode::kInvalidArgument,
       "expert cache slots: expected auto, resident, 8, 16, 24, 32, 64, 96 or 128, found '{}'",
       text);
}

int SlotCount(const SlotRequest& request, const SlotFacts& facts) {
  Check(facts.moe_layers > 0 && facts.experts_per_layer > 0 && facts.top_k > 0 &&
            facts.top_k <= facts.experts_per_layer && facts.blob_bytes > 0,
        "slot count without a model's shape");
  const uint64_t slot_bytes = SlotBytes(facts.blob_bytes);
  const uint64_t fitting = facts.available_bytes / slot_bytes;
  const auto layers = static_cast<uint64_t>(facts.moe_layers);
  const uint64_t all = layers * static_cast<uint64_t>(facts.experts_per_layer);
  const auto fewest = static_cast<uint64_t>(facts.top_k);
  uint64_t slots = 0;
  switch (request.kind) {
    case SlotRequest::Kind::kAuto:
      slots = fitting;
      break;
    case SlotRequest::Kind::kResident:
      slots = all;
      break;
    case SlotRequest::Kind::kPerLayer:
      slots = layers * static_cast<uint64_t>(request.per_layer);
      break;
  }
  slots = std::clamp(slots, fewest, all);
  if (slots > fitting) {
    Fail(ErrorCode::kOutOfBudget,
         "{} expert slots need {} ({} bytes), but {} ({} bytes) are left for them; raise --memory"
         "{}",
         slots, FormatByteCount(slots * slot_bytes), slots * slot_bytes,
         FormatByteCount(facts.available_bytes), facts.available_bytes,
         slots > fewest ? " or lower --expert-cache-slots" : "");
  }
  return static_cast<int>(slots);
}

}  // namespace mference
