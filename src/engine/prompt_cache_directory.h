// Prefixes on disk: what was computed for a conversation, so that a restart does not compute it
// again.
//
// One file per line (see prefix_cache.h): its tokens, its append-only rows, and its snapshots. A
// file is written beside its name, flushed and renamed, so a crash leaves the old file, the new one
// or a leftover that the next start removes. Every part carries a SHA-256; what does not match is
// deleted with a warning and computed again. A file is used only under the identity it was written
// with (model, state layout, kernels, types); those of other identities are left alone until the
// size limit needs their room. Contents are private: files are 0600, the directory is 0700.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/sequence_state.h"
#include "base/file.h"

namespace mference {

struct PromptCacheCounters {
  int64_t files = 0;          // of this identity, now
  uint64_t bytes = 0;         // of all files, now
  int64_t foreign_files = 0;  // of other models or settings, now
  int64_t loads = 0;
  int64_t saves = 0;
  int64_t evictions = 0;
  int64_t discarded = 0;  // damaged files
};

// Not thread-safe; several processes may share a directory.
class PromptCacheDirectory {
 public:
  using Warn = std::function<void(const std::string& message)>;

  // Makes `path` where it is missing (its parent must exist), removes leftovers of interrupted
  // writes, and reads what the files say they hold. Throws kIo when the directory cannot be used,
  // kInvalidArgument when it belongs to someone else or others may write to it. `warn` receives a
  // sentence for every file that was discarded and every write that failed.
  // `identity`: of the model and of every setting that decides the bytes of a state; layout and
  // context are added to it.
  PromptCacheDirectory(std::filesystem::path path, uint64_t limit_bytes, std::string_view identity,
                       const StateLayout& layout, int64_t context, Warn warn);
  ~PromptCacheDirectory();

  // Removes every file of the cache in `path`, of whatever identity; how many. Other files stay.
  static int64_t Clear(const std::filesystem::path& path);

  // The file that spares most of `prompt`, short of its last token.
  struct Found {
    std::string name;               // empty: none
    int64_t tokens = 0;             // that it spares
    int64_t snapshot_position = 0;  // of the snapshot that leads there
  };
  Found Find(std::span<const int32_t> prompt) const;

  // Makes `state` hold the snapshot that `found` names, from which it rewinds to `found.tokens`,
  // and `tokens` its ids. False when the file turned out damaged or gone: `state` is then reset.
  bool Load(const Found& found, SequenceState& state, std::vector<int32_t>& tokens);

  // Writes the line that `state` holds with its earlier snapshots, in ascending order, and removes
  // the files that it continues. False, after a warning, when that failed or it is over the limit.
  bool Save(const SequenceState& state, std::span<const int32_t> tokens,
            std::span<const StateSnapshot* const> snapshots);

  const std::filesystem::path& path() const { return path_; }
  uint64_t limit_bytes() const { return limit_bytes_; }
  const PromptCacheCounters& counters() const { return counters_; }

 private:
  struct File;
  struct Header;

  void Scan();
  // What the header of `name` says; null if it is gone. Throws when it is damaged.
  std::unique_ptr<File> ReadFile(const std::string& name) const;
  void Write(const std::string& name, const SequenceState& state, std::span<const int32_t> tokens,
             std::span<const StateSnapshot* const> snapshots);
  void Forget(size_t index);
  void Discard(const std::string& name, const std::string& why);
  bool MakeRoom(uint64_t bytes);

  const std::filesystem::path path_;
  const uint64_t limit_bytes_;
  const StateLayout layout_;
  const int64_t context_;
  const std::string identity_;  // a digest
  Warn warn_;
  std::vector<std::unique_ptr<File>> files_;
  PromptCacheCounters counters_;
};

}  // namespace mference
