// How fast memory can be read: the wall that decoding meets.
#pragma once

namespace mference::bench {

// Bytes per second that `threads` threads read from memory together: sequential reads of huge pages
// well beyond the last-level cache, the best of several passes (other programs only ever make one
// slower). Takes a quarter of a second and up to 1 GiB for that long.
double MeasureMemoryRate(int threads);

}  // namespace mference::bench
