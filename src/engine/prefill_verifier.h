// Checks reuse against the truth: the same prompt computed from nothing gives the same logits.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "backend/sequence_state.h"
#include "model/model.h"

namespace mference {

struct PrefillCheck {
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;
  double max_difference = 0;
  double rms_difference = 0;
  double deviation = 0;  // standard deviation of the logits: what the differences compare with
  bool greedy_equal = false;
  bool passed = false;

  // One sentence with the figures.
  std::string Message() const;
};

// Recomputes prompts in a state of its own, which takes as much memory as the session's; every
// checked prompt costs a full prefill. Not thread-safe; shares the model with its session.
class PrefillVerifier {
 public:
  using Report = std::function<void(const PrefillCheck&)>;

  // Differences come from other widths of steps alone, which round otherwise and may tip a router's
  // near-tie: a check passes when their root mean square is within this share of the logits'
  // deviation and the most likely token is the same (or as likely, within the difference).
  static constexpr double kTolerance = 0.05;

  PrefillVerifier(Model& model, SequenceState state, int32_t chunk_rows, Report report);

  // Compares `logits` [vocab] after the last token of `prompt` with those of a full prefill, and
  // reports. The model's own logits are those of the full prefill afterwards.
  PrefillCheck Check(std::span<const int32_t> prompt, int64_t reused_tokens,
                     std::span<const float> logits);

 private:
  Model& model_;
  SequenceState state_;
  const int32_t chunk_rows_;
  Report report_;
};

}  // namespace mference
