#include "install/local_source.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/sha256.h"
#include "format/path_rules.h"
#include "format/snapshot_index.h"
#include "install/snapshot.h"

namespace mference {
namespace {

constexpr size_t kCommitDigits = 40;
constexpr uint64_t kMaxDownloadMetadataBytes = 4096;

timespec LastModified(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) FailErrno("cannot examine " + path.string(), errno);
  return facts.st_mtim;
}

// A part of an open shard. Its pages are not kept: they were wanted once.
class LocalRange final : public FetchedRange {
 public:
  LocalRange(const OpenShard& shard, uint64_t offset, uint64_t bytes)
      : shard_(shard), offset_(offset), bytes_(bytes) {}
  ~LocalRange() override { DropPageCache(shard_.file, offset_, bytes_); }
  uint64_t bytes() const override { return bytes_; }
  void ReadAt(uint64_t offset, std::span<std::byte> out) override {
    ReadExactly(shard_.file, offset_ + offset, out, shard_.path.string());
    const timespec now = LastModified(shard_.file, shard_.path);
    if (now.tv_sec != shard_.modified.tv_sec || now.tv_nsec != shard_.modified.tv_nsec) {
      Fail(ErrorCode::kSourceInvalid,
           "{} changed while it was read: let what writes it finish, then install again",
           shard_.path.string());
    }
  }

 private:
  const OpenShard& shard_;
  const uint64_t offset_;
  const uint64_t bytes_;
};

class LocalFile final : public FetchedRange {
 public:
  LocalFile(FileDescriptor file, std::string name)
      : file_(std::move(file)), name_(std::move(name)), bytes_(FileSize(file_, name_)) {}
  uint64_t bytes() const override { return bytes_; }
  void ReadAt(uint64_t offset, std::span<std::byte> out) override {
    ReadExactly(file_, offset, out, name_);
  }

 private:
  const FileDescriptor file_;
  const std::string name_;
  const uint64_t bytes_;
};

}  // namespace

LocalSource::LocalSource(std::filesystem::path directory) : directory_(std::move(directory)) {
  OpenDirectory(directory_);
  const auto index = ReadFile(std::string(kSourceIndexFile), kMaxSnapshotIndexBytes);
  if (!index) {
    Fail(ErrorCode::kSourceInvalid, "{} has no {}: it is not a checkpoint in MLX layout",
         directory_.string(), kSourceIndexFile);
  }
  const std::string index_sha256 = Sha256Hex(*index);
  pinned_ = FindPinnedByIndex(index_sha256);
  if (pinned_ != nullptr) {
    identity_ = {.repository = std::string(pinned_->repository),
                 .requested_revision = std::string(pinned_->revision),
                 .commit = std::string(pinned_->revision)};
  } else {
    // A snapshot that nobody published has no commit; its index stands in for one.
    const std::filesystem::path named =
        std::filesystem::absolute(directory_ / "").lexically_normal().parent_path();
    identity_ = {.repository = "local/" + named.filename().string(),
                 .requested_revision = "local",
                 .commit = index_sha256.substr(0, kCommitDigits)};
  }
}

std::filesystem::path LocalSource::PathOf(const std::string& name) const {
  if (!PathProblem(name).empty() || name.find('/') != std::string::npos) {
    Fail(ErrorCode::kSourceInvalid, "{}: '{}' is not a plain file name", directory_.string(), name);
  }
  return directory_ / name;
}

std::optional<std::string> LocalSource::ReadFile(const std::string& name, uint64_t max_bytes) {
  if (!HasFile(name)) return std::nullopt;
  return ReadTextFile(PathOf(name), max_bytes);
}

std::unique_ptr<FetchedRange> LocalSource::FetchFile(const std::string& name, uint64_t max_bytes) {
  if (!HasFile(name)) return nullptr;
  const std::filesystem::path path = PathOf(name);
  auto file = std::make_unique<LocalFile>(OpenForReading(path), path.string());
  if (file->bytes() > max_bytes) {
    Fail(ErrorCode::kMetadataTooLarge, "{} has {} bytes, more than the {} allowed", path.string(),
         file->bytes(), max_bytes);
  }
  return file;
}

bool LocalSource::HasFile(const std::string& name) {
  std::error_code error;
  return std::filesystem::exists(PathOf(name), error);
}

const OpenShard& LocalSource::Open(const std::string& shard) {
  const std::lock_guard lock(mutex_);
  auto found = open_.find(shard);
  if (found == open_.end()) {
    const std::filesystem::path path = PathOf(shard);
    FileDescriptor file = OpenForReading(path);
    const timespec modified = LastModified(file, path);
    found = open_.emplace(shard, OpenShard{std::move(file), path, modified}).first;
  }
  return found->second;
}

ShardInfo LocalSource::Examine(const std::string& shard) {
  return {.bytes = FileSize(Open(shard).file, PathOf(shard).string()),
          .sha256 = PublishedDigest(shard)};
}

std::string LocalSource::PublishedDigest(const std::string& shard) const {
  if (pinned_ != nullptr) {
    for (const KnownFile& file : pinned_->known_files) {
      if (file.name == shard) return std::string(file.sha256);
    }
  }
  std::error_code error;
  // A hub cache links snapshots/COMMIT/NAME to blobs/SHA256.
  const std::filesystem::path blob =
      std::filesystem::read_symlink(directory_ / shard, error).filename();
  if (!error && IsSha256Hex(blob.string())) return AsciiLower(blob.string());
  // The hub's client writes commit, ETag (the SHA-256 of large files) and time beside a download.
  const std::filesystem::path metadata =
      directory_ / ".cache" / "huggingface" / "download" / (shard + ".metadata");
  if (std::filesystem::is_regular_file(metadata, error)) {
    std::istringstream lines(ReadTextFile(metadata, kMaxDownloadMetadataBytes));
    std::string commit;
    std::string etag;
    if (std::getline(lines, commit) && std::getline(lines, etag) && IsSha256Hex(etag)) {
      return AsciiLower(etag);
    }
  }
  return "";
}

std::string LocalSource::ReadBytes(const std::string& shard, uint64_t offset, uint64_t bytes) {
  std::string text(bytes, '\0');
  ReadExactly(Open(shard).file, offset, std::as_writable_bytes(std::span(text)),
              PathOf(shard).string());
  return text;
}

void LocalSource::StreamBytes(const std::string& shard, uint64_t offset, uint64_t bytes,
                              const std::function<void(std::span<const std::byte>)>& sink) {
  constexpr uint64_t kPiece = 65536;
  for (uint64_t done = 0; done < bytes; done += kPiece) {
    const std::string piece = ReadBytes(shard, offset + done, std::min(kPiece, bytes - done));
    sink(std::as_bytes(std::span(piece)));
  }
}

std::unique_ptr<FetchedRange> LocalSource::Fetch(const RangeRequest& request) {
  return std::make_unique<LocalRange>(Open(request.shard), request.offset, request.bytes);
}

}  // namespace mference
