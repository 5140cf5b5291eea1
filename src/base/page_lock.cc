#include "base/page_lock.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace mference {

void KeepPages(std::span<const std::byte> mapping) {
  if (mapping.empty()) return;
  if (mlock(mapping.data(), mapping.size()) == 0) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(mapping.data());
  const uintptr_t begin = address / page * page;
#ifdef MADV_POPULATE_READ
  if (madvise(reinterpret_cast<void*>(begin), address + mapping.size() - begin,
              MADV_POPULATE_READ) == 0) {
    return;
  }
#endif
  // Older kernels: a byte of each page.
  for (size_t at = 0; at < mapping.size(); at += page) {
    [[maybe_unused]] const std::byte touched =
        *static_cast<const volatile std::byte*>(mapping.data() + at);
  }
}

void ReleasePages(std::span<const std::byte> mapping) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(mapping.data());
  const uintptr_t begin = (address + page - 1) / page * page;
  const uintptr_t end = (address + mapping.size()) / page * page;
  if (begin >= end) return;
  munlock(reinterpret_cast<void*>(begin), end - begin);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

bool PopulatePages(std::span<std::byte> memory) {
#ifdef MADV_POPULATE_WRITE
  return madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE) == 0;
#else
  return memory.empty();
#endif
}

}  // namespace mference
