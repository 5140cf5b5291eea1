// Where a checkpoint's bytes come from: a local snapshot or a repository on a hub.
//
// The planner, the writer and the checkpoint see only this interface, so that both kinds of source
// go through one transaction and give identical installs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "install/file_system.h"

namespace mference {

// Recorded in checkpoints and receipts.
struct SourceIdentity {
  std::string repository;          // "org/repo"; "local/NAME" for a snapshot that is not pinned
  std::string requested_revision;  // what was asked for
  std::string commit;              // what it resolved to: 40 hex digits
};

struct ShardInfo {
  uint64_t bytes = 0;
  std::string sha256;  // of the whole file as published; empty: not known
};

// Fetched bytes (a range, or a small file), readable in any order until destroyed. Not thread-safe.
class FetchedRange {
 public:
  FetchedRange() = default;
  FetchedRange(const FetchedRange&) = delete;
  FetchedRange& operator=(const FetchedRange&) = delete;
  virtual ~FetchedRange() = default;

  virtual uint64_t bytes() const = 0;
  // `offset` counts from the range's start.
  virtual void ReadAt(uint64_t offset, std::span<std::byte> out) = 0;
};

// What a range is fetched for, and how its progress is told.
struct RangeRequest {
  std::string label;  // "range-00000007"
  std::string shard;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  // Bytes of this range received so far; falls back to zero when an attempt starts over. May be
  // called from a fetching thread.
  std::function<void(uint64_t received)> on_progress{};
  // Polled while fetching; true ends it with kCancelled: nobody wants the bytes any more.
  std::function<bool()> abandoned{};
};

// Thread-safe: several ranges may be fetched at once. Failures throw `Error`: kNotFound, kNetwork,
// kSourceInvalid, kIo, kDiskFull, kCancelled.
class SnapshotSource {
 public:
  SnapshotSource() = default;
  SnapshotSource(const SnapshotSource&) = delete;
  SnapshotSource& operator=(const SnapshotSource&) = delete;
  virtual ~SnapshotSource() = default;

  // Complete once the first file was read.
  virtual SourceIdentity identity() const = 0;
  // Whether ranges cost network transfers, worth having several in flight.
  virtual bool is_remote() const = 0;

  // Reads from this commit, which an earlier run resolved, instead of from the revision.
  virtual void UseCommit(const std::string& /*commit*/) {}
  // Where fetched bytes may be put until they are consumed; set before `Fetch` and `FetchFile`.
  virtual void UseWorkDirectory(FileSystem& /*files*/, const std::filesystem::path& /*directory*/) {
  }

  // A small file of the snapshot, whole; empty when it does not exist. kMetadataTooLarge above the
  // cap, before anything is read.
  virtual std::optional<std::string> ReadFile(const std::string& name, uint64_t max_bytes) = 0;
  // The same without holding it in memory; null when it does not exist.
  virtual std::unique_ptr<FetchedRange> FetchFile(const std::string& name, uint64_t max_bytes) = 0;
  virtual bool HasFile(const std::string& name) = 0;

  virtual ShardInfo Examine(const std::string& shard) = 0;
  // A few bytes of a shard, for its header.
  virtual std::string ReadBytes(const std::string& shard, uint64_t offset, uint64_t bytes) = 0;
  // Any number of bytes of a shard, each once and in order, none of them kept.
  virtual void StreamBytes(const std::string& shard, uint64_t offset, uint64_t bytes,
                           const std::function<void(std::span<const std::byte>)>& sink) = 0;
  virtual std::unique_ptr<FetchedRange> Fetch(const RangeRequest& request) = 0;
};

}  // namespace mference
