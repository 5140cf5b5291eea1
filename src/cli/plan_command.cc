// `mference plan`: what would fit into a memory budget, and the speed to expect, before anything is
// downloaded or loaded.

#include <algorithm>
#include <cmath>

#include "base/machine.h"
#include "base/units.h"
#include "bench/disk_ceiling.h"
#include "bench/memory_ceiling.h"
#include "cli/commands.h"
#include "cli/load_flags.h"
#include "cli/model_argument.h"
#include "engine/plan_estimate.h"
#include "install/install_paths.h"
#include "install/registry.h"
#include "model/catalogue.h"
#include "model/forward_passes.h"

namespace mference::cli {
namespace {

struct PlanFlags {
  LoadFlags load;
  bool no_measure = false;
};

// The model a plan is made for, installed or not.
struct Subject {
  std::string name;
  std::filesystem::path path;  // empty: not installed
  uint64_t download_bytes = 0;
  ModelSizes sizes;
};

Subject FromDirectory(const std::filesystem::path& path) {
  const ModelDirectory directory = ModelDirectory::Open(
      path, {.policy = VerifyPolicy::kAuto, .resolve = ResolveModel, .defer_hashing = true});
  const ResidentIndex& index = directory.resident_index();
  return {.name = ModelNameOf(path),
          .path = path,
          .download_bytes = 0,
          .sizes = {.arch = directory.manifest().arch,
                    .weight_bytes = index.index_bytes + index.resident_bytes,
                    .expert_stride = directory.layout().expert_stride}};
}

Subject FindSubject(const std::string& argument) {
  const PinnedSource* pinned = argument.empty() ? nullptr : FindPinned(argument);
  try {
    return FromDirectory(ResolveModelPath(argument));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound || pinned == nullptr) throw;
  }
  return {.name = std::string(pinned->name),
          .path = {},
          .download_bytes = pinned->download_bytes,
          .sizes = {.arch = pinned->arch(),
                    .weight_bytes = pinned->plan.weights_file_bytes,
                    .expert_stride = pinned->plan.expert_stride}};
}

struct Plan {
  MemoryPlan memory;
  int64_t context = 0;
  bool exact = false;  // the loader's own; else estimated
};

Plan MakePlan(const Subject& subject, const PlanFlags& flags) {
  if (!subject.path.empty() && HasForwardPass(subject.sizes.arch.family)) {
    LoadFlags load = flags.load;
    load.model = subject.path.string();
    const std::unique_ptr<LoadedModel> loaded = LoadFromFlags(load);
    return {loaded->plan(), loaded->session().context(), true};
  }
  LoadOptions options = flags.load.options;
  options.context = flags.load.context.value_or(options.context);
  const MemoryPlanInput input = EstimatePlanInput(subject.sizes, options);
  return {PlanMemory(input), input.context, false};
}

// The share of requests that a cache of the `cached` most used of `all` experts serves, if use
// falls off as 1/rank (Zipf). Measured rates of real models lie about there; experts used evenly
// would give cached / all.
double SkewedHitRate(int cached, int all) {
  const auto harmonic = [](int n) {
    double sum = 0;
    for (int i = 1; i <= n; ++i) sum += 1.0 / i;
    return sum;
  };
  return cached >= all ? 1.0 : harmonic(cached) / harmonic(all);
}

// What a token costs, and what that takes at the measured rates.
struct Speed {
  double hit_low = 0;
  double hit_high = 0;
  double memory_bytes = 0;  // read per token
  double disk_bytes_low = 0;
  double disk_bytes_high = 0;
  double tokens_low = 0;  // per second; 0: not known
  double tokens_high = 0;
  double pool_bytes = 0;  // read per prefill chunk, at most
};

Speed ExpectSpeed(const Subject& subject, const MemoryPlan& plan, double memory_rate,
                  double disk_rate) {
  const ArchConfig& arch = subject.sizes.arch;
  const auto stride = static_cast<double>(subject.sizes.expert_stride);
  const auto layers = static_cast<double>(arch.num_layers - arch.num_dense_layers);
  const double expert_bytes = static_cast<double>(arch.top_k_experts) * layers * stride;
  Speed speed;
  speed.hit_low = static_cast<double>(plan.slots) / std::max(plan.all_experts, 1);
  speed.hit_high = SkewedHitRate(plan.slots, plan.all_experts);
  speed.memory_bytes = static_cast<double>(subject.sizes.weight_bytes) + expert_bytes;
  speed.disk_bytes_low = (1 - speed.hit_high) * expert_bytes;
  speed.disk_bytes_high = (1 - speed.hit_low) * expert_bytes;
  speed.pool_bytes = static_cast<double>(plan.all_experts) * stride;
  const auto tokens = [&](double disk_bytes) {
    if (memory_rate <= 0 || (disk_rate <= 0 && disk_bytes > 0)) return 0.0;
    return 1.0 / (speed.memory_bytes / memory_rate + (disk_bytes > 0 ? disk_bytes / disk_rate : 0));
  };
  speed.tokens_low = tokens(speed.disk_bytes_high);
  speed.tokens_high = tokens(speed.disk_bytes_low);
  return speed;
}

bench::DiskMeasurement MeasureDisk(const Subject& subject) {
  if (subject.path.empty()) {
    return bench::MeasureDiskAt(ModelsDirectory(), subject.sizes.expert_stride);
  }
  bench::DiskRequest request;
  request.blob_bytes = subject.sizes.expert_stride;
  request.depths = {8};
  request.ways = bench::DiskRequest::Ways::kPlain;
  for (int64_t layer = 0; layer < subject.sizes.arch.num_layers; ++layer) {
    const std::filesystem::path file = subject.path / kExpertsDirectory / LayerFileName(layer);
    if (std::filesystem::exists(file)) request.files.push_back(file);
  }
  return bench::MeasureDisk(request);
}

std::string Bytes(double bytes) { return FormatByteCount(static_cast<uint64_t>(bytes)); }

void PrintPlan(Console& console, const Subject& subject, const Plan& plan) {
  console.Print("{}: {}{}\n", subject.name, FamilyName(subject.sizes.arch.family),
                subject.path.empty() ? fmt::format(", not installed ({} to download)",
                                                   FormatByteCount(subject.download_bytes))
                                     : "");
  if (!HasForwardPass(subject.sizes.arch.family)) {
    console.Print("note: this version installs models of this family but does not run them yet\n");
  }
  console.Print("memory, with {} tokens of context{}:\n{}", plan.context,
                plan.exact ? "" : " (estimated)", DescribePlan(plan.memory));
  console.Print("smallest budget that works: {}MiB\n", plan.memory.smallest_budget_mib());
}

// What the disk's figure is of.
std::string DescribeReads(const bench::DiskMeasurement& disk, bool installed) {
  const bench::DiskCeiling& reads = disk.ceilings.front();
  return fmt::format("{} reads of {}, {} at a time, from {} of {}", reads.reads,
                     FormatByteCount(disk.read_bytes), reads.depth,
                     installed ? "the model's files" : "a scratch file",
                     FormatByteCount(disk.file_bytes));
}

void PrintSpeed(Console& console, const Subject& subject, const Plan& plan, const Speed& speed,
                double memory_rate, const bench::DiskMeasurement& disk, int threads) {
  console.Print("measured: memory {:.1f} GB/s with {} threads, disk ", memory_rate / 1e9, threads);
  if (disk.best() > 0) {
    console.Print("{:.2f} GB/s{}\n  {}\n", disk.best() / 1e9,
                  disk.direct ? "" : fmt::format(" through the page cache ({})", disk.problem),
                  DescribeReads(disk, !subject.path.empty()));
  } else {
    console.Print("not measured ({})\n", disk.problem);
  }
  console.Print("per token: {} from memory, {} to {} from disk (cache hits {:.0f}% to {:.0f}%)\n",
                Bytes(speed.memory_bytes), Bytes(speed.disk_bytes_low),
                Bytes(speed.disk_bytes_high), speed.hit_high * 100, speed.hit_low * 100);
  if (speed.tokens_high > 0) {
    console.Print("expect at most {:.1f} to {:.1f} tokens/s, if arithmetic keeps up\n",
                  speed.tokens_low, speed.tokens_high);
  }
  if (disk.best() > 0 && speed.hit_low < 1) {
    console.Print("prefill: up to {} read per chunk of {} tokens, {:.1f} s\n",
                  Bytes(speed.pool_bytes), plan.memory.chunk_rows, speed.pool_bytes / disk.best());
  }
}

int RunPlan(const PlanFlags& flags, Console& console) {
  const Subject subject = FindSubject(flags.load.model);
  const Plan plan = MakePlan(subject, flags);
  const int threads =
      flags.load.options.threads > 0 ? flags.load.options.threads : AvailableProcessors();
  double memory_rate = 0;
  bench::DiskMeasurement disk;
  if (!flags.no_measure) {
    memory_rate = bench::MeasureMemoryRate(threads);
    disk = MeasureDisk(subject);
  }
  const Speed speed = ExpectSpeed(subject, plan.memory, memory_rate, disk.best());
  if (flags.load.json) {
    Json json = {{"name", subject.name},
                 {"installed", !subject.path.empty()},
                 {"family", FamilyName(subject.sizes.arch.family)},
                 {"context", plan.context},
                 {"estimated", !plan.exact},
                 {"memory_plan", MemoryPlanToJson(plan.memory)},
                 {"hit_rate", {speed.hit_low, speed.hit_high}},
                 {"memory_bytes_per_token", speed.memory_bytes},
                 {"disk_bytes_per_token", {speed.disk_bytes_low, speed.disk_bytes_high}}};
    if (!flags.no_measure) {
      json["memory_bytes_per_s"] = memory_rate;
      json["disk_bytes_per_s"] = disk.best();
      if (!disk.ceilings.empty()) {
        json["disk_reads"] = {{"reads", disk.ceilings.front().reads},
                              {"read_bytes", disk.read_bytes},
                              {"depth", disk.ceilings.front().depth},
                              {"file_bytes", disk.file_bytes}};
      }
      json["tokens_per_s"] = {speed.tokens_low, speed.tokens_high};
    }
    console.Print("{}\n", json.dump(2));
    return 0;
  }
  PrintPlan(console, subject, plan);
  if (!flags.no_measure) PrintSpeed(console, subject, plan, speed, memory_rate, disk, threads);
  return 0;
}

}  // namespace

void AddPlanCommand(CommandSet& commands) {
  const auto flags = std::make_shared<PlanFlags>();
  CLI::App& command = commands.Add(
      "plan", "What would fit in a memory budget, and the speed to expect; also before an install",
      [flags](Console& console) { return RunPlan(*flags, console); });
  flags->load.Declare(command);
  AddSwitch(command, "--no-measure", "Do not measure memory and disk", flags->no_measure);
}

}  // namespace mference::cli
