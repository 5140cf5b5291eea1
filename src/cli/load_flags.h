// The flags with which commands load a model and sample from it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/console.h"
#include "engine/loaded_model.h"
#include "engine/trace_recorder.h"

namespace mference::cli {

// MODEL, --memory, --context and the rest of what decides how a model is loaded.
struct LoadFlags {
  std::string model;
  LoadOptions options;  // all but `path` and `context`
  std::optional<int64_t> context;
  bool quiet = false;
  bool json = false;

  void Declare(CLI::App& command);
};

// Loads with `default_context` where --context was not given.
std::unique_ptr<LoadedModel> LoadFromFlags(const LoadFlags& flags, int64_t default_context = 4096);

// --trace FILE.
void AddTraceFlag(CLI::App& command, std::filesystem::path& trace);
// Records from now on if `path` says where to; null otherwise. Throws where nothing can be written.
std::unique_ptr<TraceRecorder> StartTrace(const std::filesystem::path& path, LoadedModel& loaded);

// What was loaded and how memory is shared out, on standard error; nothing if quiet.
void ShowLoaded(const LoadFlags& flags, LoadedModel& loaded, Console& console);
Json MemoryPlanToJson(const MemoryPlan& plan);

// --temperature and its kin: absent ones are left to the model's generation_config.json.
struct SamplingFlags {
  std::optional<float> temperature;
  std::optional<int64_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<int64_t> repeat_last_n;
  std::optional<uint64_t> seed;
  std::vector<std::string> stops;
  int64_t max_new = 1024;

  void Declare(CLI::App& command);
  // The model's defaults with the flags over them. Without --seed, a random one.
  SamplingParams Over(const SamplingParams& defaults) const;
};

// Sets one sampling parameter from text, as `--NAME` and `/set parameter NAME` do (with '-' or '_'
// in the name). Throws kInvalidArgument, also for an unknown name.
void SetSamplingFlag(SamplingFlags& flags, const std::string& name, const std::string& value);

// Never 0.
uint64_t RandomSeed();

}  // namespace mference::cli
