#include "bench/speed.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "base/error.h"

namespace mference::bench {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t MajorFaults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_majflt;
}

SamplingParams Sampling(uint64_t seed) {
  return {.temperature = 1, .top_k = 64, .top_p = 1, .min_p = 0, .seed = seed};
}

class SpeedRuns {
 public:
  SpeedRuns(LoadedModel& loaded, const SpeedOptions& options)
      : loaded_(loaded), options_(options), work_(WorkOf(loaded)), random_(options.seed) {
    sampled_.reserve(static_cast<size_t>(options.decode_tokens));
  }

  Phase Prefill(int64_t tokens) {
    Phase phase{.name = fmt::format("prefill {}", tokens), .tokens = tokens};
    phase.operations = work_.operations + work_.head_operations / static_cast<double>(tokens);
    // What every chunk reads, spread over its tokens; experts are read once per chunk.
    const auto chunk = static_cast<double>(std::min<int64_t>(tokens, loaded_.plan().chunk_rows));
    phase.memory_bytes = work_.resident_bytes / chunk;
    Run(phase, [&](SpeedSample&) {});
    return phase;
  }

  Phase Decode() {
    Phase phase{
        .name = fmt::format("decode {} after {}", options_.decode_tokens, options_.decode_prompt),
        .decode = true,
        .tokens = options_.decode_tokens};
    phase.operations = work_.operations + work_.head_operations;
    const StateLayout& layout = loaded_.model().state_layout();
    phase.memory_bytes =
        work_.resident_bytes + work_.expert_bytes +
        ModelWork::StateBytes(layout, options_.decode_prompt + options_.decode_tokens / 2);
    Run(phase, [&](SpeedSample& sample) { DecodeOnce(sample); });
    return phase;
  }

 private:
  std::vector<int32_t> RandomPrompt(int64_t tokens) {
    const int32_t ids =
        std::min(loaded_.model().vocab_size(), loaded_.text().tokenizer().id_limit());
    std::uniform_int_distribution<int32_t> any(0, ids - 1);
    std::vector<int32_t> prompt(static_cast<size_t>(tokens));
    for (int32_t& id : prompt) id = any(random_);
    return prompt;
  }

  // Prefills a fresh prompt in each run. What is measured is `rest` in decode phases, else that.
  template <typename Rest>
  void Run(Phase& phase, const Rest& rest) {
    const int64_t prompt_tokens = phase.decode ? options_.decode_prompt : phase.tokens;
    MomentaryRates before = RatesNow();
    for (int run = options_.warm_up ? -1 : 0; run < options_.runs; ++run) {
      if (options_.on_run) options_.on_run(phase.name, run);
      const std::vector<int32_t> prompt = RandomPrompt(prompt_tokens);
      loaded_.session().Reset();
      SpeedSample sample;
      if (phase.decode) {
        logits_ = Prefilled(prompt);
        Measure(sample, [&] { rest(sample); });
      } else {
        Measure(sample, [&] { logits_ = Prefilled(prompt); });
      }
      const MomentaryRates after = RatesNow();
      sample.rates = {std::max(before.memory_bytes_per_second, after.memory_bytes_per_second),
                      std::max(before.disk_bytes_per_second, after.disk_bytes_per_second)};
      before = after;
      if (run >= 0) phase.samples.push_back(sample);
    }
  }

  MomentaryRates RatesNow() const {
    return options_.measure_rates ? options_.measure_rates() : MomentaryRates{};
  }

  std::span<const float> Prefilled(const std::vector<int32_t>& prompt) {
    const PrefillResult result = loaded_.session().Prefill(prompt, options_.cancel);
    ThrowIf(result.cancelled);
    return result.logits;
  }

  void DecodeOnce(SpeedSample& sample) {
    const SamplingParams sampling = Sampling(options_.seed);
    sampled_.clear();
    for (int64_t i = 0; i < options_.decode_tokens; ++i) {
      ThrowIf(options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed));
      const Clock::time_point start = Clock::now();
      const int32_t id =
          loaded_.sampler().Sample(logits_, sampled_, static_cast<uint64_t>(i), sampling);
      Check(id >= 0, "the model computed no finite logit");
      sample.sampling_seconds += SecondsSince(start);
      sampled_.push_back(id);
      logits_ = loaded_.session().Append(id);
    }
  }

  static void ThrowIf(bool cancelled) {
    if (cancelled) Fail(ErrorCode::kCancelled, "the measurement was cancelled");
  }

  template <typename Work>
  void Measure(SpeedSample& sample, const Work& work) {
    loaded_.ResetCounters();
    const int64_t faults = MajorFaults();
    const std::optional<WorkCounts> before = CountedWork();
    const Clock::time_point start = Clock::now();
    work();
    sample.seconds = SecondsSince(start);
    if (before) {
      const WorkCounts after = *CountedWork();
      sample.work = WorkCounts{.allocations = after.allocations - before->allocations,
                               .mutex_locks = after.mutex_locks - before->mutex_locks};
    }
    sample.major_faults = MajorFaults() - faults;
    const ExpertCounters counters = loaded_.experts().counters();
    sample.waiting_seconds = static_cast<double>(counters.exposed_ns) / 1e9;
    sample.bytes_read = counters.bytes_read;
    sample.experts_asked = counters.hits + counters.joins + counters.misses;
    sample.expert_hits = counters.hits;
    sample.experts_reread = counters.rereads;
    sample.predicted_reads = counters.prefetched;
    sample.predictions_used = counters.confirmed;
  }

  LoadedModel& loaded_;
  const SpeedOptions& options_;
  const ModelWork work_;
  std::mt19937_64 random_;
  std::span<const float> logits_;
  std::vector<int32_t> sampled_;
};

template <typename Value>
double Sum(const std::vector<SpeedSample>& samples, Value SpeedSample::*member) {
  double sum = 0;
  for (const SpeedSample& sample : samples) sum += static_cast<double>(sample.*member);
  return sum;
}

// Seconds of the run at `place` of `1` in order of time.
double SecondsAt(const std::vector<SpeedSample>& samples, double place) {
  std::vector<double> seconds;
  for (const SpeedSample& sample : samples) seconds.push_back(sample.seconds);
  std::sort(seconds.begin(), seconds.end());
  return seconds[static_cast<size_t>(place * static_cast<double>(seconds.size() - 1))];
}

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

double Phase::Rate() const { return static_cast<double>(tokens) / SecondsAt(samples, 0.5); }
double Phase::SlowestRate() const { return static_cast<double>(tokens) / SecondsAt(samples, 1); }
double Phase::FastestRate() const { return static_cast<double>(tokens) / SecondsAt(samples, 0); }

double Phase::BytesReadPerToken() const {
  return Sum(samples, &SpeedSample::bytes_read) /
         (static_cast<double>(tokens) * static_cast<double>(samples.size()));
}

double Phase::HitRate() const {
  return Ratio(Sum(samples, &SpeedSample::expert_hits), Sum(samples, &SpeedSample::experts_asked));
}

double Phase::WaitingShare() const {
  return Ratio(Sum(samples, &SpeedSample::waiting_seconds), Sum(samples, &SpeedSample::seconds));
}

std::vector<Phase> MeasureSpeed(LoadedModel& loaded, const SpeedOptions& options) {
  SpeedRuns runs(loaded, options);
  const int64_t context = loaded.session().context();
  std::vector<Phase> phases;
  for (const int64_t tokens : options.prefill_tokens) {
    if (tokens < context) phases.push_back(runs.Prefill(tokens));
  }
  if (options.decode_tokens > 0 && options.decode_prompt + options.decode_tokens < context) {
    phases.push_back(runs.Decode());
  }
  return phases;
}

}  // namespace mference::bench
