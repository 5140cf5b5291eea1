#include "synth/snapshot_writer.h"

#include <chrono>

#include "base/error.h"
#include "base/units.h"
#include "install/file_system.h"
#include "install/snapshot.h"

namespace mference {
namespace {

constexpr uint64_t kReserveBytes = 256 * kMiB;
// Pages are handed to the disk in pieces of this size, and let go one piece later: the writer never
// has more than two of them in the page cache.
constexpr uint64_t kWritebackBytes = 64 * kMiB;
constexpr auto kProgressInterval = std::chrono::milliseconds(100);

class SnapshotWriter {
 public:
  SnapshotWriter(SyntheticSource& source, const std::filesystem::path& directory,
                 const InstallEventSink& on_event, const std::atomic<bool>* cancelled)
      : source_(source), on_event_(on_event), cancelled_(cancelled) {
    if (files_.Examine(directory) != EntryType::kNone && !files_.List(directory).empty()) {
      Fail(ErrorCode::kInstallState,
           "{} is not empty: a snapshot is written from the start, into a new or empty directory",
           directory.string());
    }
    directory_ = files_.MakeDirectories(directory);
  }

  void Write() {
    for (const std::string& shard : source_.shard_names()) total_ += source_.Examine(shard).bytes;
    if (const uint64_t free = files_.AvailableBytes(directory_); free < total_ + kReserveBytes) {
      Fail(ErrorCode::kDiskFull, "{} needs {} ({} to stay free), there is {}", directory_.string(),
           FormatByteCount(total_ + kReserveBytes), FormatByteCount(kReserveBytes),
           FormatByteCount(free));
    }
    Emit(InstallEvent::Kind::kPhase, InstallPhase::kCopying);
    for (const std::string& shard : source_.shard_names()) WriteShard(shard);
    for (const std::string& name : source_.file_names()) {
      if (name != kSourceIndexFile) WriteFile(name);
    }
    files_.SyncDirectory(directory_);
    WriteFile(std::string(kSourceIndexFile));
    files_.SyncDirectory(directory_);
    Emit(InstallEvent::Kind::kPhase, InstallPhase::kDone);
  }

 private:
  void WriteFile(const std::string& name) {
    WriteWholeFile(files_, directory_ / name, *source_.ReadFile(name, UINT64_MAX));
  }

  void WriteShard(const std::string& name) {
    const std::unique_ptr<File> file = files_.CreateFile(directory_ / name, 0644);
    uint64_t written = 0;
    uint64_t started = 0;  // given to the disk
    uint64_t dropped = 0;
    source_.StreamBytes(name, 0, source_.Examine(name).bytes, [&](std::span<const std::byte> tile) {
      if (cancelled_ != nullptr && cancelled_->load()) {
        Fail(ErrorCode::kCancelled, "stopped; {} is incomplete and can be deleted",
             directory_.string());
      }
      file->WriteAt(written, tile);
      written += tile.size();
      if (written - started >= kWritebackBytes) {
        file->StartWriteback(started, written - started);
        file->DropCache(dropped, started - dropped);
        dropped = started;
        started = written;
      }
      done_ += tile.size();
      Progress(name);
    });
    file->Sync();
    file->DropCache(0, written);
  }

  void Progress(const std::string& name) {
    const auto now = std::chrono::steady_clock::now();
    if (done_ < total_ && now < next_progress_) return;
    next_progress_ = now + kProgressInterval;
    Emit(InstallEvent::Kind::kProgress, InstallPhase::kCopying, name);
  }
  void Emit(InstallEvent::Kind kind, InstallPhase phase, const std::string& file = {}) const {
    if (!on_event_) return;
    on_event_(
        {.kind = kind, .phase = phase, .fresh_bytes = done_, .total_bytes = total_, .file = file});
  }

  SyntheticSource& source_;
  const InstallEventSink& on_event_;
  const std::atomic<bool>* cancelled_;
  FileSystem& files_ = PosixFiles();
  std::filesystem::path directory_;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
  std::chrono::steady_clock::time_point next_progress_;
};

}  // namespace

void WriteSyntheticSnapshot(SyntheticSource& source, const std::filesystem::path& directory,
                            const InstallEventSink& on_event, const std::atomic<bool>* cancelled) {
  SnapshotWriter(source, std::filesystem::absolute(directory), on_event, cancelled).Write();
}

}  // namespace mference
