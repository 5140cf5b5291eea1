#include "engine/session.h"

#include <algorithm>

#include "base/error.h"

namespace mference {

const char* StopReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kEos:
      return "eos";
    case StopReason::kEndOfTurn:
      return "endOfTurn";
    case StopReason::kToolCalls:
      return "toolCalls";
    case StopReason::kStopString:
      return "stopString";
    case StopReason::kConstraintMet:
      return "constraintMet";
    case StopReason::kMaxTokens:
      return "maxTokens";
    case StopReason::kContextFull:
      return "contextFull";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

Session::Session(Model& model, SequenceState state, int32_t chunk_rows)
    : model_(model), state_(std::move(state)), chunk_rows_(chunk_rows) {
  tokens_.reserve(static_cast<size_t>(state_.context()));
}

PrefillResult Session::Prefill(std::span<const int32_t> prompt, const CancelFlag* cancel,
                               const std::function<void(int64_t, int64_t)>& progress) {
  if (prompt.empty()) Fail(ErrorCode::kInvalidArgument, "the prompt has no tokens");
  const auto total = static_cast<int64_t>(prompt.size());
  if (total >= context()) {
    Fail(ErrorCode::kContextFull,
         "the prompt has {} tokens, which leaves no room to generate in a context of {}; raise "
         "--context or shorten the prompt",
         total, context());
  }
  for (const int32_t id : prompt) {
    if (id < 0 || id >= model_.vocab_size()) {
      Fail(ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary of {}", id,
           model_.vocab_size());
    }
  }
  PrefillResult result;
  result.reused_tokens = KeepCommonPrefix(prompt);
  int64_t done = result.reused_tokens;
  int64_t last_rows = 0;
  while (done < total) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      result.cancelled = true;
      return result;
    }
    last_rows = std::min<int64_t>(chunk_rows_, total - done);
    Step(prompt.subspan(static_cast<size_t>(done), static_cast<size_t>(last_rows)));
    done += last_rows;
    result.computed_tokens += last_rows;
    if (progress) progress(done, total);
  }
  result.logits = model_.Logits(static_cast<int32_t>(last_rows) - 1, 1);
  return result;
}

std::span<const float> Session::Append(int32_t token) {
  Step(std::span(&token, 1));
  return model_.Logits(0, 1);
}

void Session::Reset() {
  state_.Reset();
  tokens_.clear();
}

int64_t Session::KeepCommonPrefix(std::span<const int32_t> prompt) {
  if (!state_.usable()) Reset();
  const size_t comparable = std::min(tokens_.size(), prompt.size() - 1);
  const auto mismatch = std::mismatch(
      tokens_.begin(), tokens_.begin() + static_cast<ptrdiff_t>(comparable), prompt.begin());
  auto common = static_cast<int64_t>(mismatch.first - tokens_.begin());
  if (!state_.CanRewindTo(common)) common = 0;
  state_.RewindTo(common);
  tokens_.resize(static_cast<size_t>(common));
  return common;
}

void Session::Step(std::span<const int32_t> tokens) {
  model_.Forward(tokens, state_);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

}  // namespace mference
