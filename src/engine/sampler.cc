#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
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

// Four values at a time in whatever vector registers there are.
using Four = float __attribute__((vector_size(16)));
using FourWords = int32_t __attribute__((vector_size(16)));

// Values that are compared with a threshold at once.
constexpr size_t kCompared = 16;

// Whether one of kCompared values exceeds the threshold; false for NaN.
bool AnyAbove(const float* values, float threshold) {
  FourWords above = {};
  for (size_t i = 0; i < kCompared; i += 4) {
    Four four;
    std::memcpy(&four, values + i, sizeof four);
    above |= four > threshold;
  }
  uint64_t halves[2];
  std::memcpy(halves, &above, sizeof above);
  return (halves[0] | halves[1]) != 0;
}

// The first index from `at` on whose value exceeds the threshold, or the number of values. For
// scans in which few do.
size_t NextAbove(std::span<const float> values, size_t at, float threshold) {
  while (at + kCompared <= values.size() && !AnyAbove(values.data() + at, threshold)) {
    at += kCompared;
  }
  while (at < values.size() && !(values[at] > threshold)) ++at;
  return at;
}

// e^x for x in [-87, 0], 0 elsewhere and for NaN.
Four ExpNonPositive(Four x) {
  // e^x = 2^n e^r with |r| <= ln(2) / 2, and e^r by its Taylor series up to r^7 / 7!: the next term
  // is below 6e-9. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  constexpr float kRounder = 12582912.0f;
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693145752f;  // 16 bits: its product with n is exact
  constexpr float kLn2Low = 1.42860677e-6f;
  const FourWords in_range = (x >= -87.0f) & (x <= 0.0f);
  x = reinterpret_cast<Four>(reinterpret_cast<FourWords>(x) & in_range);
  const Four shifted = x * kLog2E + kRounder;
  const Four n = shifted - kRounder;
  const Four r = (x - n * kLn2High) - n * kLn2Low;
  Four series = r * (1.0f / 5040) + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const FourWords exponent = reinterpret_cast<FourWords>(shifted) << 23;
  const FourWords bits = reinterpret_cast<FourWords>(series) + exponent;
  return reinterpret_cast<Four>(bits & in_range);
}

// The sum of e^(value - peak) over all that are finite; none exceeds `peak`.
double SumOfExp(std::span<const float> values, float peak) {
  double sum = 0;
  size_t at = 0;
  // Short runs in FP32, added up in FP64.
  constexpr size_t kRun = 256;
  for (; at + kRun <= values.size(); at += kRun) {
    Four run = {};
    for (size_t i = 0; i < kRun; i += 4) {
      Four four;
      std::memcpy(&four, values.data() + at + i, sizeof four);
      run += ExpNonPositive(four - peak);
    }
    sum += static_cast<double>((run[0] + run[1]) + (run[2] + run[3]));
  }
  for (; at < values.size(); ++at) {
    sum += static_cast<double>(ExpNonPositive(Four{values[at] - peak})[0]);
  }
  return sum;
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
  float largest = kMinusInfinity;
  for (size_t i = NextAbove(logits, 0, largest); i < logits.size();
       i = NextAbove(logits, i + 1, largest)) {
    if (logits[i] == -kMinusInfinity) continue;
    largest = logits[i];
    best = static_cast<int32_t>(i);
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

  std::span<const float> values = logits;
  if (repetition || counts || !params.logit_bias.empty() || !allowed.empty()) {
    std::copy(logits.begin(), logits.end(), values_.begin());
    values = values_;
  }
  if (repetition) ApplyRepetitionPenalty(generated, params);
  if (counts) ApplyCountPenalties(generated, params);
  ApplyBias(params.logit_bias);
  if (!allowed.empty()) ApplyMask(allowed);
  const int32_t best = Argmax(values);
  if (best < 0 || params.temperature == 0) return best;

  peak_ = values[static_cast<size_t>(best)];
  const bool truncated = params.top_k > 0 || params.top_p < 1 || params.min_p > 0;
  return truncated ? SampleTruncated(values, index, params) : SampleAll(values, index, params);
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
  const double sum = SumOfExp(logits, peak);
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

// The ids of the `count` largest values come first in order_, in falling order, ties to the lower
// id. One pass, in which nearly every value is only compared with the smallest one kept so far.
void Sampler::SelectBest(std::span<const float> values, size_t count) {
  const auto better = [values](int32_t a, int32_t b) {
    const float va = values[static_cast<size_t>(a)];
    const float vb = values[static_cast<size_t>(b)];
    return va != vb ? va > vb : a < b;
  };
  // When so many have been collected, all but the best `count` are dropped.
  const size_t room = std::min(order_.size(), 2 * count + 256);
  float threshold = kMinusInfinity;
  size_t kept = 0;
  const auto begin = order_.begin();
  const auto end_of = [&](size_t n) { return begin + static_cast<ptrdiff_t>(n); };
  for (size_t id = NextAbove(values, 0, threshold); id < values.size();
       id = NextAbove(values, id + 1, threshold)) {
    if (values[id] == -kMinusInfinity) continue;
    order_[kept++] = static_cast<int32_t>(id);
    if (kept < room || kept <= count) continue;
    // Later ids that equal the last one kept are worse than it.
    std::nth_element(begin, end_of(count - 1), end_of(kept), better);
    threshold = values[static_cast<size_t>(order_[count - 1])];
    kept = count;
  }
  best_ = std::min(kept, count);
  std::partial_sort(begin, end_of(best_), end_of(kept), better);
}

int32_t Sampler::SampleTruncated(std::span<const float> values, uint64_t index,
                                 const SamplingParams& params) {
  // Relative to the largest; those of all values add up to the mass that top-p is a share of.
  const auto relative = [this, values](size_t place) {
    return std::exp(values[static_cast<size_t>(order_[place])] - peak_);
  };
  const size_t limit =
      params.top_k > 0 ? std::min(order_.size(), static_cast<size_t>(params.top_k)) : order_.size();
  const double enough = params.top_p < 1
                            ? static_cast<double>(params.top_p) * SumOfExp(values, peak_)
                            : std::numeric_limits<double>::infinity();
  // Candidates in falling probability. Sorting all takes milliseconds, so take a part that grows
  // until it holds the mass of top-p.
  size_t kept = 0;
  double mass = 0;
  bool done = false;
  for (size_t selected = 0; !done && selected < limit;) {
    selected = std::min(limit, selected == 0 ? size_t{256} : selected * 4);
    SelectBest(values, selected);
    while (!done && kept < best_) {
      const float weight = relative(kept);
      done = kept > 0 && (weight == 0 || weight < params.min_p);
      if (done) break;
      mass += static_cast<double>(weight);
      ++kept;
      done = mass >= enough;
    }
    done = done || best_ < selected;
  }

  // w = q^(1/T), as a ratio to the best so that small temperatures do not underflow.
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    const double distance =
        static_cast<double>(values[static_cast<size_t>(order_[i])]) - static_cast<double>(peak_);
    weights_[i] = std::exp(distance / static_cast<double>(params.temperature));
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

// Gumbel-max over everything: argmax of ln(q) / T + g, where ln(q) is a logit but for a constant.
int32_t Sampler::SampleAll(std::span<const float> values, uint64_t index,
                           const SamplingParams& params) const {
  const uint64_t state = PositionState(params.seed, index);
  // The largest g: -ln(-ln(1 - 2^-25)) = 25 ln 2 = 17.33.
  constexpr double kLargestNoise = 17.4;
  const auto peak = static_cast<double>(peak_);
  const auto temperature = static_cast<double>(params.temperature);
  int32_t best = -1;
  double best_score = 0;
  for (size_t id = 0; id < values.size(); ++id) {
    if (!std::isfinite(values[id])) continue;
    const double share = (static_cast<double>(values[id]) - peak) / temperature;
    if (best >= 0 && share + kLargestNoise < best_score) continue;
    const uint64_t hash = SplitMix64(state ^ (index * 0xD2B74407B1CE6E93u) ^ id);
    const double u = (static_cast<double>(hash >> 40) + 0.5) * 0x1p-24;
    const double score = share - std::log(-std::log(u));
    if (best < 0 || score > best_score) {
      best = static_cast<int32_t>(id);
      best_score = score;
    }
  }
  return best;
}

}  // namespace mference
