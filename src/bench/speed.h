// How fast a loaded model prefills and decodes, and what that costs: the runs behind
// `mference bench`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/work_counts.h"
#include "bench/model_work.h"
#include "engine/loaded_model.h"

namespace mference::bench {

// What memory and disk give at the moment. On a machine that is shared that may double from one
// minute to the next. 0: not measured.
struct MomentaryRates {
  double memory_bytes_per_second = 0;
  double disk_bytes_per_second = 0;
};

struct SpeedOptions {
  std::vector<int64_t> prefill_tokens = {128, 512, 2048};
  int64_t decode_tokens = 64;  // 0: none
  int64_t decode_prompt = 64;  // tokens before the first decoded one
  int runs = 3;
  // Of prompts (tokens drawn evenly from the vocabulary, so that nothing is known beforehand) and
  // of sampling (temperature 1 over the 64 likeliest: no loops, and as random as the model).
  uint64_t seed = 1;
  bool warm_up = true;  // run everything once before it is measured
  const CancelFlag* cancel = nullptr;
  // Called before each run and after the last, if set.
  std::function<MomentaryRates()> measure_rates;
  std::function<void(const std::string& what, int run)> on_run;
};

// One run of one phase.
struct SpeedSample {
  double seconds = 0;
  double sampling_seconds = 0;  // of these; decode only
  double waiting_seconds = 0;   // slept until an expert was read
  uint64_t bytes_read = 0;      // from disk
  uint64_t experts_asked = 0;
  uint64_t expert_hits = 0;
  uint64_t experts_reread = 0;  // read twice in one step for want of slots
  uint64_t predicted_reads = 0;
  uint64_t predictions_used = 0;
  int64_t major_faults = 0;
  MomentaryRates rates = {};            // the better of those before and after the run
  std::optional<WorkCounts> work = {};  // allocations and locks
};

struct Phase {
  std::string name;  // "prefill 512", "decode 64 after 64"
  bool decode = false;
  int64_t tokens = 0;       // per run
  double memory_bytes = 0;  // per token: weights, experts and state
  double operations = 0;    // per token: matrix products
  std::vector<SpeedSample> samples = {};

  // Tokens per second: the median run, the slowest and the fastest.
  double Rate() const;
  double SlowestRate() const;
  double FastestRate() const;
  // Of all runs together.
  double BytesReadPerToken() const;
  double HitRate() const;
  double WaitingShare() const;
};

// Runs what `options` asks for. Sizes that do not fit the context are left out. Throws kCancelled.
std::vector<Phase> MeasureSpeed(LoadedModel& loaded, const SpeedOptions& options);

}  // namespace mference::bench
