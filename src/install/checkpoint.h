// The saved state of an install: which ranges are on disk, and what they digest to.
//
// A range is recorded only after every file it touches was flushed, and trusted on resume only if
// its digest still matches. When the install is promoted the last checkpoint stays beside it as a
// *seal*: a repair uses its digests to find and fetch just the damaged ranges, and an interrupted
// promotion uses its manifest hash to tell the new directory from the old one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "install/file_system.h"
#include "install/source.h"

namespace mference {

constexpr uint64_t kMaxCheckpointBytes = uint64_t{8} << 20;

struct CompletedRange {
  std::string destination_digest;  // 64 hex digits
  uint64_t source_bytes = 0;
  uint64_t destination_bytes = 0;

  bool operator==(const CompletedRange&) const = default;
};

// How far the shards' own digests have been checked.
struct SourceProgress {
  std::set<std::string, std::less<>> verified_shards;
  std::string shard;       // the one being hashed; may be empty
  std::string hash_state;  // of its prefix up to the last recorded range
};

struct Checkpoint {
  SourceIdentity source;
  std::string source_index_sha256;
  std::string plan_fingerprint;
  uint64_t chunk_bytes = 0;  // what the plan was made with
  uint64_t total_source_bytes = 0;
  std::map<std::string, CompletedRange> completed;  // by range id
  SourceProgress source_progress;
  std::string manifest_sha256;  // of a seal; else empty

  uint64_t completed_source_bytes() const;
  uint64_t completed_destination_bytes() const;
};

// Throws kInstallState saying what is wrong and that the saved state can only be discarded.
Checkpoint ParseCheckpoint(std::string_view json, const std::string& name);
std::string CheckpointToJson(const Checkpoint& checkpoint);

Checkpoint ReadCheckpoint(FileSystem& files, const FileSystem::Path& path);
// Old or new state after a crash, never none.
void WriteCheckpoint(FileSystem& files, const FileSystem::Path& path, const Checkpoint& checkpoint);

}  // namespace mference
