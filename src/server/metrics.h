// What the server has done, for /metrics in Prometheus' text format.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/ledger.h"
#include "engine/prefix_cache.h"
#include "experts/expert_store.h"
#include "server/generation/job_queue.h"
#include "server/generation/reply_sink.h"

namespace mference::server {

// Cumulative counts of observations up to each bound.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size()) {}
  void Observe(double value);
  void AppendTo(std::string* text, const char* name) const;

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  uint64_t total_ = 0;
  double sum_ = 0;
};

struct GenerationFigures {
  Usage usage;
  double queued_seconds = 0;
  double first_token_seconds = 0;  // from the arrival of the request
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

// Thread-safe.
class Metrics {
 public:
  Metrics();

  void CountAnswer(const std::string& route, int status);
  void CountGeneration(const GenerationFigures& figures, const std::string& outcome);
  // Counters of the engine, which belong to the generation thread: it says when.
  void SetEngine(const ExpertCounters& experts, const PrefixCacheCounters& prompts);

  std::string Format(const JobQueue::Occupancy& queue, size_t connections,
                     const std::vector<LedgerPart>& memory, uint64_t budget_bytes) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> answers_;
  std::map<std::string, uint64_t> outcomes_;
  Usage tokens_;
  double prefill_seconds_ = 0;
  double decode_seconds_ = 0;
  Histogram first_token_;
  Histogram queued_;
  Histogram tokens_per_second_;
  ExpertCounters experts_;
  PrefixCacheCounters prompts_;
};

}  // namespace mference::server
