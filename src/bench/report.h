// What `mference bench` reports: ceilings, speeds, and how near the second come to the first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/ledger.h"
#include "base/machine.h"
#include "bench/arithmetic_ceiling.h"
#include "bench/disk_ceiling.h"
#include "bench/speed.h"

namespace mference::bench {

struct MemoryCeiling {
  int threads = 0;
  double bytes_per_second = 0;
};

struct Ceilings {
  std::vector<MemoryCeiling> memory;          // one thread first, all threads last
  std::vector<ArithmeticCeiling> arithmetic;  // one thread first, all threads last
  DiskMeasurement disk;
  uint64_t blob_bytes = 0;

  double memory_rate() const { return memory.empty() ? 0 : memory.back().bytes_per_second; }
  // The best of a number type on all threads; 0 if the CPU has none.
  double arithmetic_rate(const std::string& type) const;
};

// Takes some ten seconds. `layer_files`: where blobs are read from.
Ceilings MeasureCeilings(int threads, const DiskRequest& disk);

// The walls of one phase: how long its work would take at each ceiling, per token. Each run is held
// against what memory and disk gave beside it, if that was measured; these are the walls of the run
// that is the median by share.
struct Walls {
  double memory_seconds = 0;
  double disk_seconds = 0;
  double arithmetic_seconds = 0;
  // The highest wall that applies: memory or disk when decoding, arithmetic or disk in prefill.
  double highest_seconds = 0;
  const char* highest = "";
  double share = 0;  // of the highest wall that the run reaches, 0..1
};
Walls WallsOf(const Phase& phase, const Ceilings& ceilings);

struct StartTimes {
  double load_seconds = 0;         // until a prompt could be taken
  double prefill_seconds = 0;      // of a short prompt, right after that
  double first_token_seconds = 0;  // from the beginning until its first token could be shown
  int64_t prompt_tokens = 0;
};

struct Report {
  std::string model;
  std::string family;
  std::string kernels;
  std::string expert_io;
  int threads = 0;
  int64_t context = 0;
  int slots = 0;
  int all_experts = 0;
  int32_t chunk_rows = 0;
  uint64_t budget_bytes = 0;
  uint64_t seed = 0;
  int runs = 0;
  Ceilings ceilings;
  StartTimes start;
  std::vector<Phase> phases;
  std::vector<LedgerPart> parts;  // what the ledger holds
  uint64_t ledger_bytes = 0;
  ProcessMemory process;
  std::optional<GroupCharge> group;
};

Json ReportToJson(const Report& report);
// Tables for people.
std::string DescribeReport(const Report& report);
// Two reports in the form of ReportToJson, side by side. Throws kInvalidArgument for anything else;
// the names are for messages.
std::string CompareReports(const Json& a, const std::string& name_a, const Json& b,
                           const std::string& name_b);

}  // namespace mference::bench
