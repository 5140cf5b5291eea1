#include "install/repair.h"

#include <algorithm>

#include "base/error.h"
#include "base/sha256.h"
#include "format/manifest.h"
#include "format/receipt.h"
#include "install/install_paths.h"
#include "install/outputs.h"
#include "install/promotion.h"
#include "install/repack_plan.h"
#include "install/sidecars.h"
#include "install/snapshot.h"

namespace mference {
namespace {

class Repair {
 public:
  Repair(const std::filesystem::path& directory, SnapshotSource& source,
         const RepairOptions& options)
      : source_(source),
        options_(options),
        paths_(InstallPaths::For(files_, directory)),
        lock_(LockInstall(files_, paths_)),
        work_(paths_.final_directory / ".repair") {}

  RepairResult Run() {
    FinishInterruptedPromotion(files_, paths_);
    RemoveTree(files_, work_);  // of a repair that was interrupted
    try {
      FindDamage();
      if (!result_.report.ok()) {
        Plan();
        ReplaceDamage();
      }
    } catch (...) {
      RemoveTree(files_, work_);
      throw;
    }
    RemoveTree(files_, work_);
    files_.SyncDirectory(paths_.final_directory);
    if (result_.report.ok()) return std::move(result_);

    result_.report = Verify(true);
    if (!result_.report.ok()) {
      const FileProblem& problem = result_.report.problems.front();
      Fail(problem.code, "still damaged after the repair: {}", problem.message);
    }
    return std::move(result_);
  }

 private:
  void Emit(const InstallEvent& event) const {
    if (options_.on_event) options_.on_event(event);
  }
  void Progress(InstallPhase phase, uint64_t done, uint64_t total, std::string_view file) {
    if (!pace_.IsDue(phase, done, total)) return;
    Emit({.kind = InstallEvent::Kind::kProgress,
          .phase = phase,
          .fresh_bytes = done,
          .total_bytes = total,
          .file = std::string(file)});
  }
  void CheckCancelled() const {
    if (options_.cancelled != nullptr && options_.cancelled->load()) {
      Fail(ErrorCode::kCancelled, "stopped; running the repair again finishes it");
    }
  }

  VerifyReport Verify(bool write_receipt) {
    VerifyOptions verify;
    verify.threads = options_.threads;
    verify.write_receipt = write_receipt;
    verify.on_progress = [this](const VerifyProgress& progress) {
      CheckCancelled();
      Progress(InstallPhase::kHashing, progress.bytes_done, progress.bytes_total, progress.file);
    };
    Emit({.kind = InstallEvent::Kind::kPhase, .phase = InstallPhase::kHashing});
    return VerifyDirectory(paths_.final_directory, verify);
  }

  // Without a layout that can be read nothing else can be checked: it is made whole first.
  void FindDamage() {
    try {
      result_.report = Verify(true);
      return;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kLayoutCorrupt && error.code() != ErrorCode::kMissingFile) {
        throw;
      }
    }
    Plan();
    ReplaceSmallFile(std::string(kLayoutFile));
    result_.damaged_files.emplace_back(kLayoutFile);
    result_.report = Verify(true);
  }

  // The plan that the model was installed by, and what its ranges digested to.
  void Plan() {
    if (snapshot_.schema != nullptr) return;
    Emit({.kind = InstallEvent::Kind::kPhase, .phase = InstallPhase::kMetadata});
    manifest_ = ParseManifest(
        ReadWholeFile(files_, paths_.final_directory / kManifestFile, kMaxManifestBytes),
        std::string(kManifestFile));
    const std::optional<Checkpoint> seal = ReadSeal(files_, paths_);
    if (seal) {
      source_.UseCommit(seal->source.commit);
      recorded_ = seal->completed;
    }
    snapshot_ = LoadSnapshot(source_, nullptr);
    plan_ =
        PlanRepack(snapshot_, seal && seal->chunk_bytes > 0 ? seal->chunk_bytes : kMaxChunkBytes);
    const bool same = seal ? seal->plan_fingerprint == plan_.fingerprint
                           : manifest_.source_snapshot_hash == "sha256:" + snapshot_.index_sha256;
    if (!same) {
      Fail(ErrorCode::kInstallState, "{} was not installed from this source: nothing was changed",
           paths_.final_directory.string());
    }
    files_.CreateDirectory(work_);
    source_.UseWorkDirectory(files_, work_);
  }

  void ReplaceDamage() {
    const auto& planned = plan_.ranges.outputs;
    std::vector<bool> damaged(planned.size());
    for (const FileProblem& problem : result_.report.problems) {
      result_.damaged_files.push_back(problem.path);
      const auto output =
          std::find_if(planned.begin(), planned.end(),
                       [&](const PlannedOutput& file) { return file.path == problem.path; });
      if (output == planned.end()) {
        ReplaceSmallFile(problem.path);
      } else {
        damaged[output - planned.begin()] = true;
        RestoreFrame(static_cast<uint32_t>(output - planned.begin()));
      }
    }
    if (std::none_of(damaged.begin(), damaged.end(), [](bool is) { return is; })) return;

    const auto outputs =
        OutputFiles::OpenMatching(files_, paths_.final_directory, plan_.ranges, plan_.index_region);
    Check(outputs != nullptr, "outputs do not have their planned sizes");
    RangeCopier copier(plan_.ranges, *outputs, scratch_.bytes(), [this] { CheckCancelled(); });
    const std::vector<size_t> ranges = FindDamagedRanges(damaged, copier);
    uint64_t total = 0;
    for (const size_t range : ranges) total += plan_.ranges.ranges[range].bytes;
    Emit({.kind = InstallEvent::Kind::kPhase,
          .phase = InstallPhase::kCopying,
          .total_bytes = total});
    for (const size_t range : ranges) FetchRange(range, total, copier, *outputs);
  }

  // Everything of a payload file that no range brings: its size, the index, the padding. In place:
  // whoever has it open keeps it.
  void RestoreFrame(uint32_t output) {
    const PlannedOutput& planned = plan_.ranges.outputs[output];
    const std::filesystem::path path = paths_.final_directory / planned.path;
    const EntryType found = files_.Examine(path);
    if (found == EntryType::kOther) files_.RemoveFile(path);
    const std::unique_ptr<File> file = found == EntryType::kFile
                                           ? files_.OpenFile(path, FileAccess::kReadWrite)
                                           : files_.CreateFile(path, 0644);
    if (file->Size() != planned.bytes) file->Resize(planned.bytes);
    WriteWhatNoRangeHas(output, *file);
    file->Sync();
    files_.SyncDirectory(path.parent_path());
  }

  // Of the ranges that reach into damaged files, those that are not what was recorded; without a
  // record, all.
  std::vector<size_t> FindDamagedRanges(const std::vector<bool>& damaged, RangeCopier& copier) {
    std::vector<size_t> touching;
    uint64_t total = 0;
    for (size_t i = 0; i < plan_.ranges.ranges.size(); ++i) {
      const auto copies = plan_.ranges.CopiesOf(plan_.ranges.ranges[i]);
      if (std::none_of(copies.begin(), copies.end(),
                       [&](const ScalarCopy& copy) { return damaged[copy.output]; })) {
        continue;
      }
      touching.push_back(i);
      total += plan_.ranges.ranges[i].bytes;
    }
    Emit({.kind = InstallEvent::Kind::kPhase,
          .phase = InstallPhase::kCheckingSaved,
          .total_bytes = total});
    uint64_t checked = 0;
    std::erase_if(touching, [&](size_t range) {
      const bool intact = IsAsRecorded(range, copier);
      checked += plan_.ranges.ranges[range].bytes;
      Progress(InstallPhase::kCheckingSaved, checked, total, "");
      return intact;
    });
    return touching;
  }

  bool IsAsRecorded(size_t range, RangeCopier& copier) const {
    const auto recorded = recorded_.find(RangePlan::RangeId(range));
    return recorded != recorded_.end() &&
           copier.Redigest(range) == recorded->second.destination_digest;
  }

  void FetchRange(size_t number, uint64_t total, RangeCopier& copier, OutputFiles& outputs) {
    const SourceRange& range = plan_.ranges.ranges[number];
    const std::string& file =
        plan_.ranges.outputs[plan_.ranges.CopiesOf(range).front().output].path;
    const uint64_t before = result_.fetched_bytes;
    const std::unique_ptr<FetchedRange> bytes =
        source_.Fetch({.label = RangePlan::RangeId(number),
                       .shard = plan_.ranges.shards[range.shard],
                       .offset = range.offset,
                       .bytes = range.bytes,
                       .on_progress = [&](uint64_t received) {
                         Progress(InstallPhase::kCopying, before + received, total, file);
                       }});
    const std::string digest = copier.Copy(number, *bytes);
    const auto recorded = recorded_.find(RangePlan::RangeId(number));
    if (recorded != recorded_.end() && recorded->second.destination_digest != digest) {
      Fail(ErrorCode::kSourceInvalid,
           "{} is not what was installed: the source changed or is damaged",
           RangePlan::RangeId(number));
    }
    SyncOutputsOf(plan_.ranges, number, outputs);
    ++result_.fetched_ranges;
    result_.fetched_bytes += range.bytes;
    Progress(InstallPhase::kCopying, result_.fetched_bytes, total, file);
  }

  // The index and the padding between blobs.
  void WriteWhatNoRangeHas(uint32_t output, File& file) {
    uint64_t at = 0;
    if (plan_.ranges.outputs[output].path == kWeightsFile) {
      file.WriteAt(0, plan_.index_region);
      at = plan_.index_region.size();
    }
    std::vector<const ScalarCopy*> copies;
    for (const ScalarCopy& copy : plan_.ranges.copies) {
      if (copy.output == output) copies.push_back(&copy);
    }
    std::sort(copies.begin(), copies.end(), [](const ScalarCopy* a, const ScalarCopy* b) {
      return a->output_offset < b->output_offset;
    });
    for (const ScalarCopy* copy : copies) {
      ZeroRange(file, at, copy->output_offset);
      at = copy->output_offset + copy->output_bytes();
    }
    ZeroRange(file, at, plan_.ranges.outputs[output].bytes);
  }

  // Writes only where something else is: padding is a hole where the file system has holes.
  void ZeroRange(File& file, uint64_t begin, uint64_t end) {
    while (begin < end) {
      const auto tile =
          scratch_.bytes().first(std::min<uint64_t>(scratch_.bytes().size(), end - begin));
      file.ReadAt(begin, tile);
      if (std::any_of(tile.begin(), tile.end(),
                      [](std::byte byte) { return byte != std::byte{0}; })) {
        std::fill(tile.begin(), tile.end(), std::byte{0});
        file.WriteAt(begin, tile);
      }
      begin += tile.size();
    }
  }

  // layout.json and the sidecars: written beside, compared, renamed into place.
  void ReplaceSmallFile(const std::string& path) {
    RemoveTree(files_, work_);
    files_.CreateDirectory(work_);
    FileRecord written;
    if (path == kLayoutFile) {
      files_.CreateDirectory(work_ / kExpertsDirectory);
      written = WriteLayoutFile(files_, work_, plan_.layout);
    } else {
      const FileTable sidecars =
          InstallSidecars(source_, snapshot_.config_json, files_, work_, scratch_.bytes());
      const auto found = sidecars.find(path);
      if (found == sidecars.end()) {
        Fail(ErrorCode::kMissingFile, "{} is damaged and the source has none", path);
      }
      written = found->second;
    }
    if (written != manifest_.files.at(path)) {
      Fail(ErrorCode::kSourceInvalid, "{} of the source is not the one that was installed", path);
    }
    const std::filesystem::path target = paths_.final_directory / path;
    if (files_.Examine(target.parent_path()) == EntryType::kNone) {
      files_.CreateDirectory(target.parent_path());
    }
    files_.Rename(work_ / path, target);
    files_.SyncDirectory(target.parent_path());
  }

  SnapshotSource& source_;
  const RepairOptions& options_;
  FileSystem& files_ = PosixFiles();
  const InstallPaths paths_;
  const std::unique_ptr<FileLock> lock_;
  const std::filesystem::path work_;
  ScratchBuffer scratch_{kScratchBytes};

  Manifest manifest_;
  Snapshot snapshot_;
  RepackPlan plan_;
  std::map<std::string, CompletedRange> recorded_;
  ProgressPace pace_;
  RepairResult result_;
};

}  // namespace

std::optional<SourceIdentity> SourceOfInstall(const std::filesystem::path& directory) {
  FileSystem& files = PosixFiles();
  const InstallPaths paths = InstallPaths::For(files, directory);
  if (const auto seal = ReadSeal(files, paths)) return seal->source;
  const std::filesystem::path receipt_path = paths.final_directory / kReceiptFile;
  if (files.Examine(receipt_path) != EntryType::kFile) return std::nullopt;
  try {
    const Receipt receipt =
        ParseReceipt(ReadWholeFile(files, receipt_path, kMaxReceiptBytes), receipt_path.string());
    if (!receipt.source_repo_id || !receipt.source_revision) return std::nullopt;
    return SourceIdentity{.repository = *receipt.source_repo_id,
                          .requested_revision = *receipt.source_revision,
                          .commit = *receipt.source_revision};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kReceiptInvalid) throw;
    return std::nullopt;  // it says nothing that could be trusted
  }
}

RepairResult RepairInstall(const std::filesystem::path& directory, SnapshotSource& source,
                           const RepairOptions& options) {
  return Repair(directory, source, options).Run();
}

}  // namespace mference
