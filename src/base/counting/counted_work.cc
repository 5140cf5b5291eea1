// Replaces the global allocation functions and pthread_mutex_lock by ones that count.
//
// Not part of the library: linked into programs whose work is to be counted. The sanitizers own
// these functions, so under them nothing is counted.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "base/work_counts.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // g++
#define MFERENCE_SANITIZED_ALLOCATOR
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)  // clang++
#define MFERENCE_SANITIZED_ALLOCATOR
#endif
#endif

#ifndef MFERENCE_SANITIZED_ALLOCATOR

namespace {

std::atomic<int64_t> allocations = 0;
std::atomic<int64_t> mutex_locks = 0;

void* Allocate(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(bytes > 0 ? bytes : 1)
                     : std::aligned_alloc(alignment, rounded > 0 ? rounded : alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

[[maybe_unused]] const bool installed = [] {
  mference::SetWorkCounter(
      [] { return mference::WorkCounts{.allocations = allocations, .mutex_locks = mutex_locks}; });
  return true;
}();

}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  using Lock = int (*)(pthread_mutex_t*);
  static std::atomic<Lock> next = nullptr;
  Lock lock = next.load(std::memory_order_relaxed);
  if (lock == nullptr) {
    lock = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
    next.store(lock, std::memory_order_relaxed);
  }
  mutex_locks.fetch_add(1, std::memory_order_relaxed);
  return lock(mutex);
}

#endif
