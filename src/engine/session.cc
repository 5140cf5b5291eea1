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
  result.reused_tokens = Resume(prompt);
  int64_t done = result.reused_tokens;
  int64_t last_rows = 0;
  while (done < total) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      result.cancelled = true;
      return result;
    }
    int64_t end = std::min<int64_t>(done + chunk_rows_, total);
    if (cache_ != nullptr) end = cache_->StepEnd(prompt, done, end);
    last_rows = end - done;
    const bool breakable = done - PositionAfterBreak(last_rows) <= last_rows;
    if (!Step(prompt.subspan(static_cast<size_t>(done), static_cast<size_t>(last_rows)),
              breakable ? cancel : nullptr)) {
      RecoverFromBreak(last_rows);
      result.cancelled = true;
      return result;
    }
    done = end;
    result.computed_tokens += last_rows;
    if (cache_ != nullptr) cache_->AfterStep(prompt, state_);
    if (progress) progress(done, total);
  }
  result.logits = model_.Logits(static_cast<int32_t>(last_rows) - 1, 1);
  if (verifier_ != nullptr && result.reused_tokens > 0) {
    logits_.assign(result.logits.begin(), result.logits.end());
    verifier_->Check(prompt, result.reused_tokens, logits_);
    result.logits = logits_;
  }
  return result;
}

std::span<const float> Session::Append(int32_t token) {
  Step(std::span(&token, 1), nullptr);
  return model_.Logits(0, 1);
}

void Session::Reset() {
  state_.Reset();
  tokens_.clear();
  if (cache_ != nullptr) cache_->ForgetLive();
}

int64_t Session::Resume(std::span<const int32_t> prompt) {
  if (cache_ != nullptr) return cache_->Resume(prompt, state_, tokens_).tokens;
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

int64_t Session::PositionAfterBreak(int64_t rows) const {
  if (state_.CanUndoStep(rows)) return state_.position();
  return cache_ != nullptr ? cache_->last_snapshot_position() : 0;
}

void Session::RecoverFromBreak(int64_t rows) {
  if (state_.CanUndoStep(rows)) {
    state_.UndoStep(rows);
  } else if (cache_ != nullptr) {
    cache_->RestoreLastSnapshot(state_, tokens_);
  } else {
    Reset();
  }
}

bool Session::Step(std::span<const int32_t> tokens, const CancelFlag* cancel) {
  if (!model_.Forward(tokens, state_, cancel)) return false;
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return true;
}

}  // namespace mference
