#include "base/slab.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <future>
#include <utility>

#include "base/error.h"
#include "base/page_lock.h"

namespace mference {

struct Slab::Populating {
  std::atomic<bool> stop = false;
  std::future<void> done;
};

Slab::Slab(MemoryLedger& ledger, const std::string& part, size_t bytes, Pages pages)
    : size_(bytes) {
  if (bytes == 0) return;
  reservation_ = ledger.Reserve(part, bytes);
  // mmap aligns to the base page; map one huge page more and start at the first boundary. The
  // margins are never touched and cost no memory. Small slabs do without: at most one page is
  // wasted by rounding.
  mapping_bytes_ = bytes + kAlignment;
  mapping_ = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    FailErrno(fmt::format("cannot map {} bytes for {}", bytes, part), errno);
  }
  const auto address = reinterpret_cast<uintptr_t>(mapping_);
  data_ = reinterpret_cast<std::byte*>((address + kAlignment - 1) / kAlignment * kAlignment);
  // A huge page may only back ranges that are wholly ours to use: round down, so that the tail is
  // never charged for 2 MiB. Refusal (no THP support) costs speed, not correctness.
  const size_t huge_bytes = bytes / kAlignment * kAlignment;
  if (huge_bytes > 0) madvise(data_, huge_bytes, MADV_HUGEPAGE);
  if (pages == Pages::kInBackground) {
    populating_ = std::make_unique<Populating>();
    populating_->done =
        std::async(std::launch::async, [memory = this->bytes(), stop = &populating_->stop] {
          // Short steps, so that destruction need not wait.
          constexpr size_t kStepBytes = 8 * kAlignment;
          for (size_t at = 0; at < memory.size() && !stop->load(std::memory_order_relaxed);
               at += kStepBytes) {
            // An old kernel leaves the pages to whoever touches them.
            if (!PopulatePages(memory.subspan(at, std::min(kStepBytes, memory.size() - at))))
              return;
          }
        });
  }
  if (pages == Pages::kNow) {
    constexpr size_t kPage = 4096;  // smallest page of any supported host
    for (size_t at = 0; at < bytes; at += kPage) {
      *reinterpret_cast<volatile std::byte*>(data_ + at) = std::byte{0};
    }
  }
}
Slab::Slab() = default;
Slab::~Slab() {
  if (populating_ != nullptr) {
    populating_->stop = true;
    populating_->done.wait();
  }
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}
Slab::Slab(Slab&& other) noexcept { *this = std::move(other); }
Slab& Slab::operator=(Slab&& other) noexcept {
  std::swap(reservation_, other.reservation_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(populating_, other.populating_);
  return *this;
}

void Slab::WaitUntilPopulated() const {
  if (populating_ != nullptr) populating_->done.wait();
}

}  // namespace mference
