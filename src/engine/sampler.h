// The sampler: from the logits of one position to one token.
//
// Order of steps (specification D.2): repetition penalty on the soft-capped value, softmax over the
// whole vocabulary without temperature, top-p, top-k, min-p, then temperature on the survivors. So
// raising the temperature never adds candidates. Randomness is a function of (seed, index) alone:
// a resumed reply draws as an uninterrupted one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mference {

struct SamplingParams {
  float temperature = 0.2f;         // 0: greedy
  int32_t top_k = 64;               // 0: off
  float top_p = 0.95f;              // 1: off
  float min_p = 0.0f;               // 0: off
  float repetition_penalty = 1.0f;  // 1: off
  int32_t repeat_last_n = 128;      // generated tokens the penalty looks back at; 0: none
  uint64_t seed = 0;

  // Throws kInvalidArgument naming the parameter, its value and the allowed range.
  void Validate() const;
};

// Buffers are claimed at construction; `Sample` allocates nothing. Not thread-safe.
class Sampler {
 public:
  // Ids from `candidates` on are never drawn, nor counted in the softmax: a model may compute more
  // logits than there are tokens, of rows that pad its vocabulary. `soft_cap` is the cap that is
  // already applied to the logits given to `Sample` (0: none). The penalty is defined on capped
  // values.
  Sampler(int32_t candidates, float soft_cap);

  // Draws the token number `index` (0 for the first of a reply) from `logits`, at least
  // `candidates` of them. `generated` are the reply's earlier tokens. Ties go to the lower id; NaN
  // counts as minus infinity. Returns -1 if no logit is finite.
  int32_t Sample(std::span<const float> logits, std::span<const int32_t> generated, uint64_t index,
                 const SamplingParams& params);

 private:
  void ApplyPenalty(std::span<const int32_t> generated, const SamplingParams& params);
  int32_t SampleAll(uint64_t index, const SamplingParams& params) const;
  int32_t SampleTruncated(uint64_t index, const SamplingParams& params);

  const float soft_cap_;
  std::vector<float> values_;    // [candidates]: logits, then probabilities
  std::vector<int32_t> order_;   // [candidates]: ids
  std::vector<double> weights_;  // tempered weights of the survivors
};

// The id of the largest finite value, ties to the lower id; -1 if none is finite.
int32_t Argmax(std::span<const float> logits);

// Uniform in [0, 1) for token `index` of a reply, 24 bits (specification D.3).
double UniformDraw(uint64_t seed, uint64_t index);

}  // namespace mference
