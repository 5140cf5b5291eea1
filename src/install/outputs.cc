#include "install/outputs.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

#include "base/error.h"
#include "format/manifest.h"

namespace mference {
namespace {

constexpr unsigned kOutputMode = 0644;

bool HasIndex(File& file, std::span<const std::byte> index_region) {
  std::vector<std::byte> found(index_region.size());
  file.ReadAt(0, found);
  return std::equal(found.begin(), found.end(), index_region.begin());
}

}  // namespace

ScratchBuffer::ScratchBuffer(size_t bytes)
    : data_(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes))), size_(bytes) {
  if (data_ == nullptr) throw std::bad_alloc();
}

void ScratchBuffer::Free::operator()(std::byte* data) const { std::free(data); }

OutputFiles OutputFiles::Create(FileSystem& files, const FileSystem::Path& directory,
                                const RangePlan& plan, std::span<const std::byte> index_region) {
  OutputFiles outputs;
  files.CreateDirectory(directory / kExpertsDirectory);
  for (const PlannedOutput& planned : plan.outputs) {
    std::unique_ptr<File> file = files.CreateFile(directory / planned.path, kOutputMode);
    file->Resize(planned.bytes);
    if (planned.path == kWeightsFile) file->WriteAt(0, index_region);
    file->Sync();
    outputs.files_.push_back(std::move(file));
  }
  files.SyncDirectory(directory / kExpertsDirectory);
  files.SyncDirectory(directory);
  return outputs;
}

std::unique_ptr<OutputFiles> OutputFiles::OpenMatching(FileSystem& files,
                                                       const FileSystem::Path& directory,
                                                       const RangePlan& plan,
                                                       std::span<const std::byte> index_region) {
  auto outputs = std::make_unique<OutputFiles>();
  for (const PlannedOutput& planned : plan.outputs) {
    const FileSystem::Path path = directory / planned.path;
    if (files.Examine(path) != EntryType::kFile) return nullptr;
    std::unique_ptr<File> file = files.OpenFile(path, FileAccess::kReadWrite);
    if (file->Size() != planned.bytes) return nullptr;
    if (planned.path == kWeightsFile && !HasIndex(*file, index_region)) return nullptr;
    outputs->files_.push_back(std::move(file));
  }
  return outputs;
}

// Digests tiles in the order they are handed over. Two may be under way: one being digested, one
// waiting; they lie in different halves of the scratch buffer.
class RangeCopier::DigestThread {
 public:
  DigestThread() : thread_([this] { Run(); }) {}
  ~DigestThread() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  DigestThread(const DigestThread&) = delete;
  DigestThread& operator=(const DigestThread&) = delete;

  // Returns when at most `left` of the tiles handed over are not digested yet.
  void WaitUntil(uint64_t left) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return added_ - done_ <= left; });
  }
  // `begins`: the copy that starts with this tile, or null. Everything must live until it is done.
  void Add(RangeDigest& digest, const ScalarCopy* begins, std::span<const std::byte> tile) {
    {
      const std::lock_guard lock(mutex_);
      tiles_[added_ % tiles_.size()] = {.digest = &digest, .begins = begins, .bytes = tile};
      ++added_;
    }
    changed_.notify_all();
  }

 private:
  struct Tile {
    RangeDigest* digest = nullptr;
    const ScalarCopy* begins = nullptr;
    std::span<const std::byte> bytes;
  };

  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || done_ < added_; });
      if (done_ == added_) return;
      const Tile tile = tiles_[done_ % tiles_.size()];
      lock.unlock();
      if (tile.begins != nullptr) tile.digest->BeginCopy(*tile.begins);
      tile.digest->Update(tile.bytes);
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Tile, 2> tiles_;
  uint64_t added_ = 0;
  uint64_t done_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

RangeCopier::RangeCopier(const RangePlan& plan, OutputFiles& outputs, std::span<std::byte> scratch,
                         std::function<void()> check_cancelled, bool background)
    : plan_(plan),
      outputs_(outputs),
      scratch_(scratch),
      check_cancelled_(std::move(check_cancelled)),
      digest_thread_(background ? std::make_unique<DigestThread>() : nullptr) {}
RangeCopier::~RangeCopier() = default;

std::string RangeCopier::Copy(size_t range_number, FetchedRange& source) {
  const SourceRange& range = plan_.ranges[range_number];
  RangeDigest digest(plan_, range_number);
  // Whatever ends the copy, no tile may still be digested when `digest` goes.
  struct Drain {
    DigestThread* thread;
    ~Drain() {
      if (thread != nullptr) thread->WaitUntil(0);
    }
  };
  {
    const Drain drain{digest_thread_.get()};
    const size_t half = digest_thread_ != nullptr ? scratch_.size() / 2 : scratch_.size();
    for (const ScalarCopy& copy : plan_.CopiesOf(range)) {
      const uint64_t unit = copy.transform.unit_bytes();
      const uint64_t expansion = copy.transform.expansion();
      const uint64_t tile_bytes = half / expansion / unit * unit;
      Check(tile_bytes > 0, "a transform expands beyond the scratch buffer");
      File& output = outputs_.file(copy.output);
      for (uint64_t done = 0; done < copy.source_bytes; done += tile_bytes) {
        check_cancelled_();
        const size_t bytes = std::min(tile_bytes, copy.source_bytes - done);
        std::span<std::byte> tile = scratch_.first(half);
        if (digest_thread_ != nullptr) {
          digest_thread_->WaitUntil(1);  // the tile before the last had this half
          tile = scratch_.subspan(tiles_ % 2 * half, half);
        }
        source.ReadAt(copy.source_offset - range.offset + done, tile.first(bytes));
        if (copy.ternary && HasInvalidTernaryCode(tile.first(bytes))) {
          Fail(ErrorCode::kSourceInvalid,
               "{} holds ternary code 3 within [{}, {}): the checkpoint is damaged",
               plan_.shards[range.shard], copy.source_offset + done,
               copy.source_offset + done + bytes);
        }
        ApplyTransform(copy.transform, tile, bytes);
        const std::span<const std::byte> written = tile.first(bytes * expansion);
        const ScalarCopy* begins = done == 0 ? &copy : nullptr;
        if (digest_thread_ != nullptr) {
          digest_thread_->Add(digest, begins, written);
        } else {
          if (begins != nullptr) digest.BeginCopy(*begins);
          digest.Update(written);
        }
        output.WriteAt(copy.output_offset + done * expansion, written);
        ++tiles_;
      }
    }
  }
  return digest.FinishHex();
}

std::string RangeCopier::Redigest(size_t range_number) {
  RangeDigest digest(plan_, range_number);
  for (const ScalarCopy& copy : plan_.CopiesOf(plan_.ranges[range_number])) {
    digest.BeginCopy(copy);
    for (uint64_t done = 0; done < copy.output_bytes(); done += scratch_.size()) {
      check_cancelled_();
      const auto tile =
          scratch_.first(std::min<uint64_t>(scratch_.size(), copy.output_bytes() - done));
      outputs_.file(copy.output).ReadAt(copy.output_offset + done, tile);
      digest.Update(tile);
    }
  }
  return digest.FinishHex();
}

void SyncOutputsOf(const RangePlan& plan, size_t range, OutputFiles& outputs) {
  std::set<uint32_t> touched;
  for (const ScalarCopy& copy : plan.CopiesOf(plan.ranges[range])) touched.insert(copy.output);
  for (const uint32_t output : touched) outputs.file(output).Sync();
}

}  // namespace mference
