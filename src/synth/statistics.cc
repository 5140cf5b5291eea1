#include "synth/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "synth/random.h"

namespace mference {
namespace {

// RMS of what a branch adds, over that of the embedding. Consecutive layers then see hidden states
// that differ by about a sixth.
constexpr double kBranchShare = 0.12;
constexpr double kLogitSpread = 2.5;
constexpr double kRouterSpread = 1.5;
// RMS of silu(x) and of gelu(x) * y for unit normal x and y, roughly.
constexpr double kActivationRms = 0.6;
// Of a mean over the values of some tens of tokens, gated by a sigmoid.
constexpr double kAttendedRms = 0.25;
// Of the sum of eight unit vectors under weights that sum to one.
constexpr double kMixtureRms = 0.42;
// Share of the shared direction in a hidden state (a cosine), when there is one.
constexpr double kDirectionShare = 0.3;
// A Gumbel distribution of scale t has a spread of 1.28 t; under Gumbel noise, preferences of
// -Z t ln r give popularities r^-Z exactly.
constexpr double kSpreadOfGumbel = 1.28;
// Attention scores: spread out evenly enough that neighbours see the same, or the opposite.
constexpr double kEvenScores = 0.7;
constexpr double kSharpScores = 3;

bool IsRouter(std::string_view name) {
  return name.ends_with(".router.proj.weight") || name.ends_with(".mlp.gate.weight");
}

// Of the attention scores between normalised heads.
double ScoreVariance(const ArchConfig& arch, const TensorSpec& spec) {
  return static_cast<double>(spec.shape.front()) * arch.attention_scale * arch.attention_scale;
}

}  // namespace

SynthStatistics::SynthStatistics(const SynthOptions& options) : options_(options) {
  const uint64_t stream = RandomStream(options.seed, "direction");
  const auto groups = static_cast<uint64_t>(options.arch.hidden_size) / kSynthGroup;
  for (uint64_t group = 0; group < groups; ++group) {
    direction_.push_back((RandomWord(stream, group) & 1) != 0 ? 1.0f : -1.0f);
  }
}

int SynthStatistics::BitsOf(std::string_view name) {
  return IsRouter(name) || name.ends_with(".shared_expert_gate.weight") ? 8 : 4;
}

double SynthStatistics::GainOf(std::string_view name) const {
  if (IsGemma()) return 1;  // every branch is normalised before it is added
  if (name.ends_with("lm_head.weight")) return kLogitSpread;
  if (name.ends_with(".in_proj_a.weight")) return 0.5;
  if (name.ends_with(".self_attn.o_proj.weight")) return kBranchShare / kAttendedRms;
  if (name.ends_with(".linear_attn.out_proj.weight")) return kBranchShare / kActivationRms;
  if (name.ends_with(".shared_expert.down_proj.weight")) {
    return kBranchShare / (kActivationRms * std::sqrt(2.0));  // its sigmoid gate halves it
  }
  return 1;
}

AffineStatistics SynthStatistics::Matrix(const TensorSpec& spec) const {
  const auto columns = static_cast<uint64_t>(spec.shape.back());
  AffineStatistics statistics{
      .stream = RandomStream(options_.seed, spec.name),
      .bits = BitsOf(spec.name),
      .columns = columns,
      .value_rms = GainOf(spec.name) / std::sqrt(static_cast<double>(columns)),
  };
  if (spec.group == TensorGroup::kEmbedding) {
    // The stream begins at unit RMS, or where the embedding is the head too, at what gives logits
    // their spread.
    const double rms =
        options_.arch.tie_word_embeddings
            ? kLogitSpread / std::sqrt(static_cast<double>(options_.arch.hidden_size))
            : 1.0;
    statistics.value_rms = rms;
    if (skewed()) {
      statistics.value_rms = rms * std::sqrt(1 - kDirectionShare * kDirectionShare);
      statistics.row_offsets = {static_cast<float>(rms * kDirectionShare)};
      statistics.direction = direction_;
    }
  } else if (IsRouter(spec.name)) {
    LeanRouter(spec, statistics);
  }
  return statistics;
}

double SynthStatistics::Growth(int64_t layer) const {
  const double branches = 2 * static_cast<double>(layer) + 1;
  return std::sqrt(1 + branches * kBranchShare * kBranchShare);
}

void SynthStatistics::LeanRouter(const TensorSpec& spec, AffineStatistics& statistics) const {
  const auto hidden = static_cast<double>(spec.shape.back());
  // Gemma divides the router's input by sqrt(hidden).
  const double gain = options_.arch.router_scaled ? std::sqrt(hidden) : 1.0;
  statistics.value_rms = gain * kRouterSpread / std::sqrt(hidden);
  if (!skewed()) return;

  const auto experts = static_cast<size_t>(spec.shape.front());
  const uint64_t stream = RandomStream(statistics.stream, "ranks");
  std::vector<size_t> ranks(experts);
  std::iota(ranks.begin(), ranks.end(), size_t{1});
  for (size_t i = experts - 1; i > 0; --i) {
    std::swap(ranks[i], ranks[RandomWord(stream, i) % (i + 1)]);
  }
  // A lean of x per column, along a direction that a unit input has `cosine` of, is a preference of
  // x * cosine * hidden.
  const double cosine = kDirectionShare / Growth(spec.layer);
  const double unit = options_.experts_skew * kRouterSpread / kSpreadOfGumbel;
  const double middle = std::log(static_cast<double>(experts)) - 1;  // of ln rank
  for (const size_t rank : ranks) {
    const double preference = -unit * (std::log(static_cast<double>(rank)) - middle);
    statistics.row_offsets.push_back(static_cast<float>(gain * preference / (cosine * hidden)));
  }
  statistics.direction = direction_;
}

AffineStatistics SynthStatistics::ExpertMatrix(int64_t layer, std::string_view matrix) const {
  const ArchConfig& arch = options_.arch;
  const bool down = matrix == "down";
  const int64_t columns = down ? arch.moe_intermediate_size : arch.hidden_size;
  const double gain = down && !IsGemma() ? kBranchShare / (kActivationRms * kMixtureRms) : 1.0;
  return {.stream = RandomStream(options_.seed, fmt::format("layers.{}.experts.{}", layer, matrix)),
          .bits = 4,
          .columns = static_cast<uint64_t>(columns),
          .value_rms = gain / std::sqrt(static_cast<double>(columns))};
}

std::vector<double> SynthStatistics::Vector(const TensorSpec& spec) const {
  const uint64_t stream = RandomStream(options_.seed, spec.name);
  const ArchConfig& arch = options_.arch;
  const std::string_view name = spec.name;
  const int64_t size =
      std::accumulate(spec.shape.begin(), spec.shape.end(), int64_t{1}, std::multiplies<>());
  std::vector<double> values(static_cast<size_t>(size));
  const auto fill = [&](auto&& value) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = value(i);
    return values;
  };
  const auto near = [&](double middle, double spread = 0.1) {
    return fill(
        [&](size_t i) { return middle * RandomBetween(stream, i, 1 - spread, 1 + spread); });
  };

  if (name.ends_with(".linear_attn.conv1d.weight")) {
    const double bound = std::sqrt(3.0 / static_cast<double>(arch.linear_conv_kernel_size));
    return fill([&](size_t i) { return RandomBetween(stream, i, -bound, bound); });
  }
  // Decay rates and time steps as such layers are initialised: rates of 1 to 16, steps of a
  // thousandth to a tenth, stored before softplus.
  if (name.ends_with(".A_log")) {
    return fill([&](size_t i) { return std::log(RandomBetween(stream, i, 1, 16)); });
  }
  if (name.ends_with(".dt_bias")) {
    return fill([&](size_t i) {
      const double step = std::exp(RandomBetween(stream, i, std::log(1e-3), std::log(1e-1)));
      return std::log(std::expm1(step));
    });
  }
  if (name.ends_with("_norm.weight")) {  // of queries and keys
    const double scores = skewed() ? kEvenScores : kSharpScores;
    return near(std::sqrt(scores / std::sqrt(ScoreVariance(arch, spec))));
  }
  if (name.ends_with(".layer_scalar")) return near(1, 1.0 / 128);
  if (arch.ffn_sandwich_norms && (name.ends_with(".post_attention_layernorm.weight") ||
                                  name.ends_with(".post_feedforward_layernorm.weight"))) {
    // The stream begins at kLogitSpread: the embedding is multiplied by sqrt(hidden).
    return near(kBranchShare * kLogitSpread);
  }
  if (spec.group == TensorGroup::kFinalNorm && arch.tie_word_embeddings) {
    const uint64_t signs = RandomStream(stream, "signs");
    near(1);
    for (size_t i = 0; i < values.size(); ++i) {
      if ((RandomWord(signs, i) & 1) != 0) values[i] = -values[i];
    }
    return values;
  }
  return near(1);
}

}  // namespace mference
