#include "engine/prefill_verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/sampler.h"

namespace mference {

std::string PrefillCheck::Message() const {
  return fmt::format(
      "prompt cache check {}: {} of {} prompt tokens reused; logits differ by {:.3g} at most, "
      "{:.3g} "
      "rms (their deviation is {:.3g}); greedy token {}",
      passed ? "passed" : "FAILED", reused_tokens, prompt_tokens, max_difference, rms_difference,
      deviation, greedy_equal ? "equal" : "differs");
}

PrefillVerifier::PrefillVerifier(Model& model, SequenceState state, int32_t chunk_rows,
                                 Report report)
    : model_(model),
      state_(std::move(state)),
      chunk_rows_(chunk_rows),
      report_(std::move(report)) {}

PrefillCheck PrefillVerifier::Check(std::span<const int32_t> prompt, int64_t reused_tokens,
                                    std::span<const float> logits) {
  state_.Reset();
  size_t rows = 0;
  for (size_t done = 0; done < prompt.size(); done += rows) {
    rows = std::min(static_cast<size_t>(chunk_rows_), prompt.size() - done);
    model_.Forward(prompt.subspan(done, rows), state_);
  }
  const std::span<const float> full = model_.Logits(static_cast<int32_t>(rows) - 1, 1);

  PrefillCheck check{.prompt_tokens = static_cast<int64_t>(prompt.size()),
                     .reused_tokens = reused_tokens};
  double sum = 0;
  double squares = 0;
  double difference_squares = 0;
  for (size_t i = 0; i < full.size(); ++i) {
    const double difference = std::abs(double{full[i]} - double{logits[i]});
    check.max_difference = std::max(check.max_difference, difference);
    difference_squares += difference * difference;
    sum += full[i];
    squares += double{full[i]} * double{full[i]};
  }
  const auto count = static_cast<double>(full.size());
  check.rms_difference = std::sqrt(difference_squares / count);
  check.deviation = std::sqrt(std::max(0.0, squares / count - (sum / count) * (sum / count)));
  const int32_t expected = Argmax(full);
  const int32_t got = Argmax(logits);
  check.greedy_equal = expected == got;
  // Two logits that are nearer to each other than the differences go are a tie.
  const bool tie =
      expected >= 0 && got >= 0 &&
      double{full[static_cast<size_t>(expected)]} - double{full[static_cast<size_t>(got)]} <=
          2 * check.max_difference;
  check.passed =
      check.rms_difference <= kTolerance * check.deviation && (check.greedy_equal || tie);
  if (report_) report_(check);
  return check;
}

}  // namespace mference
