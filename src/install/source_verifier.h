// Whether the shards of a remote source are, byte for byte, what was published.
//
// Transport security says that nobody changed the bytes on the way, not that the server had the
// right ones. The hub publishes the SHA-256 of every shard, so every byte of a shard is hashed as
// it comes by, in order, and what no range carries (headers, tensors that are not stored) is
// fetched for the hash alone. The running hash is part of the checkpoint, so that a resumed install
// goes on where it was.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "install/checkpoint.h"
#include "install/range_plan.h"
#include "install/resumable_sha256.h"
#include "install/snapshot.h"
#include "install/source.h"

namespace mference {

// Shards come one after the other in plan order, ranges in order within them. Not thread-safe.
class SourceVerifier {
 public:
  // Borrows everything. `check_cancelled` may throw.
  SourceVerifier(SnapshotSource& source, const RangePlan& plan,
                 const std::vector<SourceShard>& shards, const Checkpoint& saved,
                 std::span<std::byte> scratch, std::function<void()> check_cancelled);

  // Starts the shard (an index into plan.shards), continuing its saved hash.
  void BeginShard(uint32_t shard);
  // Hashes what lies between the last range and this one, then this one. A range that was hashed in
  // an earlier run (and is fetched again because the disk lost it) is passed over.
  void AddRange(const SourceRange& range, FetchedRange& bytes);
  // Hashes the rest and compares. False: the shard is not what was published.
  bool EndShard();

  // What the checkpoint is to remember now.
  const SourceProgress& progress() const { return progress_; }
  // Bytes fetched for the hash alone, in this run.
  uint64_t extra_bytes() const { return extra_bytes_; }

 private:
  void HashGap(uint64_t end);
  void Save();

  SnapshotSource& source_;
  const RangePlan& plan_;
  const std::vector<SourceShard>& shards_;
  const Checkpoint& saved_;
  std::span<std::byte> scratch_;
  std::function<void()> check_cancelled_;

  const SourceShard* shard_ = nullptr;   // null: this shard is not being verified
  std::optional<ResumableSha256> hash_;  // of the current shard
  SourceProgress progress_;
  uint64_t extra_bytes_ = 0;
};

}  // namespace mference
