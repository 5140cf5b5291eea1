// Temporary files that ranges are received into.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/error.h"
#include "install/file_system.h"
#include "install/source.h"

namespace mference {

// Files that ranges are received into, used over and over: overwriting the same cached pages is far
// cheaper than having the kernel find new ones for every range. Thread-safe.
class TransferPool {
 public:
  TransferPool(FileSystem& files, std::filesystem::path directory)
      : files_(files), directory_(std::move(directory)) {}
  ~TransferPool() {
    for (const Entry& entry : idle_) {
      try {
        files_.RemoveFile(entry.path);
      } catch (...) {  // NOLINT(bugprone-empty-catch): what stays is swept up before promotion
      }
    }
  }
  TransferPool(const TransferPool&) = delete;
  TransferPool& operator=(const TransferPool&) = delete;

  struct Entry {
    std::filesystem::path path;
    std::unique_ptr<File> file;
  };

  Entry Take() {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      Entry entry = std::move(idle_.back());
      idle_.pop_back();
      return entry;
    }
    Entry entry{.path = directory_ / fmt::format(".range-{}.tmp", created_++), .file = nullptr};
    if (files_.Examine(entry.path) == EntryType::kFile) files_.RemoveFile(entry.path);
    entry.file = files_.CreateFile(entry.path, 0600);
    return entry;
  }
  void Return(Entry entry) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(entry));
  }

 private:
  FileSystem& files_;
  const std::filesystem::path directory_;
  std::mutex mutex_;
  std::vector<Entry> idle_;
  int created_ = 0;
};

// Fetched bytes in a transfer file, which goes back to the others afterwards.
class PooledTransfer final : public FetchedRange {
 public:
  explicit PooledTransfer(TransferPool& files) : files_(files), entry_(files.Take()) {}
  ~PooledTransfer() override { files_.Return(std::move(entry_)); }

  uint64_t bytes() const override { return bytes_; }
  void ReadAt(uint64_t offset, std::span<std::byte> out) override {
    Check(offset + out.size() <= bytes_, "a read beyond what was fetched");
    entry_.file->ReadAt(offset, out);
  }

  void Append(std::span<const std::byte> piece) {
    entry_.file->WriteAt(bytes_, piece);
    bytes_ += piece.size();
  }
  void Restart() { bytes_ = 0; }

 private:
  TransferPool& files_;
  TransferPool::Entry entry_;
  uint64_t bytes_ = 0;
};

}  // namespace mference
