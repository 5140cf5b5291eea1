#include "experts/cache_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>
#include <utility>

namespace mference {

// ---- Residents ------------------------------------------------------------------------------

ResidentPolicy::ResidentPolicy(int layers, int experts_per_layer, int slots)
    : layers_(layers),
      experts_per_layer_(experts_per_layer),
      residents_(static_cast<size_t>(slots)) {}

void ResidentPolicy::OnRequest(int layer, std::span<const int32_t> /*experts*/) {
  current_layer_ = layer;
  ++clock_;
}

void ResidentPolicy::OnFill(int slot, int layer, int expert, bool demand) {
  residents_[static_cast<size_t>(slot)] = {
      .key = KeyOf(layer, expert), .layer = layer, .last_use = demand ? clock_ : 0};
}

// ---- Least frequently used ------------------------------------------------------------------

void LfuPolicy::OnRequest(int layer, std::span<const int32_t> experts) {
  ResidentPolicy::OnRequest(layer, experts);
  for (const int32_t expert : experts) ++use_counts_[static_cast<size_t>(KeyOf(layer, expert))];
}

int LfuPolicy::ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) {
  return Smallest(guards, level, [this](const ResidentExpert& resident) {
    return std::tuple(use_counts_[static_cast<size_t>(resident.key)], -DistanceTo(resident.layer),
                      resident.last_use);
  });
}

// ---- Expected next use ----------------------------------------------------------------------

namespace {

// An average over the last turns starts from as many as have been, so that early ones count fully.
float RateUnit(uint32_t turn, double half_life) {
  const double steady = 1 - std::exp2(-1 / half_life);
  return static_cast<float>(std::max(steady, 1.0 / turn));
}

}  // namespace

NextUsePolicy::NextUsePolicy(int layers, int experts_per_layer, int slots)
    : ResidentPolicy(layers, experts_per_layer, slots),
      experts_(static_cast<size_t>(layers) * static_cast<size_t>(experts_per_layer)),
      layer_turns_(static_cast<size_t>(layers)),
      asked_(static_cast<size_t>(experts_per_layer)),
      kinds_(kAgeClasses * kRateClasses) {
  // Until something has been counted: an expert is chosen as often as its rate says, and half as
  // often with every doubling of its age. Weighs as much as a few tokens' choices.
  constexpr double kPriorTurns = 16;
  for (int age = 0; age < kAgeClasses; ++age) {
    for (int rate = 0; rate < kRateClasses; ++rate) {
      const double chance = std::max(std::exp2(-0.5 * rate), 1.0 / 4096) * std::exp2(-0.25 * age);
      kinds_[static_cast<size_t>(age * kRateClasses + rate)] = {.turns = kPriorTurns,
                                                                .chosen = kPriorTurns * chance};
    }
  }
}

void NextUsePolicy::OnRequest(int layer, std::span<const int32_t> experts) {
  ResidentPolicy::OnRequest(layer, experts);
  for (const int32_t expert : experts) asked_[static_cast<size_t>(expert)] = 1;
  const uint32_t turn = ++layer_turns_[static_cast<size_t>(layer)];
  const float unit = RateUnit(turn, kRateHalfLife);
  // A step of many tokens asks for most experts of the layer, and says little of each: it counts as
  // one turn in which each was chosen with the share that a single token chooses.
  fewest_asked_ = std::min(fewest_asked_, experts.size());
  const bool wide = experts.size() > 2 * fewest_asked_;
  const float weight =
      wide ? static_cast<float>(fewest_asked_) / static_cast<float>(experts.size()) : 1.0f;
  Expert* const of_layer = experts_.data() + static_cast<ptrdiff_t>(KeyOf(layer, 0));
  for (int i = 0; i < experts_per_layer_; ++i) {
    Expert& expert = of_layer[i];
    const bool chosen = std::exchange(asked_[static_cast<size_t>(i)], uint8_t{0}) != 0;
    if (turn > 1 && !wide) {
      Kind& kind = kinds_[expert.kind];
      kind.turns += 1;
      kind.chosen += chosen ? 1 : 0;
      constexpr double kFull = 65536;
      if (kind.turns > kFull) {
        kind.turns /= 2;
        kind.chosen /= 2;
      }
    }
    expert.rate += unit * ((chosen ? weight : 0.0f) - expert.rate);
    if (chosen) expert.last_turn = turn;
    Classify(expert, turn, unit);
  }
}

// Sets what the expert will be in its layer's next turn.
void NextUsePolicy::Classify(Expert& expert, uint32_t turn, float rate_unit) const {
  const int age =
      expert.last_turn == 0
          ? kAgeClasses - 1
          : std::min(static_cast<int>(std::bit_width(turn - expert.last_turn)), kAgeClasses - 2);
  const float rate = std::max(expert.rate, rate_unit / 16);
  const int rate_class =
      std::clamp(static_cast<int>(std::lround(-2 * std::log2(rate))), 0, kRateClasses - 1);
  expert.kind = static_cast<uint8_t>(age * kRateClasses + rate_class);
  const Kind& kind = kinds_[expert.kind];
  expert.wait = static_cast<float>(kind.turns / std::max(kind.chosen, 1e-3) - 1);
}

int NextUsePolicy::ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) {
  return Smallest(guards, level, [this](const ResidentExpert& resident) {
    const float wait = experts_[static_cast<size_t>(resident.key)].wait;
    return std::tuple(
        -(static_cast<float>(DistanceTo(resident.layer)) + wait * static_cast<float>(layers_)),
        resident.last_use);
  });
}

}  // namespace mference
