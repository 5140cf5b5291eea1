#include "backend/cpu/likely_experts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "backend/cpu/cpu_backend.h"

namespace mference::cpu {
namespace {

// Without a lead 12 % of the guesses are read for nothing, with this one 5 %, at the same speed;
// three times as much leaves 1 % but four tenths of the guesses unmade, and decode is 5 % slower.
constexpr float kLeastLead = 0.1f;

float StandardDeviation(std::span<const float> values) {
  const auto count = static_cast<float>(values.size());
  const float mean = std::accumulate(values.begin(), values.end(), 0.0f) / count;
  float sum = 0;
  for (const float value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / count);
}

}  // namespace

int32_t LikelyExperts(std::span<const float> logits, int32_t top_k, std::span<int32_t> ids) {
  const auto experts = static_cast<int32_t>(logits.size());
  std::array<int32_t, CpuBackend::kMaxTopK + 1> ranked;
  std::array<float, CpuBackend::kMaxTopK + 1> values;
  TopK(logits.data(), experts, std::min(top_k + 1, experts), ranked.data(), values.data());
  int32_t likely = std::min(top_k, experts);
  if (experts > top_k) {
    const float least = values[static_cast<size_t>(top_k)] + kLeastLead * StandardDeviation(logits);
    while (likely > 0 && !(values[static_cast<size_t>(likely - 1)] > least)) --likely;
  }
  std::copy_n(ranked.begin(), likely, ids.begin());
  return likely;
}

}  // namespace mference::cpu
