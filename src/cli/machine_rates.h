// How fast this machine reads memory and disk, measured briefly: what decoding will be bound by.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mference::cli {

// Bytes per second that `threads` threads read from memory together, over 128 MiB: the best of ten
// passes.
double MeasureMemoryRate(int threads);

struct DiskRate {
  double bytes_per_second = 0;  // 0: could not be measured
  bool direct = false;          // past the page cache; else the figure may flatter
  std::string problem;
};

// Random reads of `read_bytes` (rounded up to 16 KiB) from existing files, eight at a time, for
// half a second.
DiskRate MeasureDiskRate(const std::vector<std::filesystem::path>& files, uint64_t read_bytes);

// The same from a file of 128 MiB that is written into `directory` (or the nearest one above it
// that exists) and gone afterwards.
DiskRate MeasureDiskRateAt(const std::filesystem::path& directory, uint64_t read_bytes);

}  // namespace mference::cli
