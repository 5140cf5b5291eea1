#include "engine/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace mference {
namespace {

uint64_t SplitMix64(uint64_t x) {
  uint64_t z = x + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint64_t PositionState(uint64_t seed, uint64_t index) {
  const uint64_t state = SplitMix64(seed + index);
  return state == 0 ? 0x9E3779B97F4A7C15u : state;
}

// xorshift64*.
uint64_t NextRandom(uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state * 2685821657736338717u;
}

void Require(bool allowed, const char* name, double value, const char* range) {
  if (!allowed) {
    Fail(ErrorCode::kInvalidArgument, "{} is {}, but must be {}", name, value, range);
  }
}

}  // namespace

void SamplingParams::Validate() const {
  Require(std::isfinite(temperature) && temperature >= 0, "temperature", temperature,
          "0 or a positive number");
  Require(top_k >= 0, "top-k", top_k, "0 (off) or a positive number");
  Require(top_p > 0 && top_p <= 1, "top-p", top_p, "above 0 and at most 1");
  Require(min_p >= 0 && min_p <= 1, "min-p", min_p, "between 0 and 1");
  Require(std::isfinite(repetition_penalty) && repetition_penalty > 0, "repetition penalty",
          repetition_penalty, "a positive number");
  Require(repeat_last_n >= 0, "repeat-last-n", repeat_last_n, "0 (off) or a positive number");
}

int32_t Argmax(std::span<const float> logits) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) continue;
    if (best < 0 || logits[i] > logits[static_cast<size_t>(best)]) best = static_cast<int32_t>(i);
  }
  return best;
}

double UniformDraw(uint64_t seed, uint64_t index) {
  uint64_t state = PositionState(seed, index);
  NextRandom(state);  // the first output is discarded
  return static_cast<double>(NextRandom(state) >> 40) * 0x1p-24;
}

Sampler::Sampler(int32_t candidates, float soft_cap)
    : soft_cap_(soft_cap), values_(candidates), order_(candidates), weights_(candidates) {}

int32_t Sampler::Sample(std::span<const float> logits, std::span<const int32_t> generated,
                        uint64_t index, const SamplingParams& params) {
  logits = logits.first(values_.size());
  const bool penalised = params.repetition_penalty != 1.0f;
  if (params.temperature == 0 && !penalised) return Argmax(logits);

  std::copy(logits.begin(), logits.end(), values_.begin());
  if (penalised) ApplyPenalty(generated, params);
  const int32_t best = Argmax(values_);
  if (best < 0 || params.temperature == 0) return best;

  const float peak = values_[static_cast<size_t>(best)];
  double sum = 0;
  for (float& value : values_) {
    value = std::isfinite(value) ? std::exp(value - peak) : 0.0f;
    sum += value;
  }
  for (float& value : values_) value = static_cast<float>(value / sum);
  const bool truncated = params.top_k > 0 || params.top_p < 1 || params.min_p > 0;
  return truncated ? SampleTruncated(index, params) : SampleAll(index, params);
}

// Once per distinct id among the last `repeat_last_n`: quadratic in that window, which is small.
void Sampler::ApplyPenalty(std::span<const int32_t> generated, const SamplingParams& params) {
  const size_t window = std::min(generated.size(), static_cast<size_t>(params.repeat_last_n));
  const auto recent = generated.last(window);
  for (size_t i = 0; i < recent.size(); ++i) {
    const int32_t id = recent[i];
    if (id < 0 || static_cast<size_t>(id) >= values_.size()) continue;
    if (std::find(recent.begin(), recent.begin() + static_cast<ptrdiff_t>(i), id) !=
        recent.begin() + static_cast<ptrdiff_t>(i)) {
      continue;
    }
    float& value = values_[static_cast<size_t>(id)];
    value = value > 0 ? value / params.repetition_penalty : value * params.repetition_penalty;
    // A capped value stays strictly inside its cap, so that it could still be uncapped.
    if (soft_cap_ > 0) value = std::clamp(value, -0.9999f * soft_cap_, 0.9999f * soft_cap_);
  }
}

int32_t Sampler::SampleTruncated(uint64_t index, const SamplingParams& params) {
  // Candidates in falling probability. Sorting 262,144 entries costs milliseconds, so take a prefix
  // that grows until it holds the mass of top-p (or top-k entries).
  const auto better = [this](int32_t a, int32_t b) {
    const float pa = values_[static_cast<size_t>(a)];
    const float pb = values_[static_cast<size_t>(b)];
    return pa != pb ? pa > pb : a < b;
  };
  const size_t limit =
      params.top_k > 0 ? std::min(order_.size(), static_cast<size_t>(params.top_k)) : order_.size();
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<int32_t>(i);
  size_t sorted = 0;
  size_t kept = 0;
  double mass = 0;
  while (kept < limit) {
    if (kept == sorted) {
      const size_t next = std::min(order_.size(), sorted == 0 ? size_t{256} : sorted * 4);
      const auto begin = order_.begin();
      std::partial_sort(begin + static_cast<ptrdiff_t>(sorted),
                        begin + static_cast<ptrdiff_t>(next), order_.end(), better);
      sorted = next;
    }
    const float probability = values_[static_cast<size_t>(order_[kept])];
    const float best = values_[static_cast<size_t>(order_[0])];
    if (kept > 0 && (probability == 0 || probability < params.min_p * best)) break;
    mass += probability;
    ++kept;
    if (params.top_p < 1 && mass >= static_cast<double>(params.top_p)) break;
  }

  // w = q^(1/T), as a ratio to the best so that small temperatures do not underflow.
  const double best = values_[static_cast<size_t>(order_[0])];
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    weights_[i] = std::pow(static_cast<double>(values_[static_cast<size_t>(order_[i])]) / best,
                           1.0 / static_cast<double>(params.temperature));
    sum += weights_[i];
  }
  const double target = UniformDraw(params.seed, index) * sum;
  double running = 0;
  for (size_t i = 0; i < kept; ++i) {
    running += weights_[i];
    if (target <= running && weights_[i] > 0) return order_[i];
  }
  return order_[0];
}

// Gumbel-max over everything: argmax of ln(q) / T + g.
int32_t Sampler::SampleAll(uint64_t index, const SamplingParams& params) const {
  const uint64_t state = PositionState(params.seed, index);
  int32_t best = -1;
  double best_score = 0;
  for (size_t id = 0; id < values_.size(); ++id) {
    if (values_[id] <= 0) continue;
    const uint64_t hash = SplitMix64(state ^ (index * 0xD2B74407B1CE6E93u) ^ id);
    const double u = (static_cast<double>(hash >> 40) + 0.5) * 0x1p-24;
    const double score =
        std::log(static_cast<double>(values_[id])) / static_cast<double>(params.temperature) -
        std::log(-std::log(u));
    if (best < 0 || score > best_score) {
      best = static_cast<int32_t>(id);
      best_score = score;
    }
  }
  return best;
}

}  // namespace mference
