// A file system in memory that knows what would survive a power cut, and one that fails on demand.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "install/file_system.h"

namespace mference::testing {

// What a power cut does to everything that was not flushed.
enum class Loss {
  kEverything,        // file contents and directory entries fall back to what was flushed
  kContents,          // directory entries are as they were, contents fall back
  kDirectoryEntries,  // contents are as they were, entries fall back
};

// Contents become durable by File::Sync, directory entries by SyncDirectory. Thread-safe.
class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();
  ~MemoryFileSystem() override;

  void PowerCut(Loss loss);
  // Every file by path, as it is now.
  std::map<std::string, std::string> Tree() const;
  void set_available_bytes(uint64_t bytes) { available_bytes_ = bytes; }
  void set_can_exchange(bool can) { can_exchange_ = can; }
  std::string Content(const Path& path) const;
  // Changes a byte behind everybody's back, durably.
  void FlipByte(const Path& path, uint64_t offset);

  Path MakeDirectories(const Path& directory) override;
  EntryType Examine(const Path& path) override;
  std::unique_ptr<File> CreateFile(const Path& path, unsigned mode) override;
  std::unique_ptr<File> OpenFile(const Path& path, FileAccess access) override;
  void CreateDirectory(const Path& path) override;
  std::vector<std::string> List(const Path& directory) override;
  void Rename(const Path& from, const Path& to) override;
  bool Exchange(const Path& a, const Path& b) override;
  void RemoveFile(const Path& path) override;
  void RemoveDirectory(const Path& path) override;
  void SyncDirectory(const Path& directory) override;
  uint64_t AvailableBytes(const Path& directory) override;
  std::unique_ptr<FileLock> TryLock(const Path& path) override;

 private:
  struct Node;
  class OpenedFile;
  using NodePtr = std::shared_ptr<Node>;

  NodePtr Find(const Path& path) const;
  NodePtr Require(const Path& path) const;
  static void Restore(Node& directory, Loss loss);

  mutable std::mutex mutex_;
  NodePtr root_;
  uint64_t available_bytes_ = uint64_t{1} << 40;
  bool can_exchange_ = true;
};

// The end of the process, as far as the code under test can tell. Not an `Error`: nobody handles
// it.
struct Killed {};

// Counts every change (write, resize, flush, create, rename, remove) on the way to another file
// system, and lets `at_change` decide what becomes of the n-th (from 0).
class FaultyFileSystem final : public FileSystem {
 public:
  using AtChange = std::function<void(int number, const std::string& what)>;
  FaultyFileSystem(FileSystem& below, AtChange at_change)
      : below_(below), at_change_(std::move(at_change)) {}

  int changes() const { return changes_; }

  Path MakeDirectories(const Path& directory) override { return below_.MakeDirectories(directory); }
  EntryType Examine(const Path& path) override;
  std::unique_ptr<File> CreateFile(const Path& path, unsigned mode) override;
  std::unique_ptr<File> OpenFile(const Path& path, FileAccess access) override;
  void CreateDirectory(const Path& path) override;
  std::vector<std::string> List(const Path& directory) override;
  void Rename(const Path& from, const Path& to) override;
  bool Exchange(const Path& a, const Path& b) override;
  void RemoveFile(const Path& path) override;
  void RemoveDirectory(const Path& path) override;
  void SyncDirectory(const Path& directory) override;
  uint64_t AvailableBytes(const Path& directory) override;
  std::unique_ptr<FileLock> TryLock(const Path& path) override;

 private:
  class CountedFile;
  // Before the change happens: a change that `at_change` throws from does not.
  void Change(const std::string& what);

  FileSystem& below_;
  AtChange at_change_;
  std::atomic<int> changes_ = 0;
};

}  // namespace mference::testing
