// The payload files of an install in progress, and moving bytes into them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "install/file_system.h"
#include "install/range_plan.h"
#include "install/source.h"

namespace mference {

// The one buffer that payload bytes pass through, whatever the size of tensors and shards.
constexpr size_t kScratchBytes = 524288;
// A second, smaller one for hashing what was written while the next range is being copied.
constexpr size_t kHashScratchBytes = 262144;

class ScratchBuffer {
 public:
  static constexpr size_t kAlignment = 16384;

  explicit ScratchBuffer(size_t bytes);
  std::span<std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_;
};

// The planned outputs under one directory, open for reading and writing. Thread-safe.
class OutputFiles {
 public:
  // Creates every output at its final (sparse) size with the resident index written, all flushed
  // with their directories.
  static OutputFiles Create(FileSystem& files, const FileSystem::Path& directory,
                            const RangePlan& plan, std::span<const std::byte> index_region);
  // Opens what is there; empty if a file is missing, has another size, or another index.
  static std::unique_ptr<OutputFiles> OpenMatching(FileSystem& files,
                                                   const FileSystem::Path& directory,
                                                   const RangePlan& plan,
                                                   std::span<const std::byte> index_region);

  File& file(uint32_t output) { return *files_[output]; }

 private:
  std::vector<std::unique_ptr<File>> files_;  // [plan.outputs]
};

// Copies ranges through one scratch buffer. Not thread-safe.
class RangeCopier {
 public:
  // `check_cancelled` runs between tiles and may throw. With `background` a thread digests one half
  // of the buffer while the other half is being read, transformed and written.
  RangeCopier(const RangePlan& plan, OutputFiles& outputs, std::span<std::byte> scratch,
              std::function<void()> check_cancelled, bool background = false);
  ~RangeCopier();
  RangeCopier(const RangeCopier&) = delete;
  RangeCopier& operator=(const RangeCopier&) = delete;

  // Writes every destination of `range` and returns the digest of what was written, computed while
  // the bytes were at hand. kSourceInvalid for ternary codes that cannot be.
  std::string Copy(size_t range, FetchedRange& source);
  // The digest of what the outputs hold now.
  std::string Redigest(size_t range);

  uint64_t tiles() const { return tiles_; }

 private:
  class DigestThread;

  const RangePlan& plan_;
  OutputFiles& outputs_;
  std::span<std::byte> scratch_;
  std::function<void()> check_cancelled_;
  std::unique_ptr<DigestThread> digest_thread_;  // null: digests on the calling thread
  uint64_t tiles_ = 0;
};

// Flushes the files that `range` was written to.
void SyncOutputsOf(const RangePlan& plan, size_t range, OutputFiles& outputs);

}  // namespace mference
