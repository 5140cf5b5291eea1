// The file operations an install is made of, behind one interface.
//
// Everything the installer changes on disk goes through `FileSystem`, so that tests can put another
// layer underneath: one that fails or kills the process at the n-th change, one that forgets
// whatever was never flushed. The crash guarantees of the transaction are checked that way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mference {

// One open regular file. Errors throw `Error` (kDiskFull for ENOSPC and EDQUOT, kIo otherwise) and
// name the file. Reads may run concurrently with reads and writes of other parts.
class File {
 public:
  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  virtual ~File() = default;

  // Fills `out`; an early end of file is an error.
  virtual void ReadAt(uint64_t offset, std::span<std::byte> out) = 0;
  virtual void WriteAt(uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void Resize(uint64_t size) = 0;
  virtual void Sync() = 0;
  virtual uint64_t Size() = 0;
  // Hints that never fail: begin writing the range to disk; forget its (clean) cached pages.
  virtual void StartWriteback(uint64_t /*offset*/, uint64_t /*size*/) {}
  virtual void DropCache(uint64_t /*offset*/, uint64_t /*size*/) {}
};

// Held until destroyed; the kernel releases it when the process dies, however it dies.
class FileLock {
 public:
  FileLock() = default;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  virtual ~FileLock() = default;
  // Replaces the content of the lock file, which says who holds it.
  virtual void Describe(std::string_view text) = 0;
};

enum class EntryType { kNone, kFile, kDirectory, kOther };
enum class FileAccess { kRead, kReadWrite };

// Thread-safe. Paths are absolute; no operation follows a symbolic link in the last component.
class FileSystem {
 public:
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  using Path = std::filesystem::path;

  // Creates what is missing of `directory` and returns it with every symbolic link resolved.
  virtual Path MakeDirectories(const Path& directory) = 0;
  virtual EntryType Examine(const Path& path) = 0;
  virtual std::unique_ptr<File> CreateFile(const Path& path, unsigned mode) = 0;
  virtual std::unique_ptr<File> OpenFile(const Path& path, FileAccess access) = 0;
  virtual void CreateDirectory(const Path& path) = 0;
  virtual std::vector<std::string> List(const Path& directory) = 0;
  virtual void Rename(const Path& from, const Path& to) = 0;
  // Swaps two directories in one step; false where the filesystem cannot.
  virtual bool Exchange(const Path& a, const Path& b) = 0;
  virtual void RemoveFile(const Path& path) = 0;
  virtual void RemoveDirectory(const Path& path) = 0;  // empty
  virtual void SyncDirectory(const Path& directory) = 0;
  // Bytes an unprivileged process can still write below `directory`.
  virtual uint64_t AvailableBytes(const Path& directory) = 0;
  // Null when another process holds it; creates the lock file when needed. kInstallState when the
  // path is not a regular file.
  virtual std::unique_ptr<FileLock> TryLock(const Path& path) = 0;
};

// The machine's own files.
FileSystem& PosixFiles();

std::string ReadWholeFile(FileSystem& files, const FileSystem::Path& path, uint64_t max_bytes);
// Creates (or recreates) a file and flushes it. The directory entry is the caller's to flush.
void WriteWholeFile(FileSystem& files, const FileSystem::Path& path, std::string_view content,
                    unsigned mode = 0644);
// Old or new content after a crash, never a mixture: temporary file, flush, rename, flush of the
// directory.
void ReplaceFile(FileSystem& files, const FileSystem::Path& path, std::string_view content,
                 unsigned mode = 0644);
// Removes what is there, depth first; nothing there is fine. Never follows links.
void RemoveTree(FileSystem& files, const FileSystem::Path& path);

}  // namespace mference
