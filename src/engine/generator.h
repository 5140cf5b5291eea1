// The generation loop: prefill a prompt, then sample, show and append, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "constrain/token_constraint.h"
#include "engine/sampler.h"
#include "engine/session.h"

namespace mference {

// Which tokens end a reply, and what that means.
struct StopTokens {
  std::vector<int32_t> end_of_sequence;
  std::vector<int32_t> end_of_turn;
  std::vector<int32_t> tool_response;  // Gemma: the model waits for its tools

  // nullopt: an ordinary token.
  std::optional<StopReason> Find(int32_t id) const;
};

struct GenerationRequest {
  std::span<const int32_t> prompt;
  SamplingParams sampling;
  int64_t max_new_tokens = 1024;
  const CancelFlag* cancel = nullptr;
  // Restricts every token; must outlive the call and be new, or where a reply can begin.
  TokenConstraint* constraint = nullptr;
  // If set, receives the log-probabilities of every token that `on_token` is about to receive, with
  // `top_logprobs` (at most TokenLogprobs::kMaxTop) alternatives.
  std::function<void(const TokenLogprobs&)> on_logprobs;
  int32_t top_logprobs = 0;
  // Receives every sampled token that does not stop the reply. Returns false to stop here, because
  // a stop string has been completed.
  std::function<bool(int32_t id)> on_token;
  std::function<void(int64_t done, int64_t total)> on_prefill_progress;
  // Called once between prefill and the first sampled token; may throw to prevent it.
  std::function<void()> before_first_token;
};

struct GenerationResult {
  StopReason reason = StopReason::kMaxTokens;
  std::vector<int32_t> tokens;  // sampled, the stopping one included
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  double first_token_seconds = 0;  // from the call to the first sampled token
};

// Runs one generation. The last sampled token is not in the session's state afterwards: the next
// prompt brings it. Throws what Session throws, and kInternal when the logits hold nothing finite.
// A reply whose constraint is complete ends there, with kConstraintMet and no end token.
GenerationResult Generate(Session& session, Sampler& sampler, const StopTokens& stops,
                          const GenerationRequest& request);

}  // namespace mference
