#include "base/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/page_lock.h"

namespace mference {
namespace {

// Of x86-64, and of arm64 with pages of 4 KiB. Also what is held twice for a moment.
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

#ifdef __linux__

size_t MoveToHugePages(std::span<const std::byte> mapping,
                       FunctionRef<bool(size_t offset, size_t bytes)> after_piece) {
  const auto address = reinterpret_cast<uintptr_t>(mapping.data());
  const uintptr_t begin = (address + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = (address + mapping.size()) / kHugePage * kHugePage;
  if (mapping.empty() || begin >= end) return 0;
  // Pieces are made in a range as long as the mapping, each in its own place, so that the kernel
  // can join them again when they have moved.
  const size_t bytes = end - begin;
  const size_t staging_bytes = bytes + kHugePage;
  void* const staging = mmap(nullptr, staging_bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (staging == MAP_FAILED) return 0;
  const uintptr_t made =
      (reinterpret_cast<uintptr_t>(staging) + kHugePage - 1) / kHugePage * kHugePage;
  madvise(reinterpret_cast<void*>(made), bytes, MADV_HUGEPAGE);

  size_t moved = 0;
  while (moved < bytes) {
    const size_t piece = std::min(kHugePage, bytes - moved);
    auto* const from = reinterpret_cast<std::byte*>(made + moved);
    auto* const to = reinterpret_cast<std::byte*>(begin + moved);
    if (!PopulatePages({from, piece})) break;
    std::memcpy(from, to, piece);
    if (mprotect(from, piece, PROT_READ) != 0) break;
    KeepPages({from, piece});
    // One step for whoever reads: a thread that finds neither the old nor the new page waits until
    // the call is over.
    if (mremap(from, piece, piece, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED) break;
    moved += piece;
    if (!after_piece(begin - address + moved - piece, piece)) break;
  }
  // Where pieces have gone from, others may have mapped something since.
  const auto start = reinterpret_cast<uintptr_t>(staging);
  if (made > start) munmap(staging, made - start);
  munmap(reinterpret_cast<void*>(made + moved), start + staging_bytes - made - moved);
  return moved;
}

#else

size_t MoveToHugePages(std::span<const std::byte>, FunctionRef<bool(size_t, size_t)>) { return 0; }

#endif

}  // namespace mference
