#include "experts/cache_policy.h"

#include <tuple>

namespace mference {

LfuPolicy::LfuPolicy(int layers, int experts_per_layer, int slots)
    : layers_(layers),
      experts_per_layer_(experts_per_layer),
      use_counts_(static_cast<size_t>(layers) * static_cast<size_t>(experts_per_layer)),
      residents_(static_cast<size_t>(slots)) {}

void LfuPolicy::OnRequest(int layer, std::span<const int32_t> experts) {
  current_layer_ = layer;
  ++clock_;
  uint32_t* counts = use_counts_.data() + static_cast<ptrdiff_t>(layer) * experts_per_layer_;
  for (const int32_t expert : experts) ++counts[expert];
}

void LfuPolicy::OnHit(int slot) { residents_[static_cast<size_t>(slot)].last_use = clock_; }

void LfuPolicy::OnFill(int slot, int layer, int expert, bool demand) {
  residents_[static_cast<size_t>(slot)] = {
      .key = layer * experts_per_layer_ + expert, .layer = layer, .last_use = demand ? clock_ : 0};
}

void LfuPolicy::OnClear(int slot) { residents_[static_cast<size_t>(slot)] = {}; }

int LfuPolicy::ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) const {
  int victim = -1;
  uint32_t lowest_count = 0;
  int furthest = 0;
  uint64_t oldest = 0;
  for (size_t slot = 0; slot < residents_.size(); ++slot) {
    if (guards[slot] > level) continue;
    const Resident& resident = residents_[slot];
    if (resident.key < 0) return static_cast<int>(slot);
    const uint32_t count = use_counts_[static_cast<size_t>(resident.key)];
    if (victim >= 0 && count > lowest_count) continue;
    // Layers until this one's next turn: the current layer, whose turn is now, waits a whole cycle.
    const int distance = resident.layer > current_layer_
                             ? resident.layer - current_layer_
                             : resident.layer - current_layer_ + layers_;
    const bool first = victim < 0 || std::tuple(count, -distance, resident.last_use) <
                                         std::tuple(lowest_count, -furthest, oldest);
    if (!first) continue;
    victim = static_cast<int>(slot);
    lowest_count = count;
    furthest = distance;
    oldest = resident.last_use;
  }
  return victim;
}

uint32_t LfuPolicy::UseCount(int layer, int expert) const {
  return use_counts_[static_cast<size_t>(layer) * static_cast<size_t>(experts_per_layer_) +
                     static_cast<size_t>(expert)];
}

}  // namespace mference
