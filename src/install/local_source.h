// A checkpoint that already lies in a local directory.
#pragma once

#include <ctime>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "base/file.h"
#include "install/source.h"
#include "model/catalogue.h"

namespace mference {

struct OpenShard {
  FileDescriptor file;
  std::filesystem::path path;
  timespec modified{};  // as it was when the file was opened
};

// The files may be symbolic links, as in a hub cache. Published digests of shards are taken from
// the catalogue, from the hub cache's blob names, and from the download metadata that the hub's
// own client leaves behind. A shard that somebody writes to after it was opened is kSourceInvalid
// at the next read: half of each state would be neither.
class LocalSource final : public SnapshotSource {
 public:
  // Throws kNotADirectory or kSourceInvalid (no index).
  explicit LocalSource(std::filesystem::path directory);

  SourceIdentity identity() const override { return identity_; }
  bool is_remote() const override { return false; }
  // The catalogue entry that the snapshot's index matches; null: not pinned.
  const PinnedSource* pinned() const { return pinned_; }

  std::optional<std::string> ReadFile(const std::string& name, uint64_t max_bytes) override;
  std::unique_ptr<FetchedRange> FetchFile(const std::string& name, uint64_t max_bytes) override;
  bool HasFile(const std::string& name) override;
  ShardInfo Examine(const std::string& shard) override;
  std::string ReadBytes(const std::string& shard, uint64_t offset, uint64_t bytes) override;
  void StreamBytes(const std::string& shard, uint64_t offset, uint64_t bytes,
                   const std::function<void(std::span<const std::byte>)>& sink) override;
  std::unique_ptr<FetchedRange> Fetch(const RangeRequest& request) override;

 private:
  std::filesystem::path PathOf(const std::string& name) const;
  // Open shards stay open.
  const OpenShard& Open(const std::string& shard);
  std::string PublishedDigest(const std::string& shard) const;

  const std::filesystem::path directory_;
  SourceIdentity identity_;
  const PinnedSource* pinned_ = nullptr;
  std::mutex mutex_;
  std::map<std::string, OpenShard> open_;
};

}  // namespace mference
