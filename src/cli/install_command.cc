// `mference install`: from a checkpoint's files to a model that loads.

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

#include "base/units.h"
#include "cli/commands.h"
#include "cli/hub_flags.h"
#include "cli/install_progress.h"
#include "cli/interrupts.h"
#include "engine/plan_estimate.h"
#include "install/install_paths.h"
#include "install/local_install.h"
#include "install/remote_install.h"
#include "model/catalogue.h"

namespace mference::cli {
namespace {

constexpr int64_t kMaxConnections = 16;
// What a repository's name never begins with.
constexpr std::array<std::string_view, 4> kPathBeginnings = {"/", "./", "../", "~"};

struct InstallFlags {
  std::string name;
  std::filesystem::path from;
  std::filesystem::path output;
  std::string revision;
  HubFlags hub;
  std::optional<int64_t> connections;
  bool skip_source_check = false;
  bool overwrite = false;
  bool discard = false;
  bool dry_run = false;
  bool trust_snapshot = false;
  bool audit = false;
  bool quiet = false;
  bool json = false;

  bool is_remote() const { return from.empty(); }
};

void RequireConsistent(const InstallFlags& flags) {
  const bool for_downloads =
      !flags.revision.empty() || flags.hub.any() || flags.connections || flags.skip_source_check;
  if (flags.discard && (!flags.is_remote() || for_downloads || flags.dry_run || flags.overwrite ||
                        flags.trust_snapshot || flags.audit)) {
    throw UsageError("--discard takes NAME or --output only");
  }
  if (!flags.is_remote() && for_downloads) {
    throw UsageError(
        "--revision, --base-url, --ca-file, --rate-limit, --connections and --skip-source-check "
        "are for downloads, not for --from");
  }
  if (flags.is_remote() && flags.trust_snapshot) {
    throw UsageError("--trust-snapshot is for --from; a download knows what was published");
  }
  if (flags.audit && flags.json) {
    throw UsageError("--audit prints one JSON document, --json prints lines: choose one");
  }
}

// The directory's name in place of the model's.
void RefuseSuffix(const InstallFlags& flags) {
  constexpr std::string_view kSuffix = ".gturbo";
  const std::string& name = flags.name;
  if (!name.ends_with(kSuffix) || name.find('/') != std::string::npos) return;
  throw UsageError(fmt::format(
      "NAME comes without {0}, which the directory's name gets: '{1}'; --output {2} installs to a "
      "directory of your choice",
      kSuffix, name.substr(0, name.size() - kSuffix.size()), name));
}

// A directory where a name belongs: nothing on a hub is meant.
void RefuseDirectory(const InstallFlags& flags) {
  const std::string& name = flags.name;
  if (!flags.is_remote() || FindPinned(name) != nullptr) return;
  const bool is_path = name == "." || name == ".." || name.ends_with('/') ||
                       std::any_of(kPathBeginnings.begin(), kPathBeginnings.end(),
                                   [&](std::string_view begin) { return name.starts_with(begin); });
  std::error_code error;
  const bool exists = std::filesystem::is_directory(name, error);
  const bool asks_for_hub = !flags.revision.empty() || !flags.hub.base_url.empty();
  if (is_path || (exists && !asks_for_hub)) {
    throw UsageError(fmt::format(
        "{0} is a {1}, not a name: `mference install --from {0} NAME` installs the checkpoint in "
        "it{2}",
        name, is_path ? "path" : "directory here",
        is_path ? "" : "; --revision main means the repository of that name on the hub"));
  }
}

// Where the install goes.
std::filesystem::path OutputOf(const InstallFlags& flags) {
  if (!flags.output.empty()) return flags.output;
  Require(flags.name, "NAME (or --output)");
  if (flags.is_remote() && flags.name.find('/') != std::string::npos) {
    return ModelPath(ResolveRemote(flags.name, flags.revision).name);
  }
  const PinnedSource* pinned = FindPinned(flags.name);
  return ModelPath(pinned != nullptr ? pinned->name : flags.name);
}

// --- What to type next ------------------------------------------------------------------------

// `text` as one word of a shell.
std::string Quoted(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("-_./:@%+=,").find(c) != std::string_view::npos;
  });
  if (plain) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string ResumeCommand(const InstallFlags& flags) {
  std::string command = "mference install";
  const auto add = [&command](const char* flag, const std::string& value) {
    if (!value.empty()) command += fmt::format(" {}{}", flag, Quoted(value));
  };
  add("", flags.name);
  add("--from ", flags.from.string());
  add("--revision ", flags.revision);
  add("--output ", flags.output.string());
  add("--base-url ", flags.hub.base_url);
  add("--ca-file ", flags.hub.ca_file.string());
  return command;
}

std::string DiscardCommand(const InstallFlags& flags) {
  return "mference install --discard " +
         (flags.output.empty() ? Quoted(flags.name) : "--output " + Quoted(flags.output.string()));
}

// Whether running again, as it is or after the user did something, can go on from what is saved.
bool CanContinueAfter(ErrorCode code) {
  return code == ErrorCode::kCancelled || code == ErrorCode::kNetwork ||
         code == ErrorCode::kDiskFull || code == ErrorCode::kIo;
}

// The error with what is saved, and how to go on. Only what the transaction itself knows how to
// continue is promised.
Error WithAdvice(const InstallFlags& flags, const Error& error) {
  const bool paused = error.code() == ErrorCode::kCancelled;
  std::optional<SavedDownload> saved;
  try {
    saved = FindSavedDownload(OutputOf(flags));
  } catch (const Error&) {
    // Then there is nothing to promise.
  }
  if (!saved) return paused ? Error(error.code(), "stopped; nothing was saved yet") : error;
  return {error.code(), fmt::format("{}; {} of {} are saved\n  to go on:    {}\n  to give up:  {}",
                                    paused ? "paused" : error.what(),
                                    FormatByteCount(saved->completed_source_bytes),
                                    FormatByteCount(saved->total_source_bytes),
                                    ResumeCommand(flags), DiscardCommand(flags))};
}

// --- Output -----------------------------------------------------------------------------------

std::string RevisionOf(const InstallAudit& audit) {
  return audit.source.commit.empty() ? "local" : audit.source.commit;
}

// The smallest --memory that runs the model, with the default context: not below what loading asks.
uint64_t SmallestBudgetBytes(const InstallAudit& audit) {
  LoadOptions options;
  options.memory_budget_bytes = std::numeric_limits<int64_t>::max();
  return PlanMemory(EstimatePlanInput({.arch = audit.arch,
                                       .weight_bytes = audit.weights_file_bytes,
                                       .expert_stride = audit.expert_stride},
                                      options))
             .smallest_budget_mib() *
         kMiB;
}

void PrintPlan(Console& console, const InstallAudit& audit) {
  console.Print(
      "Source revision: {}\nRange requests: {}\nSource bytes: {}\nOutput bytes: {}\n"
      "Resident entries: {}\nExpert layers: {}\nExcluded tensors: {}\n",
      RevisionOf(audit), audit.range_count, audit.source_bytes, audit.output_bytes,
      audit.resident_entries, audit.expert_layers, audit.excluded_tensors.size());
  console.Print("Disk needed: {}\nDisk available: {}\nSmallest memory budget: {}\n",
                audit.disk.required_bytes(), audit.disk.available_bytes,
                SmallestBudgetBytes(audit));
}

void PrintResult(Console& console, const InstallFlags& flags, const InstallResult& result) {
  const InstallAudit& audit = result.audit;
  const bool shows_plan = flags.dry_run && !result.promotion_only;
  if (flags.audit) {
    console.Write(AuditToJson(result));
  } else if (flags.json) {
    Json done = {{"event", "done"},
                 {"dry_run", flags.dry_run},
                 {"model", result.directory.string()},
                 {"model_id", result.model_id},
                 {"revision", RevisionOf(audit)},
                 {"pinned", audit.pinned},
                 {"source_bytes", audit.source_bytes},
                 {"reused_bytes", audit.reused_source_bytes},
                 {"output_bytes", audit.output_bytes}};
    if (shows_plan) {
      done["disk_needed_bytes"] = audit.disk.required_bytes();
      done["disk_available_bytes"] = audit.disk.available_bytes;
      done["smallest_memory_bytes"] = SmallestBudgetBytes(audit);
    }
    console.Print("{}\n", done.dump());
  } else if (shows_plan) {
    PrintPlan(console, audit);
  } else {
    console.Print("Installed {}\nSource revision: {}\nModel: {}\n", result.model_id,
                  RevisionOf(audit), result.directory.string());
  }
}

// --- The work ---------------------------------------------------------------------------------

int Discard(const InstallFlags& flags, Console& console) {
  const std::filesystem::path output = OutputOf(flags);
  DiscardPartialInstall(output);
  if (flags.json) {
    console.Print("{}\n", Json{{"discarded", output.string()}}.dump());
  } else {
    console.Print("Discarded saved download for {}\n", output.string());
  }
  return 0;
}

InstallResult InstallFrom(const InstallFlags& flags, InstallOptions options, Console& console) {
  if (!flags.is_remote()) {
    options.output = OutputOf(flags);
    return InstallLocal(flags.from, flags.name, std::move(options));
  }
  Require(flags.name, "NAME");
  const RemoteTarget target = ResolveRemote(flags.name, flags.revision);
  if (target.expected != nullptr && !flags.quiet && !flags.json) {
    const PinnedSource& pinned = *target.expected;
    console.Note("{}: {} to download, {} on disk; licence: {}\n", pinned.display_name,
                 FormatByteCount(pinned.download_bytes), FormatByteCount(pinned.installed_bytes),
                 pinned.licence);
  }
  options.output = flags.output;
  options.verify_source = !flags.skip_source_check;
  if (flags.connections) options.ranges_in_flight = static_cast<int>(*flags.connections);
  return InstallRemote(target, flags.hub.Options(target.repository, target.revision),
                       std::move(options));
}

int RunInstall(const InstallFlags& flags, Console& console) {
  RequireConsistent(flags);
  RefuseSuffix(flags);
  RefuseDirectory(flags);
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
  try {
    const InstallResult result = InstallFrom(flags, std::move(options), console);
    PrintResult(console, flags, result);
    if (flags.dry_run) RequireSpace(result.audit.disk, result.directory);
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    progress.Clear();
    if (!CanContinueAfter(error.code())) throw;
    throw WithAdvice(flags, error);
  }
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
  flags->hub.Declare(command);
  AddInteger(command, "--connections", "N", "Byte ranges to download at once (default 4)",
             flags->connections, 1, kMaxConnections);
  AddSwitch(command, "--skip-source-check",
            "Do not download what only the published digests of whole files need",
            flags->skip_source_check);
  AddSwitch(command, "--overwrite", "Replace a model that is installed already", flags->overwrite);
  AddSwitch(command, "--discard", "Remove what an interrupted install saved", flags->discard);
  AddSwitch(command, "--dry-run", "Show the plan and check the disk, write nothing",
            flags->dry_run);
  AddSwitch(command, "--trust-snapshot",
            "Take shards of a catalogue model whose published digests are not at hand",
            flags->trust_snapshot);
  AddSwitch(command, "--audit", "Print JSON of every range and file", flags->audit);
  AddSwitch(command, "--quiet", "No progress", flags->quiet);
  AddSwitch(command, "--json", "Events as JSON lines on standard output", flags->json);
}

}  // namespace mference::cli
