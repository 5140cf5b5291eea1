// A checkpoint that does not exist: every file of a source snapshot, computed where it is read.
//
// Seen through `SnapshotSource` it installs like any other, with the same plan, hashes, receipt and
// resumption, at the speed of the disk and without ever lying anywhere. Written to disk as it is,
// it is a source snapshot. The bytes are a function of the options alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "install/source.h"
#include "synth/statistics.h"

namespace mference {

// The family's pinned architecture; `layers`, if given, keeps the first so many or repeats the
// pattern of attention kinds. kInvalidArgument for a family without synthetic checkpoints or a
// number of layers that no checkpoint can have.
ArchConfig SyntheticArch(std::string_view family, std::optional<int64_t> layers = std::nullopt);

// Throws kInvalidArgument for options that make no checkpoint. Thread-safe; borrows nothing.
class SyntheticSource final : public SnapshotSource {
 public:
  explicit SyntheticSource(const SynthOptions& options);
  ~SyntheticSource() override;

  SourceIdentity identity() const override { return identity_; }
  bool is_remote() const override { return false; }

  std::optional<std::string> ReadFile(const std::string& name, uint64_t max_bytes) override;
  std::unique_ptr<FetchedRange> FetchFile(const std::string& name, uint64_t max_bytes) override;
  bool HasFile(const std::string& name) override { return files_.contains(name); }
  ShardInfo Examine(const std::string& shard) override;
  std::string ReadBytes(const std::string& shard, uint64_t offset, uint64_t bytes) override;
  void StreamBytes(const std::string& shard, uint64_t offset, uint64_t bytes,
                   const std::function<void(std::span<const std::byte>)>& sink) override;
  std::unique_ptr<FetchedRange> Fetch(const RangeRequest& request) override;

  // What a snapshot of it consists of.
  std::vector<std::string> file_names() const;   // all but shards
  std::vector<std::string> shard_names() const;  // in order

 private:
  class Shard;

  const Shard& ShardOf(const std::string& name) const;

  const SynthOptions options_;
  SourceIdentity identity_;
  std::map<std::string, std::string> files_;  // by name
  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace mference
