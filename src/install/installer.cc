#include "install/installer.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "base/units.h"
#include "format/layout.h"
#include "format/manifest.h"
#include "format/receipt.h"
#include "install/install_paths.h"
#include "install/model_tree.h"
#include "install/output_hasher.h"
#include "install/outputs.h"
#include "install/promotion.h"
#include "install/repack_plan.h"
#include "install/sidecars.h"
#include "install/snapshot.h"
#include "install/source_verifier.h"
#include "install/transfer.h"

namespace mference {
namespace {

constexpr uint64_t kDefaultReserveBytes = 256 * kMiB;
constexpr uint64_t kSourceHashTile = kScratchBytes;

using Clock = std::chrono::steady_clock;

// One run of the transaction, under the lock.
class Transaction {
 public:
  Transaction(SnapshotSource& source, const InstallOptions& options)
      : source_(source),
        options_(options),
        files_(options.files != nullptr ? *options.files : PosixFiles()),
        paths_(InstallPaths::For(files_, options.output)),
        lock_(LockInstall(files_, paths_)) {}

  InstallResult Run() {
    const bool promoted = FinishInterruptedPromotion(files_, paths_);
    if (promoted && IsWhatWasAskedFor()) return AlreadyInstalled();
    RequireFreePlace();
    const std::optional<Checkpoint> saved = FindSaved();

    Phase(InstallPhase::kMetadata);
    if (saved) source_.UseCommit(saved->source.commit);
    snapshot_ = LoadSnapshot(source_, options_.expected);
    if (source_.is_remote() && snapshot_.pinned == nullptr) {
      Warn(InstallPhase::kMetadata,
           fmt::format("{} is not pinned; to pin it, remember commit {} and index SHA-256 {}",
                       source_.identity().repository, source_.identity().commit,
                       snapshot_.index_sha256));
    }
    RequireSidecars(source_);
    VerifyShards();

    Phase(InstallPhase::kPlanning);
    plan_ = PlanRepack(snapshot_,
                       saved && saved->chunk_bytes > 0 ? saved->chunk_bytes : options_.chunk_bytes);
    if (saved) RequireSamePlan(*saved);
    CheckDisk(saved ? saved->completed_destination_bytes() : 0);
    if (!options_.dry_run) {
      Prepare(saved);
      Copy();
      Finish();
    }
    return Result();
  }

 private:
  void Emit(const InstallEvent& event) const {
    if (options_.on_event) options_.on_event(event);
  }
  void Phase(InstallPhase phase, uint64_t total_bytes = 0) const {
    CheckCancelled();
    Emit({.kind = InstallEvent::Kind::kPhase, .phase = phase, .total_bytes = total_bytes});
  }
  void Warn(InstallPhase phase, std::string message) const {
    Emit({.kind = InstallEvent::Kind::kWarning, .phase = phase, .message = std::move(message)});
  }
  void CheckCancelled() const {
    if (options_.cancelled != nullptr && options_.cancelled->load()) {
      Fail(ErrorCode::kCancelled, "stopped; installing to {} again continues where this ended",
           paths_.final_directory.string());
    }
  }

  // --- What is there ------------------------------------------------------------------------

  bool IsWhatWasAskedFor() const {
    const auto seal = ReadSeal(files_, paths_);
    const SourceIdentity wanted = source_.identity();
    return seal && seal->source.repository == wanted.repository &&
           seal->source.requested_revision == wanted.requested_revision;
  }

  InstallResult AlreadyInstalled() const {
    Phase(InstallPhase::kDone);
    InstallResult result;
    result.directory = paths_.final_directory;
    result.model_id = ParseManifest(ReadWholeFile(files_, paths_.final_directory / kManifestFile,
                                                  kMaxManifestBytes),
                                    std::string(kManifestFile))
                          .model_id;
    result.promotion_only = true;
    if (const auto seal = ReadSeal(files_, paths_)) result.audit.source = seal->source;
    return result;
  }

  void RequireFreePlace() const {
    if (files_.Examine(paths_.final_directory) == EntryType::kNone) return;
    if (!LooksLikeModel(files_, paths_.final_directory)) {
      Fail(ErrorCode::kInstallState,
           "{} exists and is not a model, so it is not replaced: choose another place",
           paths_.final_directory.string());
    }
    if (!options_.overwrite) {
      Fail(ErrorCode::kInstallState,
           "output directory already exists: {}; `verify` checks it, --overwrite replaces it",
           paths_.final_directory.string());
    }
  }

  // The checkpoint of a saved download of this source. Anything that is not one is wiped (a crash
  // before the first checkpoint leaves a directory with nothing of value) or refused.
  std::optional<Checkpoint> FindSaved() {
    const bool has_partial = files_.Examine(paths_.partial) != EntryType::kNone;
    const bool has_checkpoint = files_.Examine(paths_.checkpoint) != EntryType::kNone;
    if (!has_partial || !has_checkpoint) {
      if (options_.resume == ResumeMode::kRequire) {
        Fail(ErrorCode::kInstallState, "no resumable install state for {}",
             paths_.final_directory.string());
      }
      return std::nullopt;
    }
    if (options_.resume == ResumeMode::kRefuse) {
      Fail(ErrorCode::kInstallState, "a saved download exists for {}: resume or discard it",
           paths_.final_directory.string());
    }
    Checkpoint saved = ReadCheckpoint(files_, paths_.checkpoint);
    const SourceIdentity wanted = source_.identity();
    if (saved.source.repository != wanted.repository ||
        saved.source.requested_revision != wanted.requested_revision) {
      Fail(ErrorCode::kInstallState,
           "the saved download in {} belongs to a different source ({} at {}, not {} at {}): "
           "finish it or discard it first",
           paths_.partial.string(), saved.source.repository, saved.source.requested_revision,
           wanted.repository, wanted.requested_revision);
    }
    return saved;
  }

  void RequireSamePlan(const Checkpoint& saved) const {
    if (saved.source.commit != source_.identity().commit ||
        saved.source_index_sha256 != snapshot_.index_sha256 ||
        saved.plan_fingerprint != plan_.fingerprint ||
        saved.total_source_bytes != plan_.ranges.source_bytes()) {
      Fail(ErrorCode::kInstallState,
           "the source or the copy plan of the saved download in {} changed: discard it and start "
           "again",
           paths_.partial.string());
    }
  }

  // --- Before the first byte ----------------------------------------------------------------

  // Shards from a foreign downloader are not trusted: sizes and headers can be right and tensors
  // garbage. Whatever digest was published decides; without one a pinned snapshot needs a word.
  void VerifyShards() {
    if (source_.is_remote()) return;
    uint64_t total = 0;
    for (const SourceShard& shard : snapshot_.shards) {
      if (!shard.info.sha256.empty()) total += shard.info.bytes;
      if (shard.info.sha256.empty() && snapshot_.pinned != nullptr && !options_.trust_snapshot) {
        Fail(ErrorCode::kSourceInvalid,
             "no published digest is at hand for {}: nothing says that the download is intact. "
             "Use a hub cache directory, or --trust-snapshot to take it as it is",
             shard.name);
      }
    }
    if (total == 0) return;
    Phase(InstallPhase::kVerifyingSource, total);
    ScratchBuffer scratch(kScratchBytes);
    uint64_t done = 0;
    for (const SourceShard& shard : snapshot_.shards) {
      if (shard.info.sha256.empty()) continue;
      const std::unique_ptr<FetchedRange> bytes =
          source_.Fetch({.label = shard.name, .shard = shard.name, .bytes = shard.info.bytes});
      Sha256 hash;
      for (uint64_t at = 0; at < shard.info.bytes; at += kSourceHashTile) {
        CheckCancelled();
        const auto tile =
            scratch.bytes().first(std::min<uint64_t>(kSourceHashTile, shard.info.bytes - at));
        bytes->ReadAt(at, tile);
        hash.Update(tile);
        done += tile.size();
        Progress(InstallPhase::kVerifyingSource, 0, done, total, shard.name);
      }
      if (const std::string found = hash.FinishHex(); found != shard.info.sha256) {
        Fail(ErrorCode::kSourceInvalid, "{} has SHA-256 {}, published is {}: download it again",
             shard.name, found, shard.info.sha256);
      }
    }
  }

  void CheckDisk(uint64_t recorded_bytes) {
    Phase(InstallPhase::kCheckingDisk);
    const uint64_t payload = plan_.ranges.output_bytes();
    disk_ = {
        .missing_bytes = payload - std::min(payload, recorded_bytes),
        .staging_bytes = source_.is_remote() ? plan_.ranges.chunk_bytes *
                                                   static_cast<uint64_t>(options_.ranges_in_flight)
                                             : 0,
        .reserve_bytes = options_.reserve_bytes.value_or(
            snapshot_.pinned != nullptr ? snapshot_.pinned->reserve_bytes : kDefaultReserveBytes),
        .available_bytes = files_.AvailableBytes(paths_.parent)};
    if (!options_.dry_run) RequireSpace(disk_, paths_.final_directory);
  }

  // --- The payload --------------------------------------------------------------------------

  void Prepare(const std::optional<Checkpoint>& saved) {
    if (saved) {
      checkpoint_ = *saved;
      outputs_ =
          OutputFiles::OpenMatching(files_, paths_.partial, plan_.ranges, plan_.index_region);
      if (outputs_ == nullptr)
        Warn(InstallPhase::kCheckingSaved,
             "saved files do not match; "
             "starting over");
    }
    if (outputs_ == nullptr) {
      StartPartial();
    } else {
      DropDamagedRanges();
    }
    source_.UseWorkDirectory(files_, paths_.partial);
  }

  void StartPartial() {
    Phase(InstallPhase::kReservingOutput, plan_.ranges.output_bytes());
    if (files_.Examine(paths_.checkpoint) != EntryType::kNone) {
      files_.RemoveFile(paths_.checkpoint);
      files_.SyncDirectory(paths_.parent);
    }
    RemoveTree(files_, paths_.partial);
    try {
      files_.CreateDirectory(paths_.partial);
      files_.SyncDirectory(paths_.parent);
      outputs_ = std::make_unique<OutputFiles>(
          OutputFiles::Create(files_, paths_.partial, plan_.ranges, plan_.index_region));
      checkpoint_ = {.source = source_.identity(),
                     .source_index_sha256 = snapshot_.index_sha256,
                     .plan_fingerprint = plan_.fingerprint,
                     .chunk_bytes = plan_.ranges.chunk_bytes,
                     .total_source_bytes = plan_.ranges.source_bytes(),
                     .completed = {},
                     .source_progress = {},
                     .manifest_sha256 = {}};
      WriteCheckpoint(files_, paths_.checkpoint, checkpoint_);
    } catch (const Error&) {
      // Nothing worth keeping yet.
      outputs_.reset();
      try {
        RemoveTree(files_, paths_.partial);
      } catch (const Error&) {
        // The first error is the one to tell.
      }
      throw;
    }
  }

  // Keeps the recorded ranges that are what was recorded, and forgets the others.
  void DropDamagedRanges() {
    const uint64_t total = checkpoint_.completed_source_bytes();
    Phase(InstallPhase::kCheckingSaved, total);
    uint64_t known = 0;
    uint64_t checked_bytes = 0;
    RangeCopier copier(plan_.ranges, *outputs_, scratch_.bytes(), [this] { CheckCancelled(); });
    for (size_t i = 0; i < plan_.ranges.ranges.size(); ++i) {
      const auto recorded = checkpoint_.completed.find(RangePlan::RangeId(i));
      if (recorded == checkpoint_.completed.end()) continue;
      ++known;
      const SourceRange& range = plan_.ranges.ranges[i];
      if (recorded->second.source_bytes != range.bytes ||
          recorded->second.destination_bytes != plan_.ranges.OutputBytesOf(range)) {
        Fail(ErrorCode::kInstallState,
             "{}: {} has sizes that do not belong to the plan; the saved "
             "download can only be discarded",
             paths_.checkpoint.string(), recorded->first);
      }
      if (copier.Redigest(i) != recorded->second.destination_digest) {
        Warn(InstallPhase::kCheckingSaved,
             fmt::format("{} is damaged on disk and will be fetched again", recorded->first));
        dropped_digests_.emplace(recorded->first, recorded->second.destination_digest);
        checkpoint_.completed.erase(recorded);
        --known;
      } else {
        reused_bytes_ += range.bytes;
        reused_.push_back(i);
      }
      checked_bytes += range.bytes;
      Progress(InstallPhase::kCheckingSaved, 0, checked_bytes, total, "");
    }
    if (known != checkpoint_.completed.size()) {
      Fail(ErrorCode::kInstallState,
           "{} names ranges that the plan does not have; the saved "
           "download can only be discarded",
           paths_.checkpoint.string());
    }
    if (!dropped_digests_.empty()) WriteCheckpoint(files_, paths_.checkpoint, checkpoint_);
  }

  void Copy() {
    const uint64_t total = plan_.ranges.source_bytes();
    Phase(InstallPhase::kCopying, total);
    hasher_ = std::make_unique<OutputHasher>(plan_.ranges, *outputs_, options_.background);
    for (const size_t range : reused_) hasher_->MarkWritten(range);
    RangeCopier copier(
        plan_.ranges, *outputs_, scratch_.bytes(), [this] { CheckCancelled(); },
        options_.background);
    std::optional<SourceVerifier> verifier;
    const Checkpoint saved = checkpoint_;
    if (source_.is_remote() && options_.verify_source) {
      WarnUnlessPublished();
      verifier.emplace(source_, plan_.ranges, snapshot_.shards, saved, scratch_.bytes(),
                       [this] { CheckCancelled(); });
    }
    const TransferFiles target{.files = files_,
                               .checkpoint_path = paths_.checkpoint,
                               .outputs = *outputs_,
                               .hasher = *hasher_,
                               .copier = copier};
    TransferRanges(source_, plan_.ranges, checkpoint_, target,
                   {.ranges_in_flight = source_.is_remote() ? options_.ranges_in_flight : 1,
                    .background_commit = options_.background,
                    .check_cancelled = [this] { CheckCancelled(); },
                    .on_progress =
                        [&](uint64_t fresh) {
                          Progress(InstallPhase::kCopying, reused_bytes_, fresh, total, "");
                        }},
                   dropped_digests_, verifier ? &*verifier : nullptr);
    if (verifier) verification_bytes_ = verifier->extra_bytes();
    copied_tiles_ = copier.tiles();
  }

  void WarnUnlessPublished() const {
    for (const SourceShard& shard : snapshot_.shards) {
      if (!shard.info.sha256.empty()) continue;
      Warn(InstallPhase::kCopying,
           fmt::format("no digest is published for {}: its content cannot be checked as a whole",
                       shard.name));
    }
  }

  // --- The rest -----------------------------------------------------------------------------

  void Finish() {
    const uint64_t payload = plan_.ranges.output_bytes();
    Phase(InstallPhase::kHashing, payload);
    const std::vector<FileRecord> records = hasher_->Finish([&](uint64_t hashed) {
      CheckCancelled();
      Progress(InstallPhase::kHashing, 0, hashed, payload, "");
    });
    hasher_.reset();
    outputs_.reset();

    Phase(InstallPhase::kFinalizing);
    Manifest manifest = MakeManifest(snapshot_, plan_);
    for (size_t i = 0; i < records.size(); ++i) {
      manifest.files.emplace(plan_.ranges.outputs[i].path, records[i]);
    }
    manifest.files.emplace(std::string(kLayoutFile),
                           WriteLayoutFile(files_, paths_.partial, plan_.layout));
    for (auto& [path, record] : InstallSidecars(source_, snapshot_.config_json, files_,
                                                paths_.partial, scratch_.bytes())) {
      manifest.files.emplace(path, record);
    }
    files_.SyncDirectory(paths_.partial / kExpertsDirectory);
    files_.SyncDirectory(paths_.partial / kTokenizerDirectory);
    CheckLayout(plan_.layout, manifest, std::string(kLayoutFile));
    RemoveStrangers(manifest);

    CheckCancelled();
    const std::string manifest_json = ManifestToJson(manifest);
    ReplaceFile(files_, paths_.partial / kManifestFile, manifest_json);
    Receipt receipt =
        MakeReceipt(manifest, manifest_json, paths_.final_directory, kInstallToolVersion,
                    options_.now ? options_.now() : std::time(nullptr));
    receipt.source_repo_id = checkpoint_.source.repository;
    receipt.source_revision = checkpoint_.source.commit;
    ReplaceFile(files_, paths_.partial / kReceiptFile, ReceiptToJson(receipt));

    Promote(files_, paths_, checkpoint_, options_.overwrite);
    manifest_ = std::move(manifest);
    Phase(InstallPhase::kDone);
  }

  // Leftovers of interrupted runs, such as transfer files: the directory ends up holding exactly
  // what the manifest lists.
  void RemoveStrangers(const Manifest& manifest) {
    for (const std::string& name : files_.List(paths_.partial)) {
      const std::filesystem::path path = paths_.partial / name;
      if (files_.Examine(path) == EntryType::kDirectory || manifest.files.contains(name)) continue;
      files_.RemoveFile(path);
    }
  }

  void Progress(InstallPhase phase, uint64_t reused, uint64_t fresh, uint64_t total,
                const std::string& file) {
    if (!pace_.IsDue(phase, reused + fresh, total)) return;
    Emit({.kind = InstallEvent::Kind::kProgress,
          .phase = phase,
          .reused_bytes = reused,
          .fresh_bytes = fresh,
          .total_bytes = total,
          .file = file});
  }

  InstallResult Result() const {
    InstallResult result;
    result.directory = paths_.final_directory;
    result.model_id = MakeManifest(snapshot_, plan_).model_id;
    InstallAudit& audit = result.audit;
    audit.source = source_.identity();
    audit.source_index_sha256 = snapshot_.index_sha256;
    audit.plan_fingerprint = plan_.fingerprint;
    audit.pinned = snapshot_.pinned != nullptr;
    audit.resident_entries = plan_.resident_index.tensors.size();
    audit.expert_layers = plan_.ranges.outputs.size() - 1;
    audit.arch = snapshot_.arch;
    audit.weights_file_bytes =
        plan_.resident_index.index_bytes + plan_.resident_index.resident_bytes;
    audit.expert_stride = plan_.layout.expert_stride;
    audit.output_bytes = plan_.ranges.output_bytes();
    audit.disk = disk_;
    audit.source_bytes = plan_.ranges.source_bytes();
    audit.gap_bytes = plan_.ranges.gap_bytes();
    audit.reused_source_bytes = reused_bytes_;
    audit.range_count = plan_.ranges.ranges.size();
    audit.dropped_ranges = dropped_digests_.size();
    audit.verification_bytes = verification_bytes_;
    audit.copied_tiles = copied_tiles_;
    audit.largest_scratch_bytes = kScratchBytes;
    audit.chunk_bytes = plan_.ranges.chunk_bytes;
    audit.bit_width_overrides_honored =
        static_cast<int64_t>(snapshot_.quantization.override_count());
    audit.excluded_tensors = plan_.excluded;
    audit.wall_time_s = std::chrono::duration<double>(Clock::now() - started_).count();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    audit.peak_rss_bytes = static_cast<uint64_t>(usage.ru_maxrss) * kKiB;
    for (size_t i = 0; i < plan_.ranges.ranges.size(); ++i) {
      const SourceRange& range = plan_.ranges.ranges[i];
      const auto recorded = checkpoint_.completed.find(RangePlan::RangeId(i));
      audit.ranges.push_back({.id = RangePlan::RangeId(i),
                              .shard = plan_.ranges.shards[range.shard],
                              .offset = range.offset,
                              .bytes = range.bytes,
                              .destination_digest = recorded == checkpoint_.completed.end()
                                                        ? std::string()
                                                        : recorded->second.destination_digest,
                              .reused = std::binary_search(reused_.begin(), reused_.end(), i)});
    }
    for (const auto& [path, record] : manifest_.files) {
      audit.files.push_back({.path = path, .bytes = record.size, .sha256 = record.sha256});
    }
    return result;
  }

  SnapshotSource& source_;
  const InstallOptions& options_;
  FileSystem& files_;
  const InstallPaths paths_;
  const std::unique_ptr<FileLock> lock_;
  const Clock::time_point started_ = Clock::now();

  Snapshot snapshot_;
  RepackPlan plan_;
  DiskNeed disk_;
  Checkpoint checkpoint_;
  ScratchBuffer scratch_{kScratchBytes};
  std::unique_ptr<OutputFiles> outputs_;
  std::unique_ptr<OutputHasher> hasher_;
  Manifest manifest_;

  std::vector<size_t> reused_;  // ranges of an earlier run, ascending
  uint64_t reused_bytes_ = 0;
  ExpectedDigests dropped_digests_;  // recorded by an earlier run, damaged since
  uint64_t verification_bytes_ = 0;
  uint64_t copied_tiles_ = 0;
  ProgressPace pace_;
};

}  // namespace

void RequireSpace(const DiskNeed& need, const std::filesystem::path& directory) {
  if (need.fits()) return;
  Fail(ErrorCode::kDiskFull,
       "{} needs {} ({} to write, {} for transfers, {} to stay free), {} has {}: free some space, "
       "or install to another disk with --output or MFERENCE_HOME",
       directory.filename().string(), FormatByteCount(need.required_bytes()),
       FormatByteCount(need.missing_bytes), FormatByteCount(need.staging_bytes),
       FormatByteCount(need.reserve_bytes), directory.parent_path().string(),
       FormatByteCount(need.available_bytes));
}

InstallResult Install(SnapshotSource& source, const InstallOptions& options) {
  return Transaction(source, options).Run();
}

void DiscardPartialInstall(const std::filesystem::path& output, FileSystem* files_or_null) {
  FileSystem& files = files_or_null != nullptr ? *files_or_null : PosixFiles();
  const InstallPaths paths = InstallPaths::For(files, output);
  const auto lock = LockInstall(files, paths);
  const bool has_checkpoint = files.Examine(paths.checkpoint) != EntryType::kNone;
  if (!has_checkpoint && files.Examine(paths.partial) == EntryType::kNone) {
    Fail(ErrorCode::kInstallState, "no saved download for {}", paths.final_directory.string());
  }
  // The checkpoint first: without it the rest is nothing that anybody would resume.
  if (has_checkpoint) {
    files.RemoveFile(paths.checkpoint);
    files.SyncDirectory(paths.parent);
  }
  RemoveTree(files, paths.partial);
  files.SyncDirectory(paths.parent);
}

std::optional<SavedDownload> FindSavedDownload(const std::filesystem::path& output,
                                               FileSystem* files_or_null) {
  FileSystem& files = files_or_null != nullptr ? *files_or_null : PosixFiles();
  const InstallPaths paths = InstallPaths::For(files, output);
  if (files.Examine(paths.checkpoint) != EntryType::kFile ||
      files.Examine(paths.partial) != EntryType::kDirectory) {
    return std::nullopt;
  }
  const Checkpoint saved = ReadCheckpoint(files, paths.checkpoint);
  return SavedDownload{.source = saved.source,
                       .total_source_bytes = saved.total_source_bytes,
                       .completed_source_bytes = saved.completed_source_bytes()};
}

}  // namespace mference
