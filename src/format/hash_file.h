// SHA-256 of a file with one fixed buffer, interruptible.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/file.h"

namespace mference {

constexpr size_t kHashBufferBytes = size_t{1} << 20;

struct HashOptions {
  // Called with the bytes just hashed, about once per megabyte. May throw to stop.
  std::function<void(uint64_t bytes)> on_progress;
  // Tells the kernel that the pages will not be needed again: a pass over a whole install must not
  // evict everybody else's page cache.
  bool drop_page_cache = false;
};

// 64 lower-case hex digits of the first `bytes` bytes. Throws kIo.
std::string HashFile(const FileDescriptor& file, uint64_t bytes, const std::string& name,
                     const HashOptions& options = {});

}  // namespace mference
