#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace mference {
namespace {

void RequireRegular(const FileDescriptor& file, const std::string& name) {
  struct stat info {};
  if (fstat(file.get(), &info) != 0) FailErrno(fmt::format("cannot examine {}", name), errno);
  if (!S_ISREG(info.st_mode)) Fail(ErrorCode::kIo, "{} is not a regular file", name);
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}
FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}
FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileDescriptor OpenForReading(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a FIFO by mistake must not hang; it has no effect on regular files.
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) {
    if (errno == ENOENT) Fail(ErrorCode::kNotFound, "{} does not exist", path.string());
    FailErrno(fmt::format("cannot open {}", path.string()), errno);
  }
  RequireRegular(file, path.string());
  return file;
}

FileDescriptor OpenDirectory(const std::filesystem::path& path) {
  FileDescriptor directory(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY));
  if (!directory.valid()) {
    if (errno == ENOENT || errno == ENOTDIR) {
      Fail(ErrorCode::kNotADirectory, "{} is not a directory", path.string());
    }
    FailErrno(fmt::format("cannot open directory {}", path.string()), errno);
  }
  return directory;
}

FileDescriptor OpenBeneath(const FileDescriptor& directory, std::string_view relative,
                           const std::filesystem::path& directory_path) {
  const std::string name = (directory_path / relative).string();
  FileDescriptor parent;
  std::string_view rest = relative;
  while (true) {
    const size_t slash = rest.find('/');
    const std::string component(rest.substr(0, slash));
    if (component.empty() || component == "." || component == "..") {
      Fail(ErrorCode::kIo, "{} is not a normalised relative path", relative);
    }
    const bool last = slash == std::string_view::npos;
    const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (last ? 0 : O_DIRECTORY);
    const int at = parent.valid() ? parent.get() : directory.get();
    FileDescriptor opened(openat(at, component.c_str(), flags));
    if (!opened.valid()) {
      const int open_error = errno;
      if (open_error == ENOENT) Fail(ErrorCode::kMissingFile, "{} is missing", name);
      struct stat info {};
      if (fstatat(at, component.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
          S_ISLNK(info.st_mode)) {
        Fail(ErrorCode::kIo, "{}: '{}' is a symbolic link", name, component);
      }
      FailErrno(fmt::format("cannot open {}", name), open_error);
    }
    if (last) {
      RequireRegular(opened, name);
      return opened;
    }
    parent = std::move(opened);
    rest = rest.substr(slash + 1);
  }
}

uint64_t FileSize(const FileDescriptor& file, const std::string& name) {
  struct stat info {};
  if (fstat(file.get(), &info) != 0) FailErrno(fmt::format("cannot examine {}", name), errno);
  return static_cast<uint64_t>(info.st_size);
}

void ReadExactly(const FileDescriptor& file, uint64_t offset, std::span<std::byte> out,
                 const std::string& name) {
  while (!out.empty()) {
    const ssize_t got = pread(file.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) continue;
      FailErrno(fmt::format("cannot read {} bytes at offset {} of {}", out.size(), offset, name),
                errno);
    }
    if (got == 0) {
      Fail(ErrorCode::kIo, "{} ends at offset {}, {} bytes before what was expected", name, offset,
           out.size());
    }
    offset += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
}

void WriteExactly(const FileDescriptor& file, uint64_t offset, std::span<const std::byte> bytes,
                  const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t put = pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0) {
      if (errno == EINTR) continue;
      if (errno == ENOSPC || errno == EDQUOT) {
        Fail(ErrorCode::kDiskFull, "no space left while writing {} bytes at offset {} of {}",
             bytes.size(), offset, name);
      }
      FailErrno(fmt::format("cannot write {} bytes at offset {} of {}", bytes.size(), offset, name),
                errno);
    }
    offset += static_cast<uint64_t>(put);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
}

void SyncFile(const FileDescriptor& file, const std::string& name) {
  if (fsync(file.get()) != 0) FailErrno(fmt::format("cannot flush {} to disk", name), errno);
}

void SyncDirectory(const std::filesystem::path& directory) {
  SyncFile(OpenDirectory(directory), directory.string());
}

void DropPageCache(const FileDescriptor& file, uint64_t offset, uint64_t bytes) {
  posix_fadvise(file.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                POSIX_FADV_DONTNEED);
}

std::string ReadTextFile(const FileDescriptor& file, uint64_t max_bytes, const std::string& name) {
  const uint64_t size = FileSize(file, name);
  if (size > max_bytes) {
    Fail(ErrorCode::kMetadataTooLarge, "{} has {} bytes, more than the {} allowed", name, size,
         max_bytes);
  }
  std::string text(size, '\0');
  ReadExactly(file, 0, std::as_writable_bytes(std::span(text)), name);
  return text;
}

std::string ReadTextFile(const std::filesystem::path& path, uint64_t max_bytes) {
  return ReadTextFile(OpenForReading(path), max_bytes, path.string());
}

void WriteFileAtomically(const std::filesystem::path& path, std::string_view content,
                         unsigned mode) {
  const std::filesystem::path temporary = path.string() + ".tmp";
  struct stat info {};
  if (lstat(temporary.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode)) {
      Fail(ErrorCode::kIo, "{} stands in the way and is not a regular file", temporary.string());
    }
    if (unlink(temporary.c_str()) != 0) {
      FailErrno(fmt::format("cannot remove {}", temporary.string()), errno);
    }
  }
  {
    const FileDescriptor file(
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!file.valid()) FailErrno(fmt::format("cannot create {}", temporary.string()), errno);
    WriteExactly(file, 0, std::as_bytes(std::span(content)), temporary.string());
    SyncFile(file, temporary.string());
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    FailErrno(fmt::format("cannot rename {} to {}", temporary.string(), path.string()), errno);
  }
  const std::filesystem::path parent = path.parent_path();
  SyncDirectory(parent.empty() ? std::filesystem::path(".") : parent);
}

std::filesystem::path OutputDestination(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    Fail(ErrorCode::kInvalidArgument,
         "{} is not a regular file: name a new file, or one to replace", path.string());
  }
  if (!std::filesystem::exists(status) && std::filesystem::is_symlink(path, error)) {
    Fail(ErrorCode::kInvalidArgument, "{} is a link to what does not exist: remove it first",
         path.string());
  }
  const std::filesystem::path folder = path.parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, error)) {
    Fail(ErrorCode::kInvalidArgument, "{}: there is no folder {}", path.string(), folder.string());
  }
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, error);
  return error ? path : resolved;
}

MappedFile::MappedFile(const FileDescriptor& file, const std::string& name)
    : size_(FileSize(file, name)) {
  if (size_ == 0) return;
  void* address = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) {
    size_ = 0;
    FailErrno(fmt::format("cannot map {}", name), errno);
  }
  data_ = static_cast<const std::byte*>(address);
}
MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}
MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace mference
