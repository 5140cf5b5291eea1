// `mference bench`: how fast a model runs here, beside what this machine could do at best.

#include <chrono>

#include "base/units.h"
#include "bench/memory_ceiling.h"
#include "bench/report.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/interrupts.h"
#include "cli/load_flags.h"
#include "cli/model_argument.h"
#include "experts/slot_memory.h"
#include "model/catalogue.h"

namespace mference::cli {
namespace {

using Clock = std::chrono::steady_clock;

// The prompt whose first token is timed from the very beginning.
constexpr int64_t kStartPrompt = 32;

struct BenchFlags {
  LoadFlags load;
  bench::SpeedOptions speed;
  std::filesystem::path compare;
  std::filesystem::path trace;
  bool no_measure = false;
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<int64_t> ParseLengths(const std::string& text) {
  std::vector<int64_t> lengths;
  if (text == "none") return lengths;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    lengths.push_back(ParseInteger(text.substr(begin, comma - begin), 1, int64_t{1} << 20));
    begin = comma + 1;
  }
  return lengths;
}

Json ReadReport(const std::filesystem::path& path) {
  return ParseJson(ReadInput(path), path.string(), ErrorCode::kInvalidArgument);
}

int Compare(const BenchFlags& flags, Console& console) {
  if (flags.load.model.empty()) throw UsageError("--compare needs two files: A.json B.json");
  console.Write(bench::CompareReports(ReadReport(flags.compare), flags.compare.string(),
                                      ReadReport(flags.load.model), flags.load.model));
  return 0;
}

// Where blobs are read from.
bench::DiskRequest ExpertReads(const ModelDirectory& directory) {
  bench::DiskRequest disk;
  disk.blob_bytes = directory.layout().expert_stride;
  for (size_t layer = 0; layer < directory.layout().layers.size(); ++layer) {
    if (directory.layout().layers[layer].expert_offsets.empty()) continue;
    disk.files.push_back(directory.path() /
                         directory.layout().LayerPath(static_cast<int64_t>(layer)));
  }
  return disk;
}

constexpr size_t kLeastMeasuredBytes = 256 * kMiB;

// Four blobs in flight keep any disk busy, and take little from the budget.
constexpr int kDepthBesideRuns = 4;

// A few tenths of a second, in memory that is there already but for four blobs.
bench::MomentaryRates RatesNow(const LoadedModel& loaded, int threads) {
  bench::MomentaryRates rates;
  // Of a model that fits the processor's caches they would be measured.
  if (loaded.resident_weights().size() >= kLeastMeasuredBytes) {
    rates.memory_bytes_per_second =
        bench::MeasureMemoryRate(threads, loaded.resident_weights(), /*passes=*/2);
  }
  if (loaded.plan().slots < loaded.plan().all_experts) {
    bench::DiskRequest disk = ExpertReads(loaded.directory());
    disk.depths = {kDepthBesideRuns};
    disk.seconds = 0.15;
    disk.ways = bench::DiskRequest::Ways::kRing;
    rates.disk_bytes_per_second = bench::MeasureDisk(disk).best();
  }
  return rates;
}

bench::Ceilings MeasureCeilings(const std::filesystem::path& model, int threads) {
  // Closed before anything is measured: it hashes the weights in the background.
  const bench::DiskRequest disk = ExpertReads(ModelDirectory::Open(
      model, {.policy = VerifyPolicy::kAuto, .resolve = ResolveModel, .defer_hashing = true}));
  return bench::MeasureCeilings(threads, disk);
}

// Times the way from nothing to a first token.
std::unique_ptr<LoadedModel> Start(const LoadFlags& flags, bench::StartTimes& times) {
  const Clock::time_point start = Clock::now();
  std::unique_ptr<LoadedModel> loaded = LoadFromFlags(flags);
  times.load_seconds = SecondsSince(start);
  times.prompt_tokens = std::min(kStartPrompt, loaded->session().context() - 1);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < times.prompt_tokens; ++i) {
    prompt.push_back((i * 7919 + 101) %
                     std::min(loaded->model().vocab_size(), loaded->text().tokenizer().id_limit()));
  }
  GenerationRequest request;
  request.prompt = prompt;
  request.sampling.temperature = 0;
  request.max_new_tokens = 1;
  const GenerationResult result = loaded->Generate(request);
  times.prefill_seconds = result.prefill_seconds;
  times.first_token_seconds = SecondsSince(start);
  return loaded;
}

int Bench(const BenchFlags& flags, Console& console) {
  if (!flags.compare.empty()) return Compare(flags, console);
  const InterruptScope interrupts(InterruptMode::kCancel);
  ProgressLine progress(console);
  bench::Report report;
  report.threads =
      flags.load.options.threads > 0 ? flags.load.options.threads : AvailableProcessors();
  progress.Update([] { return std::string("measuring this machine"); });
  if (!flags.no_measure) {
    report.ceilings = MeasureCeilings(ResolveModelPath(flags.load.model), report.threads);
  }
  ThrowIfCancelled();

  LoadFlags load = flags.load;
  if (!flags.no_measure) {
    // What the measurements beside the runs read into, huge pages rounded up, and a ring.
    load.options.other_parts.push_back(
        {"measurement", kDepthBesideRuns * SlotBytes(report.ceilings.blob_bytes) + 4 * kMiB});
  }
  const std::unique_ptr<LoadedModel> loaded = Start(load, report.start);
  loaded->FinishLoading();
  ShowLoaded(flags.load, *loaded, console);
  bench::SpeedOptions speed = flags.speed;
  speed.cancel = &CancelRequested();
  speed.on_run = [&](const std::string& what, int run) {
    progress.Update([&] {
      return run < 0 ? fmt::format("{}, warming up", what)
                     : fmt::format("{}, run {} of {}", what, run + 1, speed.runs);
    });
  };
  if (!flags.no_measure) {
    speed.measure_rates = [&] { return RatesNow(*loaded, report.threads); };
  }
  const std::unique_ptr<TraceRecorder> trace = StartTrace(flags.trace, *loaded);
  report.phases = bench::MeasureSpeed(*loaded, speed);
  if (trace) trace->Write();
  progress.Clear();

  report.model = ModelNameOf(loaded->directory().path());
  report.family = FamilyName(loaded->directory().manifest().arch.family);
  report.kernels = loaded->kernel_description();
  report.expert_io = loaded->io_description();
  report.context = loaded->session().context();
  report.slots = loaded->plan().slots;
  report.all_experts = loaded->plan().all_experts;
  report.chunk_rows = loaded->plan().chunk_rows;
  report.budget_bytes = loaded->plan().budget_bytes;
  report.seed = speed.seed;
  report.runs = speed.runs;
  report.parts = loaded->ledger().parts();
  report.ledger_bytes = loaded->ledger().reserved_bytes();
  report.process = ReadProcessMemory();
  report.group = ReadGroupCharge();
  if (flags.load.json) {
    console.Print("{}\n", bench::ReportToJson(report).dump(2));
  } else {
    console.Write(bench::DescribeReport(report));
  }
  return 0;
}

}  // namespace

void AddBenchCommand(CommandSet& commands) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App& command =
      commands.Add("bench", "Speed of a model here, beside what this machine could do at best",
                   [flags](Console& console) { return Bench(*flags, console); });
  flags->load.Declare(command);
  AddParsed(command, "--prefill", "LIST", "Prompt lengths (128,512,2048), or none",
            [flags](const std::string& text) { flags->speed.prefill_tokens = ParseLengths(text); });
  AddParsed(command, "--decode", "N", "Tokens to decode (64); 0: none",
            [flags](const std::string& text) {
              flags->speed.decode_tokens = ParseInteger(text, 0, INT32_MAX);
            });
  AddParsed(command, "--decode-prompt", "N", "Prompt tokens before them (64)",
            [flags](const std::string& text) {
              flags->speed.decode_prompt = ParseInteger(text, 1, INT32_MAX);
            });
  AddParsed(command, "--runs", "N", "Runs of each, after one to warm up (3)",
            [flags](const std::string& text) {
              flags->speed.runs = static_cast<int>(ParseInteger(text, 1, 1000));
            });
  AddParsed(command, "--seed", "N", "Of the random prompts and of sampling (1)",
            [flags](const std::string& text) { flags->speed.seed = ParseUnsigned(text); });
  AddSwitch(command, "--no-measure", "Do not measure what the machine can do", flags->no_measure);
  AddTraceFlag(command, flags->trace);
  AddPath(command, "--compare", "A.json", "Compare the report A.json with the one given as MODEL",
          flags->compare);
}

}  // namespace mference::cli
