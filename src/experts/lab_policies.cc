#include "experts/lab_policies.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace mference {

int LruPolicy::ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) {
  return Smallest(guards, level, [](const ResidentExpert& resident) { return resident.last_use; });
}

// ---- LFU with ageing ------------------------------------------------------------------------

AgedLfuPolicy::AgedLfuPolicy(int layers, int experts_per_layer, int slots)
    : ResidentPolicy(layers, experts_per_layer, slots),
      counts_(static_cast<size_t>(layers) * static_cast<size_t>(experts_per_layer)) {}

void AgedLfuPolicy::OnRequest(int layer, std::span<const int32_t> experts,
                              const RowChoices& choices) {
  ResidentPolicy::OnRequest(layer, experts, choices);
  const auto decay = static_cast<float>(std::exp2(-1 / kHalfLife));
  const auto begin = counts_.begin() + KeyOf(layer, 0);
  std::for_each(begin, begin + experts_per_layer_, [decay](float& count) { count *= decay; });
  for (const int32_t expert : experts) counts_[static_cast<size_t>(KeyOf(layer, expert))] += 1;
}

int AgedLfuPolicy::ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) {
  return Smallest(guards, level, [this](const ResidentExpert& resident) {
    return std::tuple(counts_[static_cast<size_t>(resident.key)], -DistanceTo(resident.layer),
                      resident.last_use);
  });
}

// ---- S3-FIFO --------------------------------------------------------------------------------

S3FifoPolicy::S3FifoPolicy(int layers, int experts_per_layer, int slots)
    : experts_per_layer_(experts_per_layer),
      residents_(static_cast<size_t>(slots)),
      is_ghost_(static_cast<size_t>(layers) * static_cast<size_t>(experts_per_layer)) {}

void S3FifoPolicy::OnHit(int slot) {
  uint8_t& uses = residents_[static_cast<size_t>(slot)].uses;
  if (uses < 3) ++uses;
}

void S3FifoPolicy::OnFill(int slot, int layer, int expert, bool /*demand*/) {
  const int32_t key = layer * experts_per_layer_ + expert;
  residents_[static_cast<size_t>(slot)] = {.key = key};
  uint8_t& ghost = is_ghost_[static_cast<size_t>(key)];
  (ghost != 0 ? main_ : small_).push_back(slot);
  ghost = 0;
}

void S3FifoPolicy::OnClear(int slot) {
  Resident& resident = residents_[static_cast<size_t>(slot)];
  if (const auto at = std::find(small_.begin(), small_.end(), slot); at != small_.end()) {
    small_.erase(at);
    is_ghost_[static_cast<size_t>(resident.key)] = 1;
    ghost_.push_back(resident.key);
    if (ghost_.size() > residents_.size()) {
      is_ghost_[static_cast<size_t>(ghost_.front())] = 0;
      ghost_.pop_front();
    }
  } else if (const auto in_main = std::find(main_.begin(), main_.end(), slot);
             in_main != main_.end()) {
    main_.erase(in_main);
  }
  resident = {};
}

int S3FifoPolicy::ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) {
  for (size_t slot = 0; slot < residents_.size(); ++slot) {
    if (residents_[slot].key < 0 && guards[slot] <= level) return static_cast<int>(slot);
  }
  int victim = -1;
  if (small_.size() * 10 >= residents_.size()) victim = FromSmall(guards, level);
  if (victim < 0) victim = FromMain(guards, level);
  if (victim < 0) victim = FromSmall(guards, level);
  return victim;
}

// Those used again while they were new move on to the main queue.
int S3FifoPolicy::FromSmall(std::span<const SlotGuard> guards, SlotGuard level) {
  for (size_t i = 0; i < small_.size();) {
    const int slot = small_[i];
    Resident& resident = residents_[static_cast<size_t>(slot)];
    if (guards[static_cast<size_t>(slot)] > level) {
      ++i;
    } else if (resident.uses > 1) {
      resident.uses = 0;
      small_.erase(small_.begin() + static_cast<ptrdiff_t>(i));
      main_.push_back(slot);
    } else {
      return slot;
    }
  }
  return -1;
}

int S3FifoPolicy::FromMain(std::span<const SlotGuard> guards, SlotGuard level) {
  // Every round costs each slot a chance: after four, one that may go has none left.
  for (size_t tries = main_.size() * 4; tries-- > 0;) {
    const int slot = main_.front();
    Resident& resident = residents_[static_cast<size_t>(slot)];
    const bool may_go = guards[static_cast<size_t>(slot)] <= level;
    if (may_go && resident.uses == 0) return slot;
    if (may_go) --resident.uses;
    main_.pop_front();
    main_.push_back(slot);
  }
  return -1;
}

// ---- Belady ---------------------------------------------------------------------------------

BeladyPolicy::BeladyPolicy(int layers, int experts_per_layer, int slots,
                           const std::vector<Request>& requests)
    : ResidentPolicy(layers, experts_per_layer, slots),
      uses_(static_cast<size_t>(layers) * static_cast<size_t>(experts_per_layer)),
      next_(uses_.size()) {
  for (size_t i = 0; i < requests.size(); ++i) {
    for (const int32_t expert : requests[i].experts) {
      uses_[static_cast<size_t>(KeyOf(requests[i].layer, expert))].push_back(
          static_cast<uint32_t>(i + 1));
    }
  }
  for (std::vector<uint32_t>& uses : uses_) std::reverse(uses.begin(), uses.end());
}

void BeladyPolicy::OnRequest(int layer, std::span<const int32_t> experts,
                             const RowChoices& choices) {
  ResidentPolicy::OnRequest(layer, experts, choices);
  for (const int32_t expert : experts) {
    const auto key = static_cast<size_t>(KeyOf(layer, expert));
    std::vector<uint32_t>& uses = uses_[key];
    while (!uses.empty() && uses.back() <= clock_) uses.pop_back();
    next_[key] = uses.empty() ? UINT32_MAX : uses.back();
  }
}

int BeladyPolicy::ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) {
  return Smallest(guards, level, [this](const ResidentExpert& resident) {
    return UINT32_MAX - next_[static_cast<size_t>(resident.key)];
  });
}

}  // namespace mference
