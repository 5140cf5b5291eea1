// `mference install`: from a checkpoint's files to a model that loads.

#include "base/units.h"
#include "cli/commands.h"
#include "cli/install_progress.h"
#include "cli/interrupts.h"
#include "install/install_paths.h"
#include "install/local_install.h"
#include "install/remote_install.h"
#include "model/catalogue.h"

namespace mference::cli {
namespace {

struct InstallFlags {
  std::string name;
  std::filesystem::path from;
  std::filesystem::path output;
  std::string revision;
  uint64_t rate_limit_bytes_per_s = 0;
  bool overwrite = false;
  bool discard = false;
  bool dry_run = false;
  bool trust_snapshot = false;
  bool audit = false;
  bool quiet = false;
  bool json = false;
};

// Where the install goes, for the commands that fetch nothing.
std::filesystem::path OutputOf(const InstallFlags& flags) {
  if (!flags.output.empty()) return flags.output;
  Require(flags.name, "NAME (or --output)");
  if (flags.from.empty() && flags.name.find('/') != std::string::npos) {
    return ModelPath(ResolveRemote(flags.name, flags.revision).name);
  }
  const PinnedSource* pinned = FindPinned(flags.name);
  return ModelPath(pinned != nullptr ? pinned->name : flags.name);
}

void PrintPlan(Console& console, const InstallAudit& audit) {
  console.Print(
      "Source revision: {}\nRange requests: {}\nSource bytes: {}\nOutput bytes: {}\n"
      "Resident entries: {}\nExpert layers: {}\nExcluded tensors: {}\n",
      audit.source.commit.empty() ? "local" : audit.source.commit, audit.range_count,
      audit.source_bytes, audit.output_bytes, audit.resident_entries, audit.expert_layers,
      audit.excluded_tensors.size());
}

void PrintResult(Console& console, const InstallFlags& flags, const InstallResult& result) {
  if (flags.audit) {
    console.Write(AuditToJson(result));
  } else if (flags.json) {
    console.Print("{}\n", Json{{"event", "done"},
                               {"dry_run", flags.dry_run},
                               {"model", result.directory.string()},
                               {"model_id", result.model_id},
                               {"pinned", result.audit.pinned},
                               {"source_bytes", result.audit.source_bytes},
                               {"output_bytes", result.audit.output_bytes}}
                              .dump());
  } else if (flags.dry_run) {
    PrintPlan(console, result.audit);
  } else {
    const InstallAudit& audit = result.audit;
    console.Print("Installed {}\nSource revision: {}\nModel: {}\n", result.model_id,
                  audit.source.commit.empty() ? "local" : audit.source.commit,
                  result.directory.string());
  }
}

int Discard(const InstallFlags& flags, Console& console) {
  if (!flags.from.empty() || flags.dry_run || flags.overwrite || flags.audit) {
    throw UsageError("--discard takes NAME or --output only");
  }
  const std::filesystem::path output = OutputOf(flags);
  DiscardPartialInstall(output);
  console.Print("Discarded saved download for {}\n", output.string());
  return 0;
}

InstallResult InstallFrom(const InstallFlags& flags, InstallOptions options) {
  if (!flags.from.empty()) {
    if (!flags.revision.empty() || flags.rate_limit_bytes_per_s > 0) {
      throw UsageError("--revision and --rate-limit are for downloads, not for --from");
    }
    options.output = OutputOf(flags);
    return InstallLocal(flags.from, flags.name, std::move(options));
  }
  Require(flags.name, "NAME");
  const RemoteTarget target = ResolveRemote(flags.name, flags.revision);
  RemoteOptions remote = RemoteOptionsFromEnvironment(target.repository, target.revision);
  remote.rate_limit_bytes_per_s = flags.rate_limit_bytes_per_s;
  remote.cancelled = &CancelRequested();
  options.output = flags.output;
  return InstallRemote(target, std::move(remote), std::move(options));
}

int RunInstall(const InstallFlags& flags, Console& console) {
  if (flags.discard) return Discard(flags, console);
  InstallProgress progress(
      console, flags.json ? ProgressForm::kJson
                          : (flags.quiet ? ProgressForm::kNone : ProgressForm::kPeople));
  const InterruptScope interrupts(InterruptMode::kCancel);
  InstallOptions options;
  options.overwrite = flags.overwrite;
  options.dry_run = flags.dry_run;
  options.trust_snapshot = flags.trust_snapshot;
  options.cancelled = &CancelRequested();
  options.on_event = [&progress](const InstallEvent& event) { progress.Show(event); };
  PrintResult(console, flags, InstallFrom(flags, std::move(options)));
  return 0;
}

}  // namespace

void AddInstallCommand(CommandSet& commands) {
  const auto flags = std::make_shared<InstallFlags>();
  CLI::App& command =
      commands.Add("install", "Install a model; run again, it continues where it stopped",
                   [flags](Console& console) { return RunInstall(*flags, console); });
  AddPositional(command, "NAME",
                "A name of the catalogue, ORG/REPO on the hub, or with --from a name of your own",
                flags->name);
  AddPath(command, "--from", "DIR", "A checkpoint's files: config, index, safetensors shards",
          flags->from);
  AddPath(command, "--output", "DIR", "Install to this directory instead of under the name",
          flags->output);
  AddText(command, "--revision", "REV", "Branch, tag or commit of the repository", flags->revision);
  AddParsed(command, "--rate-limit", "SIZE", "Most bytes to download per second, e.g. 5M",
            [flags = flags.get()](const std::string& text) {
              flags->rate_limit_bytes_per_s = ParseByteCount(text);
            });
  AddSwitch(command, "--overwrite", "Replace a model that is installed already", flags->overwrite);
  AddSwitch(command, "--discard", "Remove what an interrupted install saved", flags->discard);
  AddSwitch(command, "--dry-run", "Plan and check the disk, write nothing", flags->dry_run);
  AddSwitch(command, "--trust-snapshot",
            "Take shards of a catalogue model whose published digests are not at hand",
            flags->trust_snapshot);
  AddSwitch(command, "--audit", "Print JSON of every range and file", flags->audit);
  AddSwitch(command, "--quiet", "No progress", flags->quiet);
  AddSwitch(command, "--json", "Events as JSON lines on standard output", flags->json);
}

}  // namespace mference::cli
