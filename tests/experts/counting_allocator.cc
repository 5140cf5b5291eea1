#include "experts/counting_allocator.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // g++
#define MFERENCE_SANITIZED_ALLOCATOR
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)  // clang++
#define MFERENCE_SANITIZED_ALLOCATOR
#endif
#endif

namespace {
std::atomic<int64_t> allocations = 0;
}  // namespace

#ifndef MFERENCE_SANITIZED_ALLOCATOR
// In a file of their own: inlined beside their callers, compilers take them for mismatched pairs.
void* operator new(size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*bytes*/) noexcept { std::free(memory); }
#endif

namespace mference {

bool CountsAllocations() {
#ifdef MFERENCE_SANITIZED_ALLOCATOR
  return false;
#else
  return true;
#endif
}

int64_t AllocationCount() { return allocations; }

}  // namespace mference
