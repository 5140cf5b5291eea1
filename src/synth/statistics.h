// What the tensors of a synthetic checkpoint hold, so that a random model behaves like a model.
//
// Random weights of the wrong size make a network that is dead (every token routes to the same
// experts, logits are flat) or blows up, and then neither caches nor kernels see what they would in
// real use. The rules here keep activations near unit size through all layers:
//
//  - a row of any matrix turns an input of unit RMS into a value of about unit RMS;
//  - each branch (attention, feed-forward) adds a fixed small share of the residual stream's size,
//    by its output norm where the family has one, by its output matrix where it has not;
//  - router and output logits spread by amounts seen in trained models;
//  - where the head is the embedding, the final norm has random signs: a residual stream that still
//    resembles the token it began with would predict that token for ever.
//
// Expert popularity (`experts_skew` Z > 0): embedding rows share a direction, so every hidden state
// does, and router rows lean along it such that expert of rank r is preferred by -Z ln r, which
// makes popularity fall off like r^-Z. Ranks are another permutation in every layer. Attention is
// then spread over many tokens, so that neighbours share context and with it experts. At Z = 0
// there is neither, and every token chooses anew among all experts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/arch_config.h"
#include "model/checkpoint_schema.h"
#include "synth/tensor_content.h"

namespace mference {

struct SynthOptions {
  // Families whose config.json can be written here: Gemma 4 and Qwen 3.6; kInvalidArgument for
  // others. The columns of every matrix must be multiples of 64.
  ArchConfig arch;
  uint64_t seed = 1;
  double experts_skew = 0;  // 0 to 4
};

class SynthStatistics {
 public:
  // Borrows `options`.
  explicit SynthStatistics(const SynthOptions& options);

  // `spec.storage` must be kAffine.
  AffineStatistics Matrix(const TensorSpec& spec) const;
  // Of one of a layer's stacked expert matrices: "gate", "up" or "down".
  AffineStatistics ExpertMatrix(int64_t layer, std::string_view matrix) const;
  std::vector<double> Vector(const TensorSpec& spec) const;

  // Bits of an affine tensor by the conventions of published 4-bit checkpoints: 8 for what decides
  // routing, 4 for everything else.
  static int BitsOf(std::string_view name);

 private:
  bool IsGemma() const { return options_.arch.family == Family::kGemma4; }
  bool skewed() const { return options_.experts_skew > 0; }
  double GainOf(std::string_view name) const;
  // RMS of the residual stream where layer `layer`'s router reads it, over that of the embedding.
  double Growth(int64_t layer) const;
  void LeanRouter(const TensorSpec& spec, AffineStatistics& statistics) const;

  const SynthOptions& options_;
  std::vector<float> direction_;  // [hidden / 64], of the hidden state
};

}  // namespace mference
