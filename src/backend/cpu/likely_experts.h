// Which experts a layer will probably choose, from what its router says of an earlier residual.
#pragma once

#include <cstdint>
#include <span>

namespace mference::cpu {

// Writes to `ids` [at least top_k] the experts that are worth reading ahead, likeliest first, and
// returns how many: those among the top_k of `logits` [experts] that lead the best expert outside
// of them by more than a tenth of the logits' standard deviation. Where there is no expert outside,
// all are certain. top_k is in [1, kMaxTopK of the backend], NaN ranks last.
int32_t LikelyExperts(std::span<const float> logits, int32_t top_k, std::span<int32_t> ids);

}  // namespace mference::cpu
