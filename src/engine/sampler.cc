#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace mference {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// What a bias of 100 weighs: far above any difference of logits, and small enough that differences
// among several forced tokens survive in FP32 (to 0.001). A ban stays finite, so that a reply whose
// allowed tokens are all banned still has a best one.
constexpr float kForcedBias = 1e4f;
constexpr float kMaxBias = 100.0f;

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
  Require(presence_penalty >= -2 && presence_penalty <= 2, "presence penalty", presence_penalty,
          "between -2 and 2");
  Require(frequency_penalty >= -2 && frequency_penalty <= 2, "frequency penalty", frequency_penalty,
          "between -2 and 2");
  for (const LogitBias& entry : logit_bias) {
    Require(entry.id >= 0, "a token id of the logit bias", entry.id, "0 or positive");
    Require(entry.bias >= -kMaxBias && entry.bias <= kMaxBias, "a logit bias", entry.bias,
            "between -100 and 100");
  }
}

int32_t Argmax(std::span<const float> logits) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) continue;
    if (best < 0 || logits[i] > logits[static_cast<size_t>(best)]) best = static_cast<int32_t>(i);
  }
  return best;
}

int32_t Argmax(std::span<const float> logits, std::span<const uint64_t> allowed) {
  int32_t best = -1;
  for (size_t w = 0; w < allowed.size(); ++w) {
    for (uint64_t word = allowed[w]; word != 0; word &= word - 1) {
      const size_t id = w * 64 + static_cast<size_t>(std::countr_zero(word));
      if (id >= logits.size()) return best;
      if (!std::isfinite(logits[id])) continue;
      if (best < 0 || logits[id] > logits[static_cast<size_t>(best)]) {
        best = static_cast<int32_t>(id);
      }
    }
  }
  return best;
}

double UniformDraw(uint64_t seed, uint64_t index) {
  uint64_t state = PositionState(seed, index);
  NextRandom(state);  // the first output is discarded
  return static_cast<double>(NextRandom(state) >> 40) * 0x1p-24;
}

Sampler::Sampler(int32_t candidates, float soft_cap)
    : soft_cap_(soft_cap),
      values_(candidates),
      order_(candidates),
      weights_(candidates),
      seen_(candidates) {}

int32_t Sampler::Sample(std::span<const float> logits, std::span<const int32_t> generated,
                        uint64_t index, const SamplingParams& params,
                        std::span<const uint64_t> allowed) {
  logits = logits.first(values_.size());
  const bool repetition = params.repetition_penalty != 1.0f;
  const bool counts = params.presence_penalty != 0 || params.frequency_penalty != 0;
  if (params.temperature == 0 && !repetition && !counts && params.logit_bias.empty()) {
    return allowed.empty() ? Argmax(logits) : Argmax(logits, allowed);
  }

  std::copy(logits.begin(), logits.end(), values_.begin());
  if (repetition) ApplyRepetitionPenalty(generated, params);
  if (counts) ApplyCountPenalties(generated, params);
  ApplyBias(params.logit_bias);
  if (!allowed.empty()) ApplyMask(allowed);
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

void Sampler::BeginSeen() {
  if (++seen_round_ != 0) return;
  std::fill(seen_.begin(), seen_.end(), 0);  // the rounds have wrapped
  seen_round_ = 1;
}

bool Sampler::FirstSeen(int32_t id) {
  uint32_t& round = seen_[static_cast<size_t>(id)];
  if (round == seen_round_) return false;
  round = seen_round_;
  return true;
}

// Once per distinct id among the last `repeat_last_n`.
void Sampler::ApplyRepetitionPenalty(std::span<const int32_t> generated,
                                     const SamplingParams& params) {
  BeginSeen();
  const size_t window = std::min(generated.size(), static_cast<size_t>(params.repeat_last_n));
  for (const int32_t id : generated.last(window)) {
    if (id < 0 || static_cast<size_t>(id) >= values_.size() || !FirstSeen(id)) continue;
    float& value = values_[static_cast<size_t>(id)];
    value = value > 0 ? value / params.repetition_penalty : value * params.repetition_penalty;
    // A capped value stays strictly inside its cap, so that it could still be uncapped.
    if (soft_cap_ > 0) value = std::clamp(value, -0.9999f * soft_cap_, 0.9999f * soft_cap_);
  }
}

void Sampler::ApplyCountPenalties(std::span<const int32_t> generated,
                                  const SamplingParams& params) {
  BeginSeen();
  for (const int32_t id : generated) {
    if (id < 0 || static_cast<size_t>(id) >= values_.size()) continue;
    float& value = values_[static_cast<size_t>(id)];
    value -= params.frequency_penalty;
    if (FirstSeen(id)) value -= params.presence_penalty;
  }
}

void Sampler::ApplyBias(std::span<const LogitBias> biases) {
  for (const LogitBias& entry : biases) {
    if (entry.id < 0 || static_cast<size_t>(entry.id) >= values_.size()) continue;
    const bool absolute = std::abs(entry.bias) >= kMaxBias;
    values_[static_cast<size_t>(entry.id)] +=
        absolute ? std::copysign(kForcedBias, entry.bias) : entry.bias;
  }
}

void Sampler::ApplyMask(std::span<const uint64_t> allowed) {
  for (size_t begin = 0; begin < values_.size(); begin += 64) {
    const size_t word = begin / 64;
    const uint64_t bits = word < allowed.size() ? allowed[word] : 0;
    if (bits == ~uint64_t{0}) continue;
    const size_t count = std::min<size_t>(64, values_.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      if ((bits >> i & 1) == 0) values_[begin + i] = kMinusInfinity;
    }
  }
}

void Sampler::Logprobs(std::span<const float> logits, int32_t chosen, int32_t top_count,
                       TokenLogprobs* out) const {
  logits = logits.first(values_.size());
  const int32_t best = Argmax(logits);
  Check(best >= 0 && chosen >= 0 && static_cast<size_t>(chosen) < logits.size(),
        "log-probabilities of a token that was drawn");
  const float peak = logits[static_cast<size_t>(best)];
  double sum = 0;
  for (const float value : logits) {
    if (std::isfinite(value)) sum += std::exp(value - peak);
  }
  const auto logprob = [&](float value) {
    return static_cast<float>(static_cast<double>(value) - static_cast<double>(peak) -
                              std::log(sum));
  };
  out->chosen = {.id = chosen, .logprob = logprob(logits[static_cast<size_t>(chosen)])};

  // Sorted insertion of logits: few ids pass the threshold of the last kept one.
  const int32_t limit = std::clamp(top_count, 0, TokenLogprobs::kMaxTop);
  int32_t kept = 0;
  for (size_t id = 0; id < logits.size() && limit > 0; ++id) {
    const float value = logits[id];
    if (!std::isfinite(value)) continue;
    if (kept == limit && value <= out->top[static_cast<size_t>(kept - 1)].logprob) continue;
    if (kept < limit) ++kept;
    auto at = static_cast<size_t>(kept - 1);
    for (; at > 0 && out->top[at - 1].logprob < value; --at) out->top[at] = out->top[at - 1];
    out->top[at] = {.id = static_cast<int32_t>(id), .logprob = value};
  }
  out->top_count = kept;
  for (int32_t i = 0; i < kept; ++i) {
    float& value = out->top[static_cast<size_t>(i)].logprob;
    value = logprob(value);
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
