// A conversation's live state: which tokens the model has seen, and how to show it more.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/sequence_state.h"
#include "engine/prefill_verifier.h"
#include "engine/prefix_cache.h"
#include "model/model.h"

namespace mference {

// Why a generation ended. Names for the footer: StopReasonName.
enum class StopReason {
  kEos,        // an end-of-sequence token
  kEndOfTurn,  // the family's end-of-turn token
  kToolCalls,  // the model handed over to its tools
  kStopString,
  kConstraintMet,  // the reply's grammar is complete: nothing may follow
  kMaxTokens,
  kContextFull,
  kCancelled,
};
const char* StopReasonName(StopReason reason);

struct PrefillResult {
  int64_t reused_tokens = 0;  // held already, not computed again
  int64_t computed_tokens = 0;
  bool cancelled = false;         // the state then holds a prefix of the prompt
  std::span<const float> logits;  // [vocab] after the last prompt token
};

// Not thread-safe. The model must outlive the session; one session's steps must not interleave with
// another's between `Prefill` and the use of its logits.
class Session {
 public:
  // `chunk_rows`: most rows per step, at most what the backend has scratch for.
  Session(Model& model, SequenceState state, int32_t chunk_rows);

  // From now on `Prefill` continues from, and keeps, prefixes in `cache`; nullptr: only the live
  // state is continued. Borrowed.
  void SetPrefixCache(PrefixCache* cache) { cache_ = cache; }
  // From now on every prefill that reuses something is checked. Borrowed.
  void SetVerifier(PrefillVerifier* verifier) { verifier_ = verifier; }

  // The tokens whose state is held.
  std::span<const int32_t> tokens() const { return tokens_; }
  int64_t context() const { return state_.context(); }

  // Makes the state hold exactly `prompt`: keeps the longest common prefix that the state can go
  // back to, or that the prefix cache has, computes the rest in chunks. At least the last token is
  // computed, for its logits. `progress(done, total)` is called after every chunk. `cancel` ends
  // it before the next layer, or before the next chunk where the state could not go back to a place
  // near the chunk's begin: no more is thrown away than the chunk has tokens. Throws
  // kContextFull when the prompt leaves no room for a single new token, kInvalidArgument when it is
  // empty or has ids out of range.
  PrefillResult Prefill(std::span<const int32_t> prompt, const CancelFlag* cancel = nullptr,
                        const std::function<void(int64_t, int64_t)>& progress = {});

  // Adds one token and returns the logits after it, [vocab]. Throws kContextFull without room.
  std::span<const float> Append(int32_t token);

  void Reset();

  SequenceState& state() { return state_; }

 private:
  int64_t Resume(std::span<const int32_t> prompt);
  // Where the state could go on from if a step of `rows` rows were broken off.
  int64_t PositionAfterBreak(int64_t rows) const;
  void RecoverFromBreak(int64_t rows);
  // False if it was cancelled.
  bool Step(std::span<const int32_t> tokens, const CancelFlag* cancel);

  Model& model_;
  SequenceState state_;
  const int32_t chunk_rows_;
  std::vector<int32_t> tokens_;
  PrefixCache* cache_ = nullptr;
  PrefillVerifier* verifier_ = nullptr;
  std::vector<float> logits_;  // of a prefill that was checked
};

}  // namespace mference
