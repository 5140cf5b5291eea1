// Files: descriptors that close themselves, whole reads and writes, read-only mappings.
//
// Paths that come from untrusted metadata are opened relative to a directory descriptor and never
// follow symbolic links; see `OpenBeneath`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace mference {

// Owns one file descriptor. Movable, not copyable.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Opens an existing regular file for reading. Throws kNotFound or kIo naming the path.
FileDescriptor OpenForReading(const std::filesystem::path& path);

// Opens a directory. Throws kNotADirectory when it is missing or something else.
FileDescriptor OpenDirectory(const std::filesystem::path& path);

// Opens the regular file `relative` under `directory`, following no symbolic link on the way.
// `relative` must be normalised, without `..`. `directory_path` is for messages. Throws
// kMissingFile when it does not exist, kIo when it is a link, FIFO or anything but a file.
FileDescriptor OpenBeneath(const FileDescriptor& directory, std::string_view relative,
                           const std::filesystem::path& directory_path);

// Size of an open regular file, in bytes.
uint64_t FileSize(const FileDescriptor& file, const std::string& name);

// Fills `out` from `offset`, retrying short reads and EINTR. Throws kIo with name and offset on an
// error or an early end of file.
void ReadExactly(const FileDescriptor& file, uint64_t offset, std::span<std::byte> out,
                 const std::string& name);

// Writes all of `bytes` at `offset`. Throws kDiskFull on ENOSPC or EDQUOT, kIo otherwise.
void WriteExactly(const FileDescriptor& file, uint64_t offset, std::span<const std::byte> bytes,
                  const std::string& name);

// Lets the page cache forget clean pages of [offset, offset + bytes) that nobody has mapped; 0
// bytes stand for the rest of the file. Advice: what the kernel makes of it changes no result.
void DropPageCache(const FileDescriptor& file, uint64_t offset = 0, uint64_t bytes = 0);

void SyncFile(const FileDescriptor& file, const std::string& name);
void SyncDirectory(const std::filesystem::path& directory);

// Whole text of a file of at most `max_bytes`; larger is kMetadataTooLarge (nothing is read).
std::string ReadTextFile(const std::filesystem::path& path, uint64_t max_bytes);
std::string ReadTextFile(const FileDescriptor& file, uint64_t max_bytes, const std::string& name);

// Replaces `path` so that a crash leaves either the old or the new content: temporary file beside
// it, fsync, rename, fsync of the directory.
void WriteFileAtomically(const std::filesystem::path& path, std::string_view content,
                         unsigned mode = 0644);

// Where a file that a user names for output goes: a link is written through. Throws
// kInvalidArgument for what is there and is no regular file (a device, a FIFO, a directory), which
// replacing it would destroy, for a link to nothing, and for a folder that does not exist.
std::filesystem::path OutputDestination(const std::filesystem::path& path);

// A read-only mapping of a whole file. Unmapped on destruction.
class MappedFile {
 public:
  MappedFile() = default;
  // Maps `file`; the descriptor may be closed afterwards. An empty file gives an empty span.
  MappedFile(const FileDescriptor& file, const std::string& name);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mference
