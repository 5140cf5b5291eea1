#include "cli/load_flags.h"

#include <algorithm>
#include <random>

#include "base/units.h"
#include "cli/model_argument.h"

namespace mference::cli {
namespace {

constexpr int32_t kMaxThreads = 1024;

VerifyPolicy ParseVerifyPolicy(const std::string& text) {
  if (text == "full-sha256") return VerifyPolicy::kFullSha256;
  if (text == "trusted-receipt") return VerifyPolicy::kTrustedReceipt;
  if (text == "auto") return VerifyPolicy::kAuto;
  Fail(ErrorCode::kInvalidArgument, "expected full-sha256, trusted-receipt or auto");
}

ElementType ParseKvType(const std::string& text) {
  if (text == "f16") return ElementType::kF16;
  if (text == "f32") return ElementType::kF32;
  Fail(ErrorCode::kInvalidArgument, "expected f16 or f32");
}

int64_t ParseContext(const std::string& text) {
  return text == "auto" ? kAutomaticContext : ParseInteger(text, 1, int64_t{1} << 24);
}

int32_t ParseChunk(const std::string& text) {
  return text == "auto" ? 0 : static_cast<int32_t>(ParseInteger(text, 1, 4096));
}

std::string ParseKernels(const std::string& text) {
  constexpr std::string_view kKnown[] = {"auto",   "scalar", "avx2",     "avx2-vnni",
                                         "avx512", "neon",   "neon-i8mm"};
  if (std::find(std::begin(kKnown), std::end(kKnown), text) == std::end(kKnown)) {
    Fail(ErrorCode::kInvalidArgument,
         "expected auto, scalar, avx2, avx2-vnni, avx512, neon or neon-i8mm");
  }
  return text;
}

// One row per sampling parameter: how its text is read and where it goes.
struct SamplingFlag {
  const char* name;
  const char* placeholder;
  const char* help;
  void (*set)(SamplingFlags& flags, const std::string& text);
};

constexpr SamplingFlag kSamplingFlags[] = {
    {"temperature", "F", "0 is greedy",
     [](SamplingFlags& flags, const std::string& text) {
       flags.temperature = ParseReal(
           text, [](float v) { return v >= 0; }, "of at least 0");
     }},
    {"top-k", "N", "Most candidates kept, 0..256; 0 is off",
     [](SamplingFlags& flags, const std::string& text) {
       flags.top_k = ParseInteger(text, 0, 256);
     }},
    {"top-p", "F", "Probability mass kept, of the whole distribution; 1 is off",
     [](SamplingFlags& flags, const std::string& text) {
       flags.top_p = ParseReal(
           text, [](float v) { return v > 0 && v <= 1; }, "above 0 and up to 1");
     }},
    {"min-p", "F", "Drop candidates below this share of the best one; 0 is off",
     [](SamplingFlags& flags, const std::string& text) {
       flags.min_p = ParseReal(
           text, [](float v) { return v >= 0 && v <= 1; }, "from 0 to 1");
     }},
    {"repetition-penalty", "F", "Above 1 makes repeating less likely; 1 is off",
     [](SamplingFlags& flags, const std::string& text) {
       flags.repetition_penalty = ParseReal(
           text, [](float v) { return v > 0; }, "above 0");
     }},
    {"repeat-last-n", "N", "Generated tokens the penalty looks back at",
     [](SamplingFlags& flags, const std::string& text) {
       flags.repeat_last_n = ParseInteger(text, 0, INT32_MAX);
     }},
    {"seed", "N", "Same seed, same text; random and printed when left out",
     [](SamplingFlags& flags, const std::string& text) { flags.seed = ParseUnsigned(text); }},
    {"max-new", "N", "Most tokens to generate (1024)",
     [](SamplingFlags& flags, const std::string& text) {
       flags.max_new = ParseInteger(text, 1, INT32_MAX);
     }},
};

}  // namespace

void LoadFlags::Declare(CLI::App& command) {
  AddPositional(command, "MODEL", kModelHelp, model);
  AddParsed(command, "--memory", "SIZE",
            "Memory for the whole process, e.g. 6G; auto (default) takes what machine and control "
            "group can give",
            [this](const std::string& text) {
              options.memory_budget_bytes.reset();
              if (text != "auto") options.memory_budget_bytes = ParseByteCount(text);
            });
  AddParsed(
      command, "--context,--max-context", "N",
      "Most tokens of prompt and reply, or auto: up to 32768, as memory allows (4096; serve: auto)",
      [this](const std::string& text) { context = ParseContext(text); });
  AddParsed(command, "--expert-cache-slots", "N",
            "Cached experts per layer: 8, 16, 24, 32, 64, 96, 128, resident or auto (default)",
            [this](const std::string& text) { options.slots = ParseSlotRequest(text); });
  AddParsed(command, "--expert-io", "MODE",
            "How experts are read: direct, buffered, auto (default)",
            [this](const std::string& text) { options.expert_io = ParseExpertIo(text); });
  AddParsed(command, "--expert-policy", "NAME",
            "What the expert cache evicts: next-use (default), lfu, aged-lfu, lru or s3-fifo",
            [this](const std::string& text) { options.cache_policy = ParseCachePolicy(text); });
  AddParsed(command, "--expert-prefetch", "N",
            "Most experts read ahead of a token's next layer because they are likely (2)",
            [this](const std::string& text) {
              options.expert_prefetch = static_cast<int>(ParseInteger(text, 0, 64));
            });
  AddParsed(command, "--prefill-chunk", "N", "Most prompt tokens per step, or auto (default)",
            [this](const std::string& text) { options.chunk_rows = ParseChunk(text); });
  AddParsed(command, "--threads", "N", "Threads that compute; all processors by default",
            [this](const std::string& text) {
              options.threads = static_cast<int>(ParseInteger(text, 1, kMaxThreads));
            });
  AddParsed(command, "--kernels", "SET",
            "auto (default), scalar, avx2, avx2-vnni, avx512, neon or neon-i8mm",
            [this](const std::string& text) { options.kernels = ParseKernels(text); });
  AddParsed(command, "--verify", "POLICY",
            "full-sha256, trusted-receipt or auto (default: the receipt where it holds)",
            [this](const std::string& text) { options.verify = ParseVerifyPolicy(text); });
  AddParsed(command, "--kv", "TYPE", "Type of cached keys and values: f16 (default) or f32",
            [this](const std::string& text) { options.kv_type = ParseKvType(text); });
  AddSwitch(command, "--precise", "FP32 activations throughout: slower, closer to the reference",
            options.precise);
  AddSwitch(command, "--quiet", "No memory plan, notices and footer on standard error", quiet);
  AddSwitch(command, "--json", "What is said on standard error, as JSON lines", json);
}

std::unique_ptr<LoadedModel> LoadFromFlags(const LoadFlags& flags, int64_t default_context) {
  LoadOptions options = flags.options;
  options.path = ResolveModelPath(flags.model);
  options.context = flags.context.value_or(default_context);
  std::unique_ptr<LoadedModel> loaded = LoadedModel::Load(options);
  // The default adapts to the model; what was asked for does not change silently.
  if (const int64_t most = loaded->session().context(); flags.context.value_or(0) > most) {
    Fail(ErrorCode::kInvalidArgument,
         "--context {}: {} works with at most {} tokens; give at most that, or auto",
         *flags.context, ModelNameOf(options.path), most);
  }
  return loaded;
}

void AddTraceFlag(CLI::App& command, std::filesystem::path& trace) {
  AddPath(command, "--trace", "FILE", "Record which experts every token chose, for `replay`",
          trace);
}

std::unique_ptr<TraceRecorder> StartTrace(const std::filesystem::path& path, LoadedModel& loaded) {
  return path.empty() ? nullptr : std::make_unique<TraceRecorder>(path, loaded);
}

Json MemoryPlanToJson(const MemoryPlan& plan) {
  Json parts = Json::object();
  for (const LedgerPart& part : plan.parts) parts[part.name] = part.bytes;
  return {{"budget_bytes", plan.budget_bytes},
          {"planned_bytes", plan.planned_bytes},
          {"smallest_budget_bytes", plan.smallest_budget_bytes},
          {"parts", parts},
          {"tables_in_file_bytes", plan.tables_in_file_bytes},
          {"slots", plan.slots},
          {"experts", plan.all_experts},
          {"chunk_rows", plan.chunk_rows}};
}

void ShowLoaded(const LoadFlags& flags, LoadedModel& loaded, Console& console) {
  if (flags.quiet) return;
  const MemoryPlan& plan = loaded.plan();
  const ModelDirectory& directory = loaded.directory();
  const std::string name = ModelNameOf(directory.path());
  if (flags.json) {
    console.Note("{}\n", Json{{"loaded", name},
                              {"context", loaded.session().context()},
                              {"kernels", loaded.kernel_description()},
                              {"expert_io", loaded.io_description()},
                              {"memory_plan", MemoryPlanToJson(plan)}}
                             .dump());
    return;
  }
  console.Note("{} ({}{}), context {}; {}; {}\n{}", name,
               FamilyName(directory.manifest().arch.family), loaded.pinned() ? "" : ", unpinned",
               loaded.session().context(), loaded.kernel_description(), loaded.io_description(),
               DescribePlan(plan));
  if (!directory.receipt_problem().empty()) {
    console.Note("note: files are hashed on first use: {}\n", directory.receipt_problem());
  }
}

void SamplingFlags::Declare(CLI::App& command) {
  for (const SamplingFlag& flag : kSamplingFlags) {
    AddParsed(command, fmt::format("--{}", flag.name), flag.placeholder, flag.help,
              [this, &flag](const std::string& text) { flag.set(*this, text); });
  }
  AddText(command, "--stop", "TEXT", "End the reply before this text; may be repeated", stops);
}

SamplingParams SamplingFlags::Over(const SamplingParams& defaults) const {
  SamplingParams params = defaults;
  params.temperature = temperature.value_or(params.temperature);
  params.top_k = static_cast<int32_t>(top_k.value_or(params.top_k));
  params.top_p = top_p.value_or(params.top_p);
  params.min_p = min_p.value_or(params.min_p);
  params.repetition_penalty = repetition_penalty.value_or(params.repetition_penalty);
  params.repeat_last_n = static_cast<int32_t>(repeat_last_n.value_or(params.repeat_last_n));
  params.seed = seed ? *seed : RandomSeed();
  return params;
}

void SetSamplingFlag(SamplingFlags& flags, const std::string& name, const std::string& value) {
  std::string dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  if (dashed == "stop") {
    flags.stops.push_back(value);
    return;
  }
  std::string known;
  for (const SamplingFlag& flag : kSamplingFlags) {
    if (dashed == flag.name) {
      flag.set(flags, value);
      return;
    }
    known += fmt::format("{}, ", flag.name);
  }
  Fail(ErrorCode::kInvalidArgument, "unknown parameter {}; there are {}stop", name, known);
}

uint64_t RandomSeed() {
  std::random_device entropy;
  uint64_t seed = 0;
  while (seed == 0) seed = (uint64_t{entropy()} << 32) | entropy();
  return seed;
}

}  // namespace mference::cli
