// Byte counts as people write them, and numbers as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mference {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr uint64_t kGiB = 1024 * kMiB;

// Smallest multiple of `alignment` (a power of two or not, > 0) that is >= `value`.
// Throws kInvalidArgument on overflow.
uint64_t RoundUp(uint64_t value, uint64_t alignment);

// "2GiB", "2G", "1536MiB", "1.5GiB", "2GB" (decimal), "4096". K, M and G alone are binary, as in
// the tools people set cgroup limits with. Throws kInvalidArgument naming the text.
uint64_t ParseByteCount(std::string_view text);

// "1.50 GiB", "820.0 MiB", "512 B": binary units, three significant digits or so.
std::string FormatByteCount(uint64_t bytes);

}  // namespace mference
