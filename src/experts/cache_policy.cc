#include "experts/cache_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

namespace mference {

// ---- Residents ------------------------------------------------------------------------------

ResidentPolicy::ResidentPolicy(int layers, int experts_per_layer, int slots)
    : layers_(layers),
      experts_per_layer_(experts_per_layer),
      residents_(static_cast<size_t>(slots)) {}

void ResidentPolicy::OnRequest(int layer, std::span<const int32_t> /*experts*/,
                               const RowChoices& /*choices*/) {
  current_layer_ = layer;
  ++clock_;
}

void ResidentPolicy::OnFill(int slot, int layer, int expert, bool demand) {
  residents_[static_cast<size_t>(slot)] = {
      .key = KeyOf(layer, expert), .layer = layer, .last_use = demand ? clock_ : 0};
}

// ---- Least frequently used ------------------------------------------------------------------

void LfuPolicy::OnRequest(int layer, std::span<const int32_t> experts, const RowChoices& choices) {
  ResidentPolicy::OnRequest(layer, experts, choices);
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

// The longest memory: beyond so many rows it forgets the oldest.
constexpr int32_t kMostRows = 1 << 16;
// Weights before anything is learnt: popularity is trusted first.
constexpr float kLongWeight = 0.8f;
constexpr float kEvenWeight = 0.02f;
// How far a turn moves the weights: far at first, never less than this, so that they follow a text
// that changes.
constexpr double kLeastLearningRate = 0.01;
// The part that goes to all weights alike, so that none becomes too small to grow again.
constexpr float kSpread = 0.0001f;
// What stands for a share of nothing: averages that fall for ever would become subnormal numbers,
// with which processors are slow.
constexpr float kHardlyAny = 1e-9f;
// Weights are learnt from steps of so few rows that each choice counts: what wider steps choose is
// remembered, but says nothing of how it follows from one row to the next.
constexpr int32_t kMostRowsToLearnFrom = 4;

}  // namespace

NextUsePolicy::NextUsePolicy(int layers, int experts_per_layer, int slots)
    : ResidentPolicy(layers, experts_per_layer, slots),
      experts_(static_cast<size_t>(layers) * static_cast<size_t>(experts_per_layer)),
      due_(static_cast<size_t>(slots), std::numeric_limits<double>::infinity()),
      rows_(static_cast<size_t>(layers)),
      chosen_(static_cast<size_t>(experts_per_layer)),
      even_weight_(kEvenWeight) {
  weights_.fill((1 - kLongWeight - kEvenWeight) / (kMemories - 1));
  weights_[0] = kLongWeight;
}

std::span<NextUsePolicy::Expert> NextUsePolicy::OfLayer(int layer) {
  return std::span(experts_).subspan(static_cast<size_t>(KeyOf(layer, 0)), chosen_.size());
}

void NextUsePolicy::OnRequest(int layer, std::span<const int32_t> experts,
                              const RowChoices& choices) {
  now_ += layer > current_layer_ ? layer - current_layer_ : layer - current_layer_ + layers_;
  ResidentPolicy::OnRequest(layer, experts, choices);
  SpreadChoices(experts, choices);
  if (choices.rows <= kMostRowsToLearnFrom && rows_[static_cast<size_t>(layer)] > 0) {
    LearnWeights(layer, experts);
  }
  Estimate(layer, choices.rows);
}

void NextUsePolicy::SpreadChoices(std::span<const int32_t> experts, const RowChoices& choices) {
  std::fill(chosen_.begin(), chosen_.end(), kHardlyAny);
  for (size_t i = 0; i < experts.size(); ++i) {
    chosen_[static_cast<size_t>(experts[i])] =
        choices.choosing.empty()
            ? 1.0f
            : static_cast<float>(choices.choosing[i]) / static_cast<float>(choices.rows);
  }
  even_ = std::accumulate(chosen_.begin(), chosen_.end(), 0.0f) /
          static_cast<float>(experts_per_layer_);
}

// Credits every memory with its part in the chances that the chosen experts were given.
void NextUsePolicy::LearnWeights(int layer, std::span<const int32_t> experts) {
  const std::span<const Expert> of_layer = OfLayer(layer);
  std::array<float, kMemories> credits{};
  float even_credit = 0;
  for (const int32_t id : experts) {
    const Expert& expert = of_layer[static_cast<size_t>(id)];
    const float even_part = even_weight_ * even_;
    std::array<float, kMemories> parts;
    for (size_t m = 0; m < kMemories; ++m) parts[m] = weights_[m] * expert.shares[m];
    const float credit =
        chosen_[static_cast<size_t>(id)] / std::accumulate(parts.begin(), parts.end(), even_part);
    for (size_t m = 0; m < kMemories; ++m) credits[m] += credit * parts[m];
    even_credit += credit * even_part;
  }
  ++lessons_;
  const auto rate = static_cast<float>(
      std::max(kLeastLearningRate, 1 / std::sqrt(static_cast<double>(lessons_ + 1))));
  const float all = std::accumulate(credits.begin(), credits.end(), even_credit);
  const auto learn = [rate, all](float& weight, float credit) {
    constexpr float kFloor = kSpread / (kMemories + 1);
    weight += rate * ((1 - kSpread) * credit / all + kFloor - weight);
  };
  for (size_t m = 0; m < kMemories; ++m) learn(weights_[m], credits[m]);
  learn(even_weight_, even_credit);
}

// Takes the request's rows into the memories, and expects the layer's experts anew.
void NextUsePolicy::Estimate(int layer, int32_t rows) {
  int32_t& total = rows_[static_cast<size_t>(layer)];
  total = std::min(total, kMostRows - std::min(rows, kMostRows)) + rows;
  // An average over the last rows starts from as many as have been, so that early ones count fully.
  const double equal = static_cast<double>(rows) / total;
  std::array<float, kMemories> steps{static_cast<float>(equal)};
  for (size_t m = 1; m < kMemories; ++m) {
    steps[m] = static_cast<float>(
        std::max(equal, 1 - std::exp2(-static_cast<double>(rows) / kHalfLives[m])));
  }
  const std::span<Expert> of_layer = OfLayer(layer);
  for (size_t e = 0; e < of_layer.size(); ++e) {
    Expert& expert = of_layer[e];
    std::array<float, kMemories> parts;
    for (size_t m = 0; m < kMemories; ++m) {
      expert.shares[m] += steps[m] * (chosen_[e] - expert.shares[m]);
      parts[m] = weights_[m] * expert.shares[m];
    }
    const float chance = std::accumulate(parts.begin(), parts.end(), even_weight_ * even_);
    expert.due = now_ + layers_ / static_cast<double>(chance);
    if (expert.slot >= 0) due_[static_cast<size_t>(expert.slot)] = expert.due;
  }
}

void NextUsePolicy::OnFill(int slot, int layer, int expert, bool demand) {
  ResidentPolicy::OnFill(slot, layer, expert, demand);
  Expert& filled = experts_[static_cast<size_t>(KeyOf(layer, expert))];
  filled.slot = slot;
  due_[static_cast<size_t>(slot)] = filled.due;
}

void NextUsePolicy::OnClear(int slot) {
  const int32_t key = residents_[static_cast<size_t>(slot)].key;
  if (key >= 0) experts_[static_cast<size_t>(key)].slot = -1;
  due_[static_cast<size_t>(slot)] = std::numeric_limits<double>::infinity();
  ResidentPolicy::OnClear(slot);
}

int NextUsePolicy::ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) {
  int victim = -1;
  double latest = -1;
  for (size_t slot = 0; slot < due_.size(); ++slot) {
    if (guards[slot] > level || due_[slot] < latest) continue;
    if (due_[slot] == latest &&
        residents_[slot].last_use >= residents_[static_cast<size_t>(victim)].last_use) {
      continue;
    }
    victim = static_cast<int>(slot);
    latest = due_[slot];
  }
  return victim;
}

}  // namespace mference
