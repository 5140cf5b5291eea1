#include "bench/report.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"

namespace mference::bench {
namespace {

std::string Gigabytes(double bytes) { return fmt::format("{:.2f} GB", bytes / 1e9); }
std::string GigabytesPerSecond(double rate) { return fmt::format("{:.1f} GB/s", rate / 1e9); }
std::string Percent(double share) { return fmt::format("{:.0f}%", share * 100); }
std::string Mebibytes(uint64_t bytes) {
  return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
}

// Right-aligned columns but for the first.
class TextTable {
 public:
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string Format() const {
    std::vector<size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()));
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows_) {
      text += "  ";
      for (size_t i = 0; i < row.size(); ++i) {
        text += i == 0 ? fmt::format("{:<{}}", row[i], widths[i])
                       : fmt::format("  {:>{}}", row[i], widths[i]);
      }
      text += '\n';
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

Json CeilingsToJson(const Ceilings& ceilings) {
  Json memory = Json::array();
  for (const MemoryCeiling& ceiling : ceilings.memory) {
    memory.push_back({{"threads", ceiling.threads}, {"bytes_per_s", ceiling.bytes_per_second}});
  }
  Json arithmetic = Json::array();
  for (const ArithmeticCeiling& ceiling : ceilings.arithmetic) {
    arithmetic.push_back({{"type", ceiling.type},
                          {"instruction", ceiling.instruction},
                          {"threads", ceiling.threads},
                          {"operations_per_s", ceiling.per_second}});
  }
  Json disk = Json::array();
  for (const DiskCeiling& ceiling : ceilings.disk.ceilings) {
    disk.push_back({{"way", ceiling.way},
                    {"depth", ceiling.depth},
                    {"bytes_per_s", ceiling.bytes_per_second},
                    {"median_s", ceiling.median_seconds}});
  }
  return {{"memory", memory},
          {"arithmetic", arithmetic},
          {"disk", disk},
          {"disk_best_bytes_per_s", ceilings.disk.best()},
          {"disk_problem", ceilings.disk.problem},
          {"blob_bytes", ceilings.blob_bytes}};
}

Json PhaseToJson(const Phase& phase, const Ceilings& ceilings) {
  const Walls walls = WallsOf(phase, ceilings);
  Json runs = Json::array();
  for (const SpeedSample& sample : phase.samples) {
    Json run = {{"s", sample.seconds},
                {"sampling_s", sample.sampling_seconds},
                {"waiting_s", sample.waiting_seconds},
                {"bytes_read", sample.bytes_read},
                {"experts_asked", sample.experts_asked},
                {"expert_hits", sample.expert_hits},
                {"experts_reread", sample.experts_reread},
                {"predicted_reads", sample.predicted_reads},
                {"predictions_used", sample.predictions_used},
                {"major_faults", sample.major_faults},
                {"memory_bytes_per_s", sample.rates.memory_bytes_per_second},
                {"disk_bytes_per_s", sample.rates.disk_bytes_per_second}};
    if (sample.work) {
      run["allocations"] = sample.work->allocations;
      run["mutex_locks"] = sample.work->mutex_locks;
    }
    runs.push_back(run);
  }
  return {{"name", phase.name},
          {"tokens", phase.tokens},
          {"tokens_per_s", phase.Rate()},
          {"slowest_tokens_per_s", phase.SlowestRate()},
          {"fastest_tokens_per_s", phase.FastestRate()},
          {"memory_bytes_per_token", phase.memory_bytes},
          {"disk_bytes_per_token", phase.BytesReadPerToken()},
          {"operations_per_token", phase.operations},
          {"hit_rate", phase.HitRate()},
          {"waiting_share", phase.WaitingShare()},
          {"memory_wall_s", walls.memory_seconds},
          {"disk_wall_s", walls.disk_seconds},
          {"arithmetic_wall_s", walls.arithmetic_seconds},
          {"wall", walls.highest},
          {"share_of_wall", walls.share},
          {"runs", runs}};
}

Json MemoryToJson(const Report& report) {
  Json parts = Json::object();
  for (const LedgerPart& part : report.parts) parts[part.name] = part.bytes;
  Json memory = {{"budget_bytes", report.budget_bytes},
                 {"ledger_bytes", report.ledger_bytes},
                 {"parts", parts},
                 {"resident_bytes", report.process.resident_bytes},
                 {"peak_resident_bytes", report.process.peak_resident_bytes}};
  if (report.group) {
    memory["group"] = {{"bytes", report.group->bytes},
                       {"peak_bytes", report.group->peak_bytes},
                       {"anonymous_bytes", report.group->anonymous_bytes},
                       {"file_bytes", report.group->file_bytes},
                       {"limit_hits", report.group->limit_hits}};
  }
  return memory;
}

std::string DescribeCeilings(const Ceilings& ceilings) {
  std::string text = "ceilings\n";
  TextTable table;
  for (const MemoryCeiling& ceiling : ceilings.memory) {
    table.Add({fmt::format("memory, {} thread{}", ceiling.threads, ceiling.threads > 1 ? "s" : ""),
               GigabytesPerSecond(ceiling.bytes_per_second), ""});
  }
  for (const ArithmeticCeiling& ceiling : ceilings.arithmetic) {
    table.Add({fmt::format("{}, {} thread{}, {}", ceiling.type, ceiling.threads,
                           ceiling.threads > 1 ? "s" : "", ceiling.instruction),
               fmt::format("{:.0f} Gop/s", ceiling.per_second / 1e9), ""});
  }
  for (const DiskCeiling& ceiling : ceilings.disk.ceilings) {
    table.Add({fmt::format("disk, {} at a time, {} in flight, {}",
                           FormatByteCount(ceilings.blob_bytes), ceiling.depth, ceiling.way),
               fmt::format("{:.2f} GB/s", ceiling.bytes_per_second / 1e9),
               fmt::format("{:.2f} ms", ceiling.median_seconds * 1e3)});
  }
  text += table.Format();
  if (!ceilings.disk.problem.empty()) text += fmt::format("  disk: {}\n", ceilings.disk.problem);
  return text;
}

std::string DescribePhases(const Report& report) {
  TextTable table;
  table.Add({"", "tokens/s", "slowest", "fastest", "wall", "reached", "from memory", "at",
             "from disk", "at", "Gop/s", "hits", "waiting", "faults"});
  for (const Phase& phase : report.phases) {
    const Walls walls = WallsOf(phase, report.ceilings);
    int64_t faults = 0;
    for (const SpeedSample& sample : phase.samples) faults += sample.major_faults;
    table.Add({phase.name, fmt::format("{:.2f}", phase.Rate()),
               fmt::format("{:.2f}", phase.SlowestRate()),
               fmt::format("{:.2f}", phase.FastestRate()), walls.highest, Percent(walls.share),
               Gigabytes(phase.memory_bytes), GigabytesPerSecond(phase.memory_bytes * phase.Rate()),
               Gigabytes(phase.BytesReadPerToken()),
               fmt::format("{:.2f} GB/s", phase.BytesReadPerToken() * phase.Rate() / 1e9),
               fmt::format("{:.0f}", phase.operations * phase.Rate() / 1e9),
               Percent(phase.HitRate()), Percent(phase.WaitingShare()), std::to_string(faults)});
  }
  std::string text = fmt::format(
      "speed, {} runs each (median, per token; wall: what bounds it at best)\n", report.runs);
  text += table.Format();
  for (const Phase& phase : report.phases) {
    for (const SpeedSample& sample : phase.samples) {
      if (!phase.decode || !sample.work) continue;
      text += fmt::format(
          "  {}: {:.2f} allocations and {:.2f} mutex acquisitions per token\n", phase.name,
          static_cast<double>(sample.work->allocations) / static_cast<double>(phase.tokens),
          static_cast<double>(sample.work->mutex_locks) / static_cast<double>(phase.tokens));
    }
  }
  return text;
}

std::string DescribeMemory(const Report& report) {
  std::string text = "memory\n";
  TextTable table;
  for (const LedgerPart& part : report.parts) {
    table.Add({part.name, Mebibytes(part.bytes),
               part.name == "expert slots"
                   ? fmt::format("{} of {} experts", report.slots, report.all_experts)
                   : ""});
  }
  table.Add({"reserved in all", Mebibytes(report.ledger_bytes),
             fmt::format("of a budget of {}", Mebibytes(report.budget_bytes))});
  table.Add({"resident, peak", Mebibytes(report.process.peak_resident_bytes), ""});
  if (report.group) {
    table.Add({"charged by the kernel", Mebibytes(report.group->bytes),
               fmt::format("peak {}, {} times at the limit", Mebibytes(report.group->peak_bytes),
                           report.group->limit_hits)});
  }
  return text + table.Format();
}

// A number under `path`, or nothing.
std::optional<double> NumberAt(const Json& json, const char* key) {
  const auto at = json.find(key);
  if (at == json.end() || !at->is_number()) return std::nullopt;
  return at->get<double>();
}

const Json& PhasesOf(const Json& report, const std::string& name) {
  const auto at = report.find("phases");
  if (!report.is_object() || at == report.end() || !at->is_array()) {
    Fail(ErrorCode::kInvalidArgument, "{} is not a report of `mference bench --json`", name);
  }
  return *at;
}

}  // namespace

Json ReportToJson(const Report& report) {
  Json phases = Json::array();
  for (const Phase& phase : report.phases) phases.push_back(PhaseToJson(phase, report.ceilings));
  return {{"model", report.model},
          {"family", report.family},
          {"kernels", report.kernels},
          {"expert_io", report.expert_io},
          {"threads", report.threads},
          {"context", report.context},
          {"slots", report.slots},
          {"experts", report.all_experts},
          {"chunk_rows", report.chunk_rows},
          {"seed", report.seed},
          {"ceilings", CeilingsToJson(report.ceilings)},
          {"start",
           {{"load_s", report.start.load_seconds},
            {"prompt_tokens", report.start.prompt_tokens},
            {"prefill_s", report.start.prefill_seconds},
            {"first_token_s", report.start.first_token_seconds}}},
          {"phases", phases},
          {"memory", MemoryToJson(report)}};
}

std::string DescribeReport(const Report& report) {
  std::string text =
      fmt::format("{} ({}), context {}, chunks of {} tokens; {}; {}\n", report.model, report.family,
                  report.context, report.chunk_rows, report.kernels, report.expert_io);
  text += DescribeCeilings(report.ceilings);
  text += fmt::format(
      "start\n  loaded in {:.2f} s; first token of a {}-token prompt after {:.2f} s, of which "
      "{:.2f} "
      "s prefill\n",
      report.start.load_seconds, report.start.prompt_tokens, report.start.first_token_seconds,
      report.start.prefill_seconds);
  return text + DescribePhases(report) + DescribeMemory(report);
}

std::string CompareReports(const Json& a, const std::string& name_a, const Json& b,
                           const std::string& name_b) {
  struct Column {
    const char* key;
    const char* title;
    double unit;
  };
  static constexpr Column kColumns[] = {{"tokens_per_s", "tokens/s", 1},
                                        {"share_of_wall", "share of its wall, %", 0.01},
                                        {"disk_bytes_per_token", "MB from disk per token", 1e6},
                                        {"hit_rate", "cache hits, %", 0.01},
                                        {"waiting_share", "waiting for reads, %", 0.01}};
  const Json& phases_a = PhasesOf(a, name_a);
  const Json& phases_b = PhasesOf(b, name_b);
  TextTable table;
  table.Add({"", name_a, name_b, "ratio", ""});
  for (const Json& phase_a : phases_a) {
    const auto phase_b = std::find_if(phases_b.begin(), phases_b.end(), [&](const Json& other) {
      return other.value("name", "") == phase_a.value("name", "?");
    });
    if (phase_b == phases_b.end()) continue;
    for (const Column& column : kColumns) {
      const std::optional<double> value_a = NumberAt(phase_a, column.key);
      const std::optional<double> value_b = NumberAt(*phase_b, column.key);
      if (!value_a || !value_b) continue;
      // Speeds that differ by less than their runs do among themselves say nothing.
      std::string note;
      const std::optional<double> fast_a = NumberAt(phase_a, "fastest_tokens_per_s");
      const std::optional<double> slow_a = NumberAt(phase_a, "slowest_tokens_per_s");
      const std::optional<double> fast_b = NumberAt(*phase_b, "fastest_tokens_per_s");
      const std::optional<double> slow_b = NumberAt(*phase_b, "slowest_tokens_per_s");
      if (&column == &kColumns[0] && fast_a && slow_a && fast_b && slow_b && *slow_a <= *fast_b &&
          *slow_b <= *fast_a) {
        note = "within the spread of the runs";
      }
      table.Add({fmt::format("{}: {}", phase_a.value("name", ""), column.title),
                 fmt::format("{:.2f}", *value_a / column.unit),
                 fmt::format("{:.2f}", *value_b / column.unit),
                 *value_a > 0 ? fmt::format("{:.3f}", *value_b / *value_a) : "", note});
    }
  }
  return table.Format();
}

}  // namespace mference::bench
