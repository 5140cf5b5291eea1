// The sampler: from the logits of one position to one token.
//
// Order of steps (specification D.2): penalties and biases on the soft-capped value, a constraint's
// mask, softmax over what is left without temperature, top-p, top-k, min-p, then temperature on the
// survivors. So raising the temperature never adds candidates. Randomness is a function of
// (seed, index) alone: a resumed reply draws as an uninterrupted one.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace mference {

// Added to the soft-capped logit of a token. -100 bans it (it comes only where nothing else is
// allowed), 100 forces it (of several, the model chooses).
struct LogitBias {
  int32_t id = 0;
  float bias = 0;
};

struct SamplingParams {
  float temperature = 0.2f;         // 0: greedy
  int32_t top_k = 64;               // 0: off
  float top_p = 0.95f;              // 1: off
  float min_p = 0.0f;               // 0: off
  float repetition_penalty = 1.0f;  // 1: off
  int32_t repeat_last_n = 128;      // generated tokens the penalty looks back at; 0: none
  // Subtracted from the soft-capped logit of every token generated before: once, and once per
  // occurrence. The whole reply counts. 0: off.
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<LogitBias> logit_bias = {};  // ids the model has no token for are ignored
  uint64_t seed = 0;

  // Throws kInvalidArgument naming the parameter, its value and the allowed range.
  void Validate() const;
};

// The model's own view of one token: its distribution after the soft cap, before penalties, biases,
// masks and truncation. Natural logarithms.
struct TokenLogprobs {
  static constexpr int32_t kMaxTop = 20;
  struct Entry {
    int32_t id = -1;
    float logprob = 0;
  };
  Entry chosen;
  std::array<Entry, kMaxTop> top;  // the first `top_count`, falling, ties by id
  int32_t top_count = 0;
};

// Buffers are claimed at construction; no method allocates. Not thread-safe.
class Sampler {
 public:
  static constexpr uint64_t kBytesPerCandidate =
      sizeof(float) + sizeof(int32_t) + sizeof(double) + sizeof(uint32_t);

  // Ids from `candidates` on are never drawn, nor counted in the softmax: a model may compute more
  // logits than there are tokens, of rows that pad its vocabulary. `soft_cap` is the cap that is
  // already applied to the logits given to `Sample` (0: none). The penalty is defined on capped
  // values.
  Sampler(int32_t candidates, float soft_cap);

  // Draws the token number `index` (0 for the first of a reply) from `logits`, at least
  // `candidates` of them. `generated` are the reply's earlier tokens. Unless `allowed` is empty,
  // only ids whose bit is set (TokenConstraint::Allowed) take part. Ties go to the lower id; NaN
  // counts as minus infinity. Returns -1 if no logit that takes part is finite.
  int32_t Sample(std::span<const float> logits, std::span<const int32_t> generated, uint64_t index,
                 const SamplingParams& params, std::span<const uint64_t> allowed = {});

  // Describes the token `chosen` of `logits` and the `top_count` (at most kMaxTop) likeliest ones.
  void Logprobs(std::span<const float> logits, int32_t chosen, int32_t top_count,
                TokenLogprobs* out) const;

 private:
  // The three adjustments, in this order.
  void ApplyRepetitionPenalty(std::span<const int32_t> generated, const SamplingParams& params);
  void ApplyCountPenalties(std::span<const int32_t> generated, const SamplingParams& params);
  void ApplyBias(std::span<const LogitBias> biases);
  void ApplyMask(std::span<const uint64_t> allowed);
  // True for the first call with `id` since `BeginSeen`.
  void BeginSeen();
  bool FirstSeen(int32_t id);
  int32_t SampleAll(std::span<const float> values, uint64_t index,
                    const SamplingParams& params) const;
  void SelectBest(std::span<const float> values, size_t count);
  int32_t SampleTruncated(std::span<const float> values, uint64_t index,
                          const SamplingParams& params);

  const float soft_cap_;
  std::vector<float> values_;    // [candidates]: adjusted logits
  float peak_ = 0;               // the largest of them
  std::vector<int32_t> order_;   // [candidates]: ids
  size_t best_ = 0;              // how many of these SelectBest has put in order
  std::vector<double> weights_;  // tempered weights of the survivors
  std::vector<uint32_t> seen_;   // [candidates]: the round that saw the id last
  uint32_t seen_round_ = 0;
};

// The id of the largest finite value, ties to the lower id; -1 if none is finite.
int32_t Argmax(std::span<const float> logits);
// The same among the ids whose bit is set in `allowed`.
int32_t Argmax(std::span<const float> logits, std::span<const uint64_t> allowed);

// Uniform in [0, 1) for token `index` of a reply, 24 bits (specification D.3).
double UniformDraw(uint64_t seed, uint64_t index);

}  // namespace mference
