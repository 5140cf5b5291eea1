#include "bench/disk_ceiling.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <random>
#include <span>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/ledger.h"
#include "base/machine.h"
#include "base/slab.h"
#include "base/units.h"
#include "experts/expert_io.h"
#include "experts/pread_reader.h"
#include "experts/uring_reader.h"

namespace mference::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kAlignment = 16384;
constexpr uint64_t kScratchFileBytes = 128 * kMiB;
constexpr uint64_t kScratchStepBytes = 4 * kMiB;  // written and flushed at once
constexpr int kFewestReads = 8;
// However busy the disk: no figure reads for longer, nor is the scratch file written for longer.
constexpr double kMostSeconds = 2;
// A blob that a disk does not take in this time is not worth waiting for.
constexpr double kMostSecondsPerBlob = 5;
constexpr uint64_t kWarmBytes = 192 * kMiB;
constexpr int kPlanDepth = 8;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct OpenFile {
  FileDescriptor file;
  uint64_t bytes = 0;
};

// Chooses where to read next; remembers, so that a warm pass can go there again.
class Places {
 public:
  Places(const std::vector<OpenFile>& files, uint64_t piece, uint64_t seed) : random_(seed) {
    for (const OpenFile& open : files) {
      if (open.bytes >= piece) files_.push_back(&open);
    }
    piece_ = piece;
  }
  bool empty() const { return files_.empty(); }
  BlobRead Next() {
    const OpenFile& open = *files_[random_() % files_.size()];
    const uint64_t offset = random_() % ((open.bytes - piece_) / kAlignment + 1) * kAlignment;
    return {.fd = open.file.get(), .offset = offset, .target = nullptr, .bytes = piece_, .id = 0};
  }

 private:
  std::vector<const OpenFile*> files_;
  uint64_t piece_ = 0;
  std::mt19937_64 random_;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void Forget(const BlobRead& read) {
#ifdef POSIX_FADV_DONTNEED
  posix_fadvise(read.fd, static_cast<off_t>(read.offset), static_cast<off_t>(read.bytes),
                POSIX_FADV_DONTNEED);
#endif
}

class DiskBench {
 public:
  DiskBench(const std::vector<OpenFile>& files, uint64_t piece, double seconds, int most_depth)
      : files_(files),
        piece_(piece),
        seconds_(seconds),
        ledger_(piece * static_cast<uint64_t>(most_depth)),
        memory_(ledger_, "measurement", piece * static_cast<uint64_t>(most_depth),
                Slab::Pages::kNow) {}

  std::span<std::byte> memory() const { return memory_.bytes(); }

  // Plain pread on `depth` threads. `buffered`: cold, each read's pages dropped before and after
  // it.
  DiskCeiling Plain(const std::string& way, int depth, bool buffered) {
    std::atomic<int> failure{0};
    std::atomic<int> count{0};
    std::mutex mutex;
    std::vector<double> durations;
    const Clock::time_point start = Clock::now();
    std::vector<std::thread> threads;
    for (int thread = 0; thread < depth; ++thread) {
      threads.emplace_back([&, thread] {
        Places places(files_, piece_, ++seed_);
        std::vector<double> mine;
        while (WantsMore(start, count) && failure == 0) {
          BlobRead read = places.Next();
          read.target = memory_.data() + piece_ * static_cast<uint64_t>(thread);
          if (buffered) Forget(read);
          const Clock::time_point begin = Clock::now();
          const ReadCompletion done = ReadBlob(read);
          if (done.error != 0) failure = done.error;
          mine.push_back(SecondsSince(begin));
          ++count;
          if (buffered) Forget(read);
        }
        const std::lock_guard lock(mutex);
        durations.insert(durations.end(), mine.begin(), mine.end());
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (failure != 0) FailErrno("cannot measure the disk", failure);
    return {.way = way,
            .depth = depth,
            .bytes_per_second = static_cast<double>(durations.size()) *
                                static_cast<double>(piece_) / SecondsSince(start),
            .median_seconds = Median(durations),
            .reads = static_cast<int64_t>(durations.size())};
  }

  // The same places again and again, from the page cache: enough of them that the CPU's caches do
  // not hold them.
  DiskCeiling Warm(int depth) {
    std::vector<BlobRead> reads;
    Places places(files_, piece_, ++seed_);
    const auto places_each =
        static_cast<int>(kWarmBytes / piece_ / static_cast<uint64_t>(depth)) + 1;
    for (int i = 0; i < depth * places_each; ++i) {
      reads.push_back(places.Next());
      reads.back().target = memory_.data() + piece_ * static_cast<uint64_t>(i / places_each);
      ReadBlob(reads.back());
    }
    std::atomic<int64_t> count{0};
    const Clock::time_point start = Clock::now();
    std::vector<std::thread> threads;
    for (int thread = 0; thread < depth; ++thread) {
      threads.emplace_back([&, thread] {
        int i = 0;
        do {
          ReadBlob(reads[static_cast<size_t>(thread * places_each + i)]);
          i = (i + 1) % places_each;
          ++count;
        } while (SecondsSince(start) < seconds_ / 4);
      });
    }
    for (std::thread& thread : threads) thread.join();
    const double elapsed = SecondsSince(start);
    for (const BlobRead& read : reads) Forget(read);
    return {.way = "page cache",
            .depth = depth,
            .bytes_per_second = static_cast<double>(count) * static_cast<double>(piece_) / elapsed,
            .median_seconds = elapsed * depth / static_cast<double>(std::max<int64_t>(count, 1)),
            .reads = count};
  }

  // One of the engine's readers, kept at `depth` blobs in flight.
  DiskCeiling WithReader(const std::string& way, BlobReader& reader, int depth) {
    Places places(files_, piece_, ++seed_);
    std::vector<Clock::time_point> begun(static_cast<size_t>(depth));
    std::vector<double> durations;
    const auto submit = [&](int id) {
      BlobRead read = places.Next();
      read.target = memory_.data() + piece_ * static_cast<uint64_t>(id);
      read.id = id;
      begun[static_cast<size_t>(id)] = Clock::now();
      reader.Submit({&read, 1});
    };
    const Clock::time_point start = Clock::now();
    for (int id = 0; id < depth; ++id) submit(id);
    int in_flight = depth;
    while (in_flight > 0) {
      ReadCompletion done;
      if (reader.Wait({&done, 1}) == 0) continue;
      --in_flight;
      if (done.error != 0) FailErrno(fmt::format("cannot read with {}", way), done.error);
      durations.push_back(SecondsSince(begun[static_cast<size_t>(done.id)]));
      if (WantsMore(start, static_cast<int64_t>(durations.size()))) {
        submit(done.id);
        ++in_flight;
      }
    }
    return {.way = way,
            .depth = depth,
            .bytes_per_second = static_cast<double>(durations.size()) *
                                static_cast<double>(piece_) / SecondsSince(start),
            .median_seconds = Median(durations),
            .reads = static_cast<int64_t>(durations.size())};
  }

 private:
  bool WantsMore(Clock::time_point start, int64_t reads) const {
    const double elapsed = SecondsSince(start);
    return elapsed < seconds_ || (reads < kFewestReads && elapsed < kMostSeconds);
  }

  const std::vector<OpenFile>& files_;
  const uint64_t piece_;
  const double seconds_;
  MemoryLedger ledger_;
  Slab memory_;
  std::atomic<uint64_t> seed_{0};
};

DiskMeasurement Measure(const std::vector<OpenFile>& files, const DiskRequest& request) {
  DiskMeasurement result;
  const uint64_t piece = RoundUp(std::max<uint64_t>(request.blob_bytes, 1), kAlignment);
  if (Places(files, piece, 0).empty()) {
    result.problem = "there is no file of this size to read";
    return result;
  }
  result.direct = true;
  result.read_bytes = piece;
  for (const OpenFile& open : files) {
    result.file_bytes += open.bytes;
    if (const auto refused = EnableDirectIo(open.file, kAlignment)) {
      result.direct = false;
      result.problem = *refused;
    }
  }
  try {
    const int most = *std::max_element(request.depths.begin(), request.depths.end());
    DiskBench bench(files, piece, request.seconds, most);
    if (result.direct) {
      std::string refusal;
      const auto ring = request.ways == DiskRequest::Ways::kPlain
                            ? nullptr
                            : MakeUringReader({}, bench.memory(), piece, refusal);
      const bool plain = request.ways != DiskRequest::Ways::kRing || ring == nullptr;
      for (const int depth : request.depths) {
        if (plain) result.ceilings.push_back(bench.Plain("direct", depth, /*buffered=*/false));
      }
      for (const int depth : request.depths) {
        if (ring != nullptr) {
          result.ceilings.push_back(bench.WithReader("io_uring", *ring, depth));
        }
      }
      if (request.ways == DiskRequest::Ways::kAll) {
        PreadReader pool(ReaderOptions{}.threads, ReaderOptions{}.max_blobs);
        result.ceilings.push_back(bench.WithReader("pread pool", pool, std::min(8, most)));
      }
    }
    if (!result.direct || request.ways == DiskRequest::Ways::kAll) {
      for (const OpenFile& open : files) UseBufferedIo(open.file);
      for (const int depth : {1, std::min(8, most)}) {
        result.ceilings.push_back(bench.Plain("buffered", depth, /*buffered=*/true));
      }
      for (const int depth : {1, std::min(AvailableProcessors(), most)}) {
        result.ceilings.push_back(bench.Warm(depth));
      }
      // What the system read ahead would count against the memory limit of what is measured next.
      for (const OpenFile& open : files) DropPageCache(open.file);
    }
  } catch (const Error& error) {
    result.problem = error.what();
  }
  return result;
}

// A file without a name, on the file system of `directory`, with content that nothing compresses.
// Flushed step by step: how long flushing all of it at the end takes, nobody could bound.
OpenFile MakeScratchFile(const std::filesystem::path& directory, uint64_t blob_bytes) {
  constexpr const char* kName = "the file to measure the disk with";
  OpenFile scratch{FileDescriptor(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)),
                   0};
  if (!scratch.file.valid()) FailErrno("cannot create a file in " + directory.string(), errno);
  std::vector<uint64_t> words(kScratchStepBytes / sizeof(uint64_t));
  std::mt19937_64 random(1);
  const Clock::time_point start = Clock::now();
  const auto has_room_for_reads = [&] { return scratch.bytes >= RoundUp(blob_bytes, kAlignment); };
  while (!has_room_for_reads() ||
         (scratch.bytes < kScratchFileBytes && SecondsSince(start) < kMostSeconds)) {
    if (SecondsSince(start) > kMostSecondsPerBlob) {
      Fail(ErrorCode::kIo, "the disk is busy: writing {} took more than {} s",
           FormatByteCount(scratch.bytes), kMostSecondsPerBlob);
    }
    for (uint64_t& word : words) word = random();
    WriteExactly(scratch.file, scratch.bytes, std::as_bytes(std::span(words)), kName);
    SyncFile(scratch.file, kName);
    scratch.bytes += kScratchStepBytes;
  }
  return scratch;
}

}  // namespace

double DiskMeasurement::best() const {
  double best = 0;
  for (const DiskCeiling& ceiling : ceilings) {
    const bool cached = ceiling.way == "page cache" || (direct && ceiling.way == "buffered");
    if (!cached) {
      best = std::max(best, ceiling.bytes_per_second);
    }
  }
  return best;
}

DiskMeasurement MeasureDisk(const DiskRequest& request) {
  std::vector<OpenFile> open;
  for (const std::filesystem::path& path : request.files) {
    FileDescriptor file = OpenForReading(path);
    const uint64_t bytes = FileSize(file, path.string());
    open.push_back({std::move(file), bytes});
  }
  return Measure(open, request);
}

DiskMeasurement MeasureDiskAt(const std::filesystem::path& directory, uint64_t blob_bytes) {
  std::filesystem::path nearest = std::filesystem::absolute(directory);
  while (!std::filesystem::is_directory(nearest) && nearest.has_relative_path()) {
    nearest = nearest.parent_path();
  }
  DiskRequest request{.files = {}, .blob_bytes = blob_bytes};
  request.depths = {kPlanDepth};
  request.ways = DiskRequest::Ways::kPlain;
  try {
    std::vector<OpenFile> files;
    files.push_back(MakeScratchFile(nearest, blob_bytes));
    return Measure(files, request);
  } catch (const Error& error) {
    DiskMeasurement failed;
    failed.problem = error.what();
    return failed;
  }
}

}  // namespace mference::bench
