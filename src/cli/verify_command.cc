// `mference verify`: whether an installed model is intact, and with --repair making it so.

#include <algorithm>

#include "base/machine.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/hub_flags.h"
#include "cli/install_progress.h"
#include "cli/interrupts.h"
#include "cli/model_argument.h"
#include "format/verify_directory.h"
#include "install/local_source.h"
#include "install/remote_install.h"
#include "install/repair.h"
#include "model/catalogue.h"

namespace mference::cli {
namespace {

// Repositories that are on no hub: of files nobody published, and of made-up weights.
constexpr std::string_view kLocalPrefix = "local/";
constexpr std::string_view kSyntheticPrefix = "synthetic/";

struct VerifyFlags {
  std::string model;
  bool repair = false;
  std::filesystem::path from;
  HubFlags hub;
  bool quiet = false;
  bool json = false;
};

// The repository and commit to download from, if it came from a hub.
std::optional<SourceIdentity> HubSourceOf(const std::optional<SourceIdentity>& origin) {
  const bool elsewhere = !origin || origin->repository.starts_with(kLocalPrefix) ||
                         origin->repository.starts_with(kSyntheticPrefix);
  return elsewhere ? std::nullopt : origin;
}

std::string HowToRepair(const VerifyFlags& flags, const std::filesystem::path& path) {
  const std::string model = flags.model.empty() ? path.string() : flags.model;
  const std::optional<SourceIdentity> origin = SourceOfInstall(path);
  if (HubSourceOf(origin)) {
    return fmt::format("`mference verify {} --repair` fetches what is damaged", model);
  }
  if (origin && origin->repository.starts_with(kSyntheticPrefix)) {
    return "`mference synth` with --overwrite makes it again";
  }
  return fmt::format(
      "`mference verify {} --repair --from DIR` takes what is damaged from the checkpoint's files",
      model);
}

int HashingThreads() { return std::max(2, AvailableProcessors()); }

Json ReportToJson(const VerifyReport& report) {
  Json problems = Json::array();
  for (const FileProblem& problem : report.problems) {
    problems.push_back({{"path", problem.path},
                        {"code", ErrorCodeName(problem.code)},
                        {"message", problem.message}});
  }
  return {{"ok", report.ok()},
          {"files", report.file_count},
          {"bytes", report.bytes},
          {"problems", problems},
          {"unexpected", report.unexpected},
          {"receipt", report.receipt.string()}};
}

void NoteUnexpected(Console& console, const VerifyReport& report) {
  for (const std::string& name : report.unexpected) {
    console.Note("warning: {} is not part of the model\n", name);
  }
}

void PrintVerified(Console& console, const VerifyReport& report) {
  console.Print("Verified {} files ({} bytes)\n", report.file_count, report.bytes);
  if (!report.receipt.empty()) console.Print("Receipt: {}\n", report.receipt.string());
}

int Verify(const VerifyFlags& flags, const std::filesystem::path& path, Console& console) {
  ProgressLine line(console);
  VerifyOptions options;
  options.threads = HashingThreads();
  options.resolve = ResolveModel;
  options.on_progress = [&](const VerifyProgress& progress) {
    ThrowIfCancelled();
    if (flags.quiet) return;
    line.Update([&] {
      return fmt::format(
          "verifying {} {}/{}", ProgressBar(progress.bytes_done, progress.bytes_total),
          FormatByteCount(progress.bytes_done), FormatByteCount(progress.bytes_total));
    });
  };
  const VerifyReport report = VerifyDirectory(path, options);
  line.Clear();
  if (flags.json) {
    console.Print("{}\n", ReportToJson(report).dump(2));
    return report.ok() ? 0 : 1;
  }
  NoteUnexpected(console, report);
  for (const FileProblem& problem : report.problems) {
    console.Note("{}: {}\n", ErrorCodeName(problem.code), problem.message);
  }
  if (!report.ok()) {
    Fail(report.problems.front().code, "verification failed: {} of {} files are damaged; {}",
         report.problems.size(), report.file_count, HowToRepair(flags, path));
  }
  PrintVerified(console, report);
  return 0;
}

// Where to fetch what is damaged; null when the model says nothing of use.
std::unique_ptr<SnapshotSource> SourceFor(const VerifyFlags& flags,
                                          const std::filesystem::path& path,
                                          const InstallEventSink& on_event) {
  if (!flags.from.empty()) return std::make_unique<LocalSource>(flags.from);
  const std::optional<SourceIdentity> origin = HubSourceOf(SourceOfInstall(path));
  if (!origin) return nullptr;
  RemoteOptions remote = flags.hub.Options(origin->repository, origin->commit);
  remote.on_retry = [on_event](const RetryNotice& notice) { on_event(EventOf(notice)); };
  return std::make_unique<RemoteSource>(std::move(remote));
}

int Repair(const VerifyFlags& flags, const std::filesystem::path& path, Console& console) {
  InstallProgress progress(console,
                           flags.quiet || flags.json ? ProgressForm::kNone : ProgressForm::kPeople);
  RepairOptions options;
  options.threads = HashingThreads();
  options.cancelled = &CancelRequested();
  options.on_event = [&progress](const InstallEvent& event) { progress.Show(event); };
  const std::unique_ptr<SnapshotSource> source = SourceFor(flags, path, options.on_event);
  // It may be intact; if not, it says what is missing.
  if (source == nullptr) return Verify(flags, path, console);
  const RepairResult result = RepairInstall(path, *source, options);
  progress.Clear();
  if (flags.json) {
    Json json = ReportToJson(result.report);
    json["repaired"] = result.damaged_files;
    json["fetched_ranges"] = result.fetched_ranges;
    json["fetched_bytes"] = result.fetched_bytes;
    console.Print("{}\n", json.dump(2));
    return 0;
  }
  NoteUnexpected(console, result.report);
  for (const std::string& file : result.damaged_files) console.Print("Repaired {}\n", file);
  if (!result.damaged_files.empty()) {
    console.Print("Fetched ranges: {} ({} bytes)\n", result.fetched_ranges, result.fetched_bytes);
  }
  PrintVerified(console, result.report);
  return 0;
}

int RunVerify(const VerifyFlags& flags, Console& console) {
  if (!flags.repair && (!flags.from.empty() || flags.hub.any())) {
    throw UsageError("--from, --base-url, --ca-file and --rate-limit are for --repair");
  }
  if (!flags.from.empty() && flags.hub.any()) {
    throw UsageError("--base-url, --ca-file and --rate-limit are for downloads, not for --from");
  }
  const std::filesystem::path path = ResolveModelPath(flags.model);
  const InterruptScope interrupts(InterruptMode::kCancel);
  return flags.repair ? Repair(flags, path, console) : Verify(flags, path, console);
}

}  // namespace

void AddVerifyCommand(CommandSet& commands) {
  const auto flags = std::make_shared<VerifyFlags>();
  CLI::App& command =
      commands.Add("verify", "Hash every file of a model and renew its receipt; or repair it",
                   [flags](Console& console) { return RunVerify(*flags, console); });
  AddPositional(command, "MODEL", kModelHelp, flags->model);
  AddSwitch(command, "--repair", "Fetch what is damaged, and only that", flags->repair);
  AddPath(command, "--from", "DIR", "Repair from a checkpoint's files instead of the hub",
          flags->from);
  flags->hub.Declare(command);
  AddSwitch(command, "--quiet", "No progress", flags->quiet);
  AddSwitch(command, "--json", "The report as JSON", flags->json);
}

}  // namespace mference::cli
