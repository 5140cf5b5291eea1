// Installing a checkpoint: one transaction for local snapshots and remote repositories.
//
// The transaction holds a lock, works in `NAME.gturbo.partial`, records every durable range in
// `NAME.gturbo.resume.json`, and promotes the finished directory in one step. Interrupted at any
// point, the same call continues it: ranges that are recorded and still digest to what was recorded
// are kept, everything else is fetched again.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "install/checkpoint.h"
#include "install/events.h"
#include "install/file_system.h"
#include "install/range_plan.h"
#include "install/source.h"
#include "model/catalogue.h"

namespace mference {

enum class ResumeMode {
  kAuto,     // continue a saved download of the same source, else start
  kRequire,  // an error without a saved download
  kRefuse,   // an error with one
};

struct InstallOptions {
  // The directory to install to; see ModelPath for a model's name.
  std::filesystem::path output;
  // The pin that was asked for by name: the source must be it. Null: whatever the source is.
  const PinnedSource* expected = nullptr;
  bool overwrite = false;  // replace an installed model
  ResumeMode resume = ResumeMode::kAuto;
  // Everything up to the disk check; nothing is left behind. A disk that is too small is no error:
  // the audit says so.
  bool dry_run = false;
  // Take shards of a pinned local snapshot as they are although no published digest is at hand.
  bool trust_snapshot = false;
  // Hash whole shards of a remote source against their published digests; what no range carries is
  // fetched for that alone (the audit says how much).
  bool verify_source = true;
  // Kept free besides what the install needs; by default the pin's, 256 MiB for other sources.
  std::optional<uint64_t> reserve_bytes;

  uint64_t chunk_bytes = kMaxChunkBytes;
  int ranges_in_flight = 4;  // remote sources
  // Flush and hash on threads beside the one that copies.
  bool background = true;

  InstallEventSink on_event;
  const std::atomic<bool>* cancelled = nullptr;  // set it to pause: kCancelled, state kept
  FileSystem* files = nullptr;                   // null: the machine's
  std::function<std::time_t()> now;              // for the receipt; null: the clock
};

// What an install asks of the disk, beside what it finds there.
struct DiskNeed {
  uint64_t missing_bytes = 0;    // of the payload, not yet written
  uint64_t staging_bytes = 0;    // for transfers
  uint64_t reserve_bytes = 0;    // to stay free
  uint64_t available_bytes = 0;  // before the install

  uint64_t required_bytes() const { return missing_bytes + staging_bytes + reserve_bytes; }
  bool fits() const { return required_bytes() <= available_bytes; }
};

// Facts about an install for `--audit`, and for those who want to know.
struct InstallAudit {
  SourceIdentity source;
  std::string source_index_sha256;
  std::string plan_fingerprint;
  bool pinned = false;
  ArchConfig arch;
  uint64_t resident_entries = 0;
  uint64_t weights_file_bytes = 0;  // what a loaded model keeps in memory
  uint64_t expert_stride = 0;       // bytes of one expert in its file
  uint64_t expert_layers = 0;
  uint64_t output_bytes = 0;  // of the payload files
  DiskNeed disk;
  uint64_t source_bytes = 0;         // of all ranges, gaps included
  uint64_t gap_bytes = 0;            // transferred but not stored
  uint64_t reused_source_bytes = 0;  // from an earlier run
  uint64_t verification_bytes = 0;   // fetched for the source's own digests alone, in this run
  uint64_t range_count = 0;
  uint64_t dropped_ranges = 0;  // recorded by an earlier run, but damaged
  uint64_t copied_tiles = 0;
  uint64_t largest_scratch_bytes = 0;
  uint64_t chunk_bytes = 0;
  int64_t bit_width_overrides_honored = 0;
  double wall_time_s = 0;
  uint64_t peak_rss_bytes = 0;
  std::vector<std::string> excluded_tensors;
  struct Range {
    std::string id;
    std::string shard;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    std::string destination_digest;
    bool reused = false;
  };
  std::vector<Range> ranges;
  struct OutputFile {
    std::string path;
    uint64_t bytes = 0;
    std::string sha256;
  };
  std::vector<OutputFile> files;  // as in the manifest
  struct Retry {
    std::string label;
    int attempt = 0;
    std::string detail;
  };
  std::vector<Retry> retries;  // remote sources
};

struct InstallResult {
  std::filesystem::path directory;
  std::string model_id;
  InstallAudit audit;
  // An earlier run had everything on disk; only its promotion was left to do.
  bool promotion_only = false;
};

// kDiskFull if the space will not do, with what `directory` needs and what to do.
void RequireSpace(const DiskNeed& need, const std::filesystem::path& directory);

// Throws `Error`; a message says what is kept and what to do. kInstallState for what stands in the
// way, kDiskFull before anything is written if the space will not do, kCancelled.
InstallResult Install(SnapshotSource& source, const InstallOptions& options);

// The JSON text of `--audit`.
std::string AuditToJson(const InstallResult& result);

// Removes a saved download. kInstallState when there is none. An installed model is not touched.
void DiscardPartialInstall(const std::filesystem::path& output, FileSystem* files = nullptr);

struct SavedDownload {
  SourceIdentity source;
  uint64_t total_source_bytes = 0;
  uint64_t completed_source_bytes = 0;
};
// What an interrupted install left for `output`, if anything.
std::optional<SavedDownload> FindSavedDownload(const std::filesystem::path& output,
                                               FileSystem* files = nullptr);

}  // namespace mference
