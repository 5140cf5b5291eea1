#include "cli/machine_rates.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "experts/expert_io.h"

namespace mference::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Larger than the last-level caches of the machines this is for.
constexpr size_t kMemoryBytes = 128 * kMiB;
constexpr int kMemoryPasses = 10;
constexpr std::chrono::milliseconds kDiskTime{500};
constexpr uint64_t kScratchFileBytes = 128 * kMiB;
constexpr int kReaders = 8;
constexpr size_t kAlignment = 16384;

struct FreeBuffer {
  void operator()(std::byte* data) const { std::free(data); }  // NOLINT
};
using AlignedBuffer = std::unique_ptr<std::byte, FreeBuffer>;

AlignedBuffer Allocate(size_t bytes) {
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes));
  if (data == nullptr) throw std::bad_alloc();
  return AlignedBuffer(data);
}

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Runs body(index) on `count` threads and waits for them.
template <typename Body>
void OnThreads(int count, const Body& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

struct OpenFile {
  FileDescriptor file;
  uint64_t bytes = 0;
};

DiskRate MeasureOpenFiles(const std::vector<OpenFile>& files, uint64_t read_bytes) {
  DiskRate rate;
  const uint64_t piece = RoundUp(std::max<uint64_t>(read_bytes, 1), kAlignment);
  rate.direct = true;
  std::vector<const OpenFile*> usable;
  for (const OpenFile& open : files) {
    if (open.bytes < piece) continue;
    usable.push_back(&open);
    if (const auto refused = EnableDirectIo(open.file, kAlignment)) {
      rate.direct = false;
      rate.problem = *refused;
      UseBufferedIo(open.file);
    }
  }
  if (usable.empty()) {
    rate.problem = "there is no file of this size to read";
    return rate;
  }
  std::atomic<uint64_t> read{0};
  std::atomic<int> failure{0};
  const Clock::time_point start = Clock::now();
  OnThreads(kReaders, [&](int index) {
    const AlignedBuffer buffer = Allocate(piece);
    std::mt19937_64 random(static_cast<uint64_t>(index) + 1);
    while (Clock::now() - start < kDiskTime && failure == 0) {
      const OpenFile& open = *usable[random() % usable.size()];
      const uint64_t offset = random() % ((open.bytes - piece) / kAlignment + 1) * kAlignment;
      const ssize_t got = ::pread(open.file.get(), buffer.get(), piece, static_cast<off_t>(offset));
      if (got < 0 && errno != EINTR) failure = errno;
      if (got > 0) read += static_cast<uint64_t>(got);
    }
  });
  if (failure != 0) {
    rate.problem = std::strerror(failure);  // NOLINT(concurrency-mt-unsafe)
  } else {
    rate.bytes_per_second = static_cast<double>(read) / SecondsSince(start);
  }
  return rate;
}

// A file without a name, on the file system of `directory`, with content that nothing compresses.
OpenFile MakeScratchFile(const std::filesystem::path& directory) {
  OpenFile scratch{FileDescriptor(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)),
                   kScratchFileBytes};
  if (!scratch.file.valid()) FailErrno("cannot create a file in " + directory.string(), errno);
  const AlignedBuffer buffer = Allocate(kMiB);
  std::mt19937_64 random(1);
  for (uint64_t offset = 0; offset < kScratchFileBytes; offset += kMiB) {
    for (size_t i = 0; i < kMiB; i += sizeof(uint64_t)) {
      const uint64_t word = random();
      std::memcpy(buffer.get() + i, &word, sizeof(word));
    }
    WriteExactly(scratch.file, offset, {buffer.get(), kMiB}, "the file to measure the disk with");
  }
  SyncFile(scratch.file, "the file to measure the disk with");
  return scratch;
}

}  // namespace

double MeasureMemoryRate(int threads) {
  const size_t words = kMemoryBytes / sizeof(uint64_t) / static_cast<size_t>(threads);
  const std::vector<uint64_t> memory(words * static_cast<size_t>(threads), 1);
  std::atomic<uint64_t> sink{0};
  double best = 0;
  // The best of several passes: other programs only ever make one slower.
  for (int pass = 0; pass < kMemoryPasses; ++pass) {
    const Clock::time_point start = Clock::now();
    OnThreads(threads, [&](int index) {
      const uint64_t* mine = memory.data() + words * static_cast<size_t>(index);
      // Four sums, so that additions do not wait for each other.
      uint64_t sums[4] = {};
      for (size_t i = 0; i + 4 <= words; i += 4) {
        for (size_t j = 0; j < 4; ++j) sums[j] += mine[i + j];
      }
      sink += sums[0] + sums[1] + sums[2] + sums[3];
    });
    best = std::max(best, static_cast<double>(kMemoryBytes) / SecondsSince(start));
  }
  return best;
}

DiskRate MeasureDiskRate(const std::vector<std::filesystem::path>& files, uint64_t read_bytes) {
  std::vector<OpenFile> open;
  for (const std::filesystem::path& path : files) {
    FileDescriptor file = OpenForReading(path);
    const uint64_t bytes = FileSize(file, path.string());
    open.push_back({std::move(file), bytes});
  }
  return MeasureOpenFiles(open, read_bytes);
}

DiskRate MeasureDiskRateAt(const std::filesystem::path& directory, uint64_t read_bytes) {
  std::filesystem::path nearest = std::filesystem::absolute(directory);
  while (!std::filesystem::is_directory(nearest) && nearest.has_relative_path()) {
    nearest = nearest.parent_path();
  }
  try {
    std::vector<OpenFile> files;
    files.push_back(MakeScratchFile(nearest));
    return MeasureOpenFiles(files, read_bytes);
  } catch (const Error& error) {
    return {.bytes_per_second = 0, .direct = false, .problem = error.what()};
  }
}

}  // namespace mference::cli
