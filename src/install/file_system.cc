#include "install/file_system.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"

namespace mference {
namespace {

[[noreturn]] void FailPath(const char* what, const FileSystem::Path& path, int error) {
  if (error == ENOSPC || error == EDQUOT) {
    Fail(ErrorCode::kDiskFull, "no space left: cannot {} {}", what, path.string());
  }
  FailErrno(fmt::format("cannot {} {}", what, path.string()), error);
}

class PosixFile final : public File {
 public:
  PosixFile(FileDescriptor descriptor, std::string name)
      : descriptor_(std::move(descriptor)), name_(std::move(name)) {}

  void ReadAt(uint64_t offset, std::span<std::byte> out) override {
    ReadExactly(descriptor_, offset, out, name_);
  }
  void WriteAt(uint64_t offset, std::span<const std::byte> bytes) override {
    WriteExactly(descriptor_, offset, bytes, name_);
  }
  void Resize(uint64_t size) override {
    if (ftruncate(descriptor_.get(), static_cast<off_t>(size)) != 0) {
      FailPath("resize", name_, errno);
    }
  }
  void Sync() override {
    if (fsync(descriptor_.get()) != 0) FailPath("flush", name_, errno);
  }
  uint64_t Size() override { return FileSize(descriptor_, name_); }
  void StartWriteback(uint64_t offset, uint64_t size) override {
#ifdef __linux__
    sync_file_range(descriptor_.get(), static_cast<off_t>(offset), static_cast<off_t>(size),
                    SYNC_FILE_RANGE_WRITE);
#endif
  }
  void DropCache(uint64_t offset, uint64_t size) override {
    DropPageCache(descriptor_, offset, size);
  }

 private:
  const FileDescriptor descriptor_;
  const std::string name_;
};

class PosixLock final : public FileLock {
 public:
  PosixLock(FileDescriptor descriptor, std::string name)
      : descriptor_(std::move(descriptor)), name_(std::move(name)) {}
  void Describe(std::string_view text) override {
    if (ftruncate(descriptor_.get(), 0) != 0) FailPath("resize", name_, errno);
    WriteExactly(descriptor_, 0, std::as_bytes(std::span(text)), name_);
  }

 private:
  const FileDescriptor descriptor_;
  const std::string name_;
};

class PosixFileSystem final : public FileSystem {
 public:
  Path MakeDirectories(const Path& directory) override {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) FailPath("create directory", directory, error.value());
    Path resolved = std::filesystem::canonical(directory, error);
    if (error) FailPath("resolve", directory, error.value());
    return resolved;
  }

  EntryType Examine(const Path& path) override {
    struct stat info {};
    if (lstat(path.c_str(), &info) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return EntryType::kNone;
      FailPath("examine", path, errno);
    }
    if (S_ISREG(info.st_mode)) return EntryType::kFile;
    if (S_ISDIR(info.st_mode)) return EntryType::kDirectory;
    return EntryType::kOther;
  }

  std::unique_ptr<File> CreateFile(const Path& path, unsigned mode) override {
    FileDescriptor descriptor(
        open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!descriptor.valid()) FailPath("create", path, errno);
    return std::make_unique<PosixFile>(std::move(descriptor), path.string());
  }

  std::unique_ptr<File> OpenFile(const Path& path, FileAccess access) override {
    const int mode = access == FileAccess::kRead ? O_RDONLY : O_RDWR;
    FileDescriptor descriptor(open(path.c_str(), mode | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!descriptor.valid()) FailPath("open", path, errno);
    struct stat info {};
    if (fstat(descriptor.get(), &info) != 0) FailPath("examine", path, errno);
    if (!S_ISREG(info.st_mode)) Fail(ErrorCode::kIo, "{} is not a regular file", path.string());
    return std::make_unique<PosixFile>(std::move(descriptor), path.string());
  }

  void CreateDirectory(const Path& path) override {
    if (mkdir(path.c_str(), 0755) != 0) FailPath("create directory", path, errno);
  }

  std::vector<std::string> List(const Path& directory) override {
    std::vector<std::string> names;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
         entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    if (error) FailPath("list", directory, error.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  void Rename(const Path& from, const Path& to) override {
    if (rename(from.c_str(), to.c_str()) != 0) FailPath("rename", from, errno);
  }

  bool Exchange(const Path& a, const Path& b) override {
#ifdef __linux__
    if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
    if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;
    FailPath("exchange", a, errno);
#else
    return false;
#endif
  }

  void RemoveFile(const Path& path) override {
    if (unlink(path.c_str()) != 0) FailPath("remove", path, errno);
  }
  void RemoveDirectory(const Path& path) override {
    if (rmdir(path.c_str()) != 0) FailPath("remove directory", path, errno);
  }
  void SyncDirectory(const Path& directory) override { mference::SyncDirectory(directory); }

  uint64_t AvailableBytes(const Path& directory) override {
    struct statvfs info {};
    if (statvfs(directory.c_str(), &info) != 0)
      FailPath("measure the free space of", directory, errno);
    return uint64_t{info.f_bavail} * info.f_frsize;
  }

  std::unique_ptr<FileLock> TryLock(const Path& path) override {
    FileDescriptor descriptor(
        open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
    if (!descriptor.valid()) {
      if (errno == ELOOP) {
        Fail(ErrorCode::kInstallState, "unsafe installer path: {} is a symbolic link",
             path.string());
      }
      FailPath("open the lock", path, errno);
    }
    struct stat held {};
    if (fstat(descriptor.get(), &held) != 0) FailPath("examine", path, errno);
    if (!S_ISREG(held.st_mode)) {
      Fail(ErrorCode::kInstallState, "unsafe installer path: {} is not a regular file",
           path.string());
    }
    if (flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return nullptr;
      FailPath("lock", path, errno);
    }
    // Somebody may have replaced the file between open and flock: then we hold a lock that nobody
    // else can see.
    struct stat named {};
    if (lstat(path.c_str(), &named) != 0 || named.st_ino != held.st_ino ||
        named.st_dev != held.st_dev) {
      Fail(ErrorCode::kInstallState, "{} was replaced while it was being locked; run again",
           path.string());
    }
    return std::make_unique<PosixLock>(std::move(descriptor), path.string());
  }
};

}  // namespace

FileSystem& PosixFiles() {
  static PosixFileSystem files;
  return files;
}

std::string ReadWholeFile(FileSystem& files, const FileSystem::Path& path, uint64_t max_bytes) {
  const std::unique_ptr<File> file = files.OpenFile(path, FileAccess::kRead);
  const uint64_t size = file->Size();
  if (size > max_bytes) {
    Fail(ErrorCode::kMetadataTooLarge, "{} has {} bytes, more than the {} allowed", path.string(),
         size, max_bytes);
  }
  std::string text(size, '\0');
  file->ReadAt(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void WriteWholeFile(FileSystem& files, const FileSystem::Path& path, std::string_view content,
                    unsigned mode) {
  if (files.Examine(path) != EntryType::kNone) files.RemoveFile(path);
  const std::unique_ptr<File> file = files.CreateFile(path, mode);
  file->WriteAt(0, std::as_bytes(std::span(content)));
  file->Sync();
}

void ReplaceFile(FileSystem& files, const FileSystem::Path& path, std::string_view content,
                 unsigned mode) {
  const FileSystem::Path temporary = path.string() + ".tmp";
  const EntryType stale = files.Examine(temporary);
  if (stale != EntryType::kNone && stale != EntryType::kFile) {
    Fail(ErrorCode::kInstallState, "unsafe installer path: {} is not a regular file",
         temporary.string());
  }
  WriteWholeFile(files, temporary, content, mode);
  files.Rename(temporary, path);
  files.SyncDirectory(path.parent_path());
}

void RemoveTree(FileSystem& files, const FileSystem::Path& path) {
  switch (files.Examine(path)) {
    case EntryType::kNone:
      return;
    case EntryType::kFile:
    case EntryType::kOther:
      files.RemoveFile(path);
      return;
    case EntryType::kDirectory:
      break;
  }
  for (const std::string& name : files.List(path)) RemoveTree(files, path / name);
  files.RemoveDirectory(path);
}

}  // namespace mference
