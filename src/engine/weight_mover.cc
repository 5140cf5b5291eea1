#include "engine/weight_mover.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/huge_pages.h"
#include "base/page_lock.h"
#include "base/slab.h"
#include "base/units.h"

namespace mference {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kPage = 4096;  // the smallest of any supported host

// Norms and other small tensors, which are widened when a model is loaded and not read again.
constexpr ptrdiff_t kLargestGap = 64 * 1024;

}  // namespace

WeightMover::WeightMover(std::span<const std::byte> mapping, const FileDescriptor& file,
                         std::vector<std::span<const std::byte>> ranges, const Options& options)
    : mapping_(mapping), file_(file), options_(options), moves_(ranges.size()) {
  using Range = std::span<const std::byte>;
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.data() < b.data(); });
  const auto repeated =
      std::unique(ranges.begin(), ranges.end(),
                  [](const Range& a, const Range& b) { return a.data() == b.data(); });
  ranges.erase(repeated, ranges.end());
  for (const std::span<const std::byte>& range : ranges) {
    if (range.size() > options_.largest_copy_bytes) {
      in_place_.push_back(range);
    } else if (!range.empty()) {
      copied_.push_back(range);
      copies_bytes_ += RoundUp(range.size(), kCacheLine);
    }
  }
}

WeightMover::~WeightMover() {
  moves_.Stop();
  if (done_.valid()) done_.wait();
  if (reserved_ != nullptr) munmap(reserved_, reserved_bytes_);
}

void WeightMover::Start(std::shared_future<void> after) {
  if (done_.valid()) return;
  done_ = std::async(std::launch::async, [this, after = std::move(after)] {
    after.wait();
    Run();
    moves_.Close();
  });
}

void WeightMover::Run() {
  reserved_bytes_ = copies_bytes_ + Slab::kAlignment;
  void* const reserved = mmap(nullptr, reserved_bytes_, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  // Weights work from where they are, too.
  if (reserved == MAP_FAILED) return;
  reserved_ = reserved;
  copies_ = reinterpret_cast<std::byte*>(
      RoundUp(reinterpret_cast<uintptr_t>(reserved), Slab::kAlignment));
  // As in Slab: a tail that would not fill a huge page is not charged for one.
  const size_t huge_bytes = copies_bytes_ / Slab::kAlignment * Slab::kAlignment;
  if (huge_bytes > 0) madvise(copies_, huge_bytes, MADV_HUGEPAGE);

  size_t held_twice = 0;
  for (size_t i = 0; i < copied_.size(); ++i) {
    const std::span<const std::byte> range = copied_[i];
    if (held_twice + range.size() > options_.held_twice_bytes) {
      if (!moves_.WaitUntilTaken(i)) return;
      Release(i);
      held_twice = 0;
    }
    const size_t end = used_bytes_ + RoundUp(range.size(), kCacheLine);
    if (moves_.stopped() || !MakeRoom(end)) return;
    std::byte* const copy = copies_ + used_bytes_;
    std::memcpy(copy, range.data(), range.size());
    used_bytes_ = end;
    held_twice += range.size();
    moves_.Publish({.from = range.data(), .to = copy});
  }
  if (!moves_.WaitUntilTaken(copied_.size())) return;
  Release(copied_.size());
  // From here on nobody writes.
  mprotect(copies_, used_bytes_, PROT_READ);
  for (const std::span<const std::byte>& range : in_place_) MoveInPlace(range);
  if (!options_.keep_page_cache) DropPageCache(file_);
}

bool WeightMover::MakeRoom(size_t end) {
  while (backed_bytes_ < end) {
    const size_t piece = std::min(Slab::kAlignment, copies_bytes_ - backed_bytes_);
    const std::span<std::byte> pages(copies_ + backed_bytes_, piece);
    if (moves_.stopped()) return false;
    // An old kernel leaves the pages to whoever touches them first: the copy.
    if (PopulatePages(pages)) KeepPages(pages);
    backed_bytes_ += piece;
  }
  return true;
}

void WeightMover::MoveInPlace(std::span<const std::byte> range) {
  const auto begin = static_cast<uint64_t>(range.data() - mapping_.data());
  MoveToHugePages(range, [&](size_t offset, size_t bytes) {
    if (!options_.keep_page_cache) DropPageCache(file_, begin + offset, bytes);
    return !moves_.stopped();
  });
}

void WeightMover::Release(size_t count) {
  for (; released_ < count; ++released_) {
    const std::span<const std::byte> range = copied_[released_];
    const std::byte* const end = range.data() + range.size();
    const std::byte* begin = range.data();
    // With what lies between two ranges, and the page that they share.
    if (released_end_ != nullptr && begin - released_end_ <= kLargestGap) begin = released_end_;
    ReleasePages({begin, end});
    released_end_ = end - static_cast<ptrdiff_t>(reinterpret_cast<uintptr_t>(end) % kPage);
  }
  if (options_.keep_page_cache || released_end_ == nullptr) return;
  // The cache may keep a file by huge pages, which tensors share, and forgets whole ones only.
  const auto end =
      static_cast<uint64_t>(released_end_ - mapping_.data()) / Slab::kAlignment * Slab::kAlignment;
  if (end > dropped_bytes_) DropPageCache(file_, dropped_bytes_, end - dropped_bytes_);
  dropped_bytes_ = std::max(dropped_bytes_, end);
}

}  // namespace mference
