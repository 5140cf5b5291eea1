// `mference synth`: a checkpoint of real size with random weights, to measure with.

#include "base/units.h"
#include "cli/commands.h"
#include "cli/install_progress.h"
#include "cli/interrupts.h"
#include "install/installer.h"
#include "synth/snapshot_writer.h"
#include "synth/synthetic_source.h"

namespace mference::cli {
namespace {

struct SynthFlags {
  std::string family;
  std::filesystem::path directory;
  bool snapshot = false;
  double experts_skew = 0;
  uint64_t seed = 1;
  std::optional<int64_t> layers;
  bool overwrite = false;
  bool quiet = false;
  bool json = false;
};

int RunSynth(const SynthFlags& flags, Console& console) {
  Require(flags.family, "FAMILY");
  Require(flags.directory.string(), "--out");
  if (flags.snapshot && flags.overwrite) throw UsageError("--overwrite is for --format gturbo");
  InstallProgress progress(
      console, flags.json ? ProgressForm::kJson
                          : (flags.quiet ? ProgressForm::kNone : ProgressForm::kPeople));
  const InterruptScope interrupts(InterruptMode::kCancel);
  const InstallEventSink show = [&progress](const InstallEvent& event) { progress.Show(event); };
  SyntheticSource source({.arch = SyntheticArch(flags.family, flags.layers),
                          .seed = flags.seed,
                          .experts_skew = flags.experts_skew});
  std::filesystem::path written = flags.directory;
  if (flags.snapshot) {
    WriteSyntheticSnapshot(source, flags.directory, show, &CancelRequested());
  } else {
    InstallOptions options;
    options.output = flags.directory;
    options.overwrite = flags.overwrite;
    options.cancelled = &CancelRequested();
    options.on_event = show;
    written = Install(source, options).directory;
  }
  if (flags.json) {
    console.Print("{}\n", Json{{"event", "done"}, {"model", written.string()}}.dump());
  } else {
    console.Print("{}: {}\n", flags.snapshot ? "Snapshot" : "Model", written.string());
  }
  return 0;
}

}  // namespace

void AddSynthCommand(CommandSet& commands) {
  const auto flags = std::make_shared<SynthFlags>();
  CLI::App& command =
      commands.Add("synth", "Make a full-size model with random weights, to measure with",
                   [flags](Console& console) { return RunSynth(*flags, console); });
  AddPositional(command, "FAMILY", "gemma4 or qwen36", flags->family);
  AddPath(command, "--out", "DIR", "Directory to write", flags->directory);
  AddParsed(command, "--format", "FORMAT",
            "gturbo (default): a model that loads; snapshot: a checkpoint to install",
            [flags = flags.get()](const std::string& text) {
              if (text != "gturbo" && text != "snapshot") {
                Fail(ErrorCode::kInvalidArgument, "expected gturbo or snapshot");
              }
              flags->snapshot = text == "snapshot";
            });
  AddParsed(command, "--experts-skew", "Z",
            "Popularity of experts falls off like rank^-Z, and neighbouring tokens share some; "
            "0 (default): all alike, the worst case for a cache",
            [flags = flags.get()](const std::string& text) {
              flags->experts_skew = ParseReal(
                  text, [](float value) { return value >= 0 && value <= 4; }, "0 to 4");
            });
  AddParsed(command, "--seed", "N", "Other weights of the same kind (default 1)",
            [flags = flags.get()](const std::string& text) { flags->seed = ParseUnsigned(text); });
  AddInteger(command, "--layers", "N", "Fewer or more layers than the family's model has",
             flags->layers, 1, 100);
  AddSwitch(command, "--overwrite", "Replace a model that is there", flags->overwrite);
  AddSwitch(command, "--quiet", "No progress", flags->quiet);
  AddSwitch(command, "--json", "Events as JSON lines on standard output", flags->json);
}

}  // namespace mference::cli
