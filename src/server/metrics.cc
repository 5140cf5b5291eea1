#include "server/metrics.h"

#include <fmt/format.h>

#include "base/machine.h"

namespace mference::server {
namespace {

void AppendHeader(std::string* text, const char* name, const char* type, const char* help) {
  *text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

template <typename Value>
void AppendMetric(std::string* text, const char* name, const char* type, const char* help,
                  Value value) {
  AppendHeader(text, name, type, help);
  *text += fmt::format("{} {}\n", name, value);
}

}  // namespace

void Histogram::Observe(double value) {
  for (size_t i = 0; i < bounds_.size(); ++i) {
    if (value <= bounds_[i]) ++counts_[i];
  }
  ++total_;
  sum_ += value;
}

void Histogram::AppendTo(std::string* text, const char* name) const {
  for (size_t i = 0; i < bounds_.size(); ++i) {
    *text += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bounds_[i], counts_[i]);
  }
  *text += fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, total_,
                       sum_);
}

Metrics::Metrics()
    : first_token_({0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300}),
      queued_({0.01, 0.1, 1, 5, 10, 30, 60, 120, 300, 600}),
      tokens_per_second_({0.5, 1, 2, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256}) {}

void Metrics::CountAnswer(const std::string& route, int status) {
  const std::lock_guard lock(mutex_);
  ++answers_[{route, status}];
}

void Metrics::CountGeneration(const GenerationFigures& figures, const std::string& outcome) {
  const std::lock_guard lock(mutex_);
  ++outcomes_[outcome];
  const Usage& usage = figures.usage;
  tokens_.prompt_tokens += usage.prompt_tokens;
  tokens_.cached_tokens += usage.cached_tokens;
  tokens_.completion_tokens += usage.completion_tokens;
  tokens_.reasoning_tokens += usage.reasoning_tokens;
  prefill_seconds_ += figures.prefill_seconds;
  decode_seconds_ += figures.decode_seconds;
  queued_.Observe(figures.queued_seconds);
  if (usage.completion_tokens == 0) return;
  first_token_.Observe(figures.first_token_seconds);
  if (figures.decode_seconds > 0) {
    tokens_per_second_.Observe(static_cast<double>(usage.completion_tokens) /
                               figures.decode_seconds);
  }
}

void Metrics::SetEngine(const ExpertCounters& experts, const PrefixCacheCounters& prompts) {
  const std::lock_guard lock(mutex_);
  experts_ = experts;
  prompts_ = prompts;
}

std::string Metrics::Format(const JobQueue::Occupancy& queue, size_t connections,
                            const std::vector<LedgerPart>& memory, uint64_t budget_bytes) const {
  std::string text;
  const std::lock_guard lock(mutex_);
  AppendHeader(&text, "mference_http_requests_total", "counter", "Requests answered.");
  for (const auto& [key, count] : answers_) {
    text += fmt::format("mference_http_requests_total{{route=\"{}\",status=\"{}\"}} {}\n",
                        key.first, key.second, count);
  }
  AppendHeader(&text, "mference_generations_total", "counter", "Generations by how they ended.");
  for (const auto& [outcome, count] : outcomes_) {
    text += fmt::format("mference_generations_total{{outcome=\"{}\"}} {}\n", outcome, count);
  }
  AppendMetric(&text, "mference_prompt_tokens_total", "counter", "Prompt tokens, reused or not.",
               tokens_.prompt_tokens);
  AppendMetric(&text, "mference_cached_prompt_tokens_total", "counter",
               "Prompt tokens whose state was reused.", tokens_.cached_tokens);
  AppendMetric(&text, "mference_completion_tokens_total", "counter", "Tokens sampled.",
               tokens_.completion_tokens);
  AppendMetric(&text, "mference_reasoning_tokens_total", "counter", "Tokens sampled in reasoning.",
               tokens_.reasoning_tokens);
  AppendMetric(&text, "mference_prefill_seconds_total", "counter", "Time spent on prompts.",
               prefill_seconds_);
  AppendMetric(&text, "mference_decode_seconds_total", "counter", "Time spent on replies.",
               decode_seconds_);
  AppendHeader(&text, "mference_time_to_first_token_seconds", "histogram",
               "From the arrival of a request to its first token.");
  first_token_.AppendTo(&text, "mference_time_to_first_token_seconds");
  AppendHeader(&text, "mference_queue_seconds", "histogram", "Time a request waited for its turn.");
  queued_.AppendTo(&text, "mference_queue_seconds");
  AppendHeader(&text, "mference_tokens_per_second", "histogram", "Decode speed of a reply.");
  tokens_per_second_.AppendTo(&text, "mference_tokens_per_second");
  AppendMetric(&text, "mference_queue_active", "gauge", "Requests being generated.", queue.active);
  AppendMetric(&text, "mference_queue_waiting", "gauge", "Requests that wait.", queue.waiting);
  AppendMetric(&text, "mference_queue_limit", "gauge", "Requests that may wait.", queue.limit);
  AppendMetric(&text, "mference_connections", "gauge", "Open client connections.", connections);
  AppendMetric(&text, "mference_expert_hits_total", "counter",
               "Routed experts found in memory, or being read already.",
               experts_.hits + experts_.joins);
  AppendMetric(&text, "mference_expert_misses_total", "counter", "Routed experts read on demand.",
               experts_.misses);
  AppendMetric(&text, "mference_expert_read_bytes_total", "counter", "Bytes of experts read.",
               experts_.bytes_read);
  AppendMetric(&text, "mference_expert_wait_seconds_total", "counter",
               "Time that computing waited for reads.",
               static_cast<double>(experts_.exposed_ns) * 1e-9);
  AppendHeader(&text, "mference_prompt_cache_resumed_total", "counter",
               "Prompts that continued from kept state, by where it was.");
  for (const auto& [source, count] : {std::pair{"live", prompts_.live_resumed},
                                      {"parked", prompts_.parked_resumed},
                                      {"disk", prompts_.disk_resumed}}) {
    text += fmt::format("mference_prompt_cache_resumed_total{{source=\"{}\"}} {}\n", source, count);
  }
  AppendMetric(&text, "mference_prompt_cache_evictions_total", "counter",
               "Kept states dropped for lack of room.", prompts_.evictions);
  AppendHeader(&text, "mference_memory_bytes", "gauge", "Memory reserved, by part.");
  for (const LedgerPart& part : memory) {
    text += fmt::format("mference_memory_bytes{{part=\"{}\"}} {}\n", part.name, part.bytes);
  }
  AppendMetric(&text, "mference_memory_budget_bytes", "gauge", "The memory budget.", budget_bytes);
  const ProcessMemory process = ReadProcessMemory();
  AppendMetric(&text, "process_resident_memory_bytes", "gauge", "Resident memory of the process.",
               process.resident_bytes);
  return text;
}

}  // namespace mference::server
