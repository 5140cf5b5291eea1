// How fast memory can be read: the wall that decoding meets.
#pragma once

#include <cstddef>
#include <span>

namespace mference::bench {

// Bytes per second that `threads` threads read from memory together: sequential reads of huge pages
// well beyond the last-level cache, the best of several passes (other programs only ever make one
// slower). Takes a quarter of a second and up to 1 GiB for that long.
double MeasureMemoryRate(int threads);
// The same over memory that exists already, far larger than the last-level cache.
double MeasureMemoryRate(int threads, std::span<const std::byte> memory, int passes);

}  // namespace mference::bench
