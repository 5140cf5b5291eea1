#include "engine/generator.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/error.h"

namespace mference {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool Cancelled(const GenerationRequest& request) {
  return request.cancel != nullptr && request.cancel->load(std::memory_order_relaxed);
}

// Samples until something ends the reply; returns what.
StopReason DecodeLoop(Session& session, Sampler& sampler, const StopTokens& stops,
                      const GenerationRequest& request, std::span<const float> logits,
                      Clock::time_point start, GenerationResult& result) {
  TokenLogprobs logprobs;
  while (true) {
    std::span<const uint64_t> allowed;
    if (request.constraint != nullptr) {
      const int64_t produced = static_cast<int64_t>(result.tokens.size());
      const int64_t room = session.state().room() + 1;  // the last token is not appended
      allowed = request.constraint->Allowed(std::min(request.max_new_tokens - produced, room));
    }
    const int32_t id =
        sampler.Sample(logits, result.tokens, result.tokens.size(), request.sampling, allowed);
    if (id < 0) {
      Fail(
          ErrorCode::kInternal,
          "the model computed no finite logit at position {}; its weights are damaged or of a kind "
          "this build does not handle",
          session.tokens().size());
    }
    if (result.tokens.empty()) result.first_token_seconds = SecondsSince(start);
    result.tokens.push_back(id);
    if (const std::optional<StopReason> reason = stops.Find(id)) return *reason;
    if (request.on_logprobs) {
      sampler.Logprobs(logits, id, request.top_logprobs, &logprobs);
      request.on_logprobs(logprobs);
    }
    if (request.on_token && !request.on_token(id)) return StopReason::kStopString;
    if (request.constraint != nullptr) {
      request.constraint->Accept(id);
      if (request.constraint->complete()) return StopReason::kConstraintMet;
    }
    if (static_cast<int64_t>(result.tokens.size()) >= request.max_new_tokens) {
      return StopReason::kMaxTokens;
    }
    if (Cancelled(request)) return StopReason::kCancelled;
    if (session.state().room() <= 0) return StopReason::kContextFull;
    logits = session.Append(id);
  }
}

}  // namespace

std::optional<StopReason> StopTokens::Find(int32_t id) const {
  if (Contains(end_of_turn, id)) return StopReason::kEndOfTurn;
  if (Contains(tool_response, id)) return StopReason::kToolCalls;
  if (Contains(end_of_sequence, id)) return StopReason::kEos;
  return std::nullopt;
}

GenerationResult Generate(Session& session, Sampler& sampler, const StopTokens& stops,
                          const GenerationRequest& request) {
  request.sampling.Validate();
  const Clock::time_point start = Clock::now();
  GenerationResult result;
  result.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  result.tokens.reserve(static_cast<size_t>(std::min(request.max_new_tokens, session.context())));

  const PrefillResult prefill =
      session.Prefill(request.prompt, request.cancel, request.on_prefill_progress);
  result.reused_tokens = prefill.reused_tokens;
  result.prefill_seconds = SecondsSince(start);
  if (prefill.cancelled) {
    result.reason = StopReason::kCancelled;
    return result;
  }
  if (request.before_first_token) request.before_first_token();
  const Clock::time_point decode_start = Clock::now();
  result.reason = DecodeLoop(session, sampler, stops, request, prefill.logits, start, result);
  result.decode_seconds = SecondsSince(decode_start);
  return result;
}

}  // namespace mference
