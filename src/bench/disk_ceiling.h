// How fast blobs can be read from disk: the wall that streaming meets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mference::bench {

struct DiskCeiling {
  std::string way;  // "direct", "buffered", "page cache", or a reader's: "io_uring", "pread pool"
  int depth = 0;    // reads in flight
  double bytes_per_second = 0;
  double median_seconds = 0;  // of one read, waiting in the device's queue included
  int64_t reads = 0;
};

struct DiskMeasurement {
  bool direct = false;      // past the page cache; else figures may flatter
  std::string problem;      // why not, or why nothing was measured
  uint64_t read_bytes = 0;  // of one read
  uint64_t file_bytes = 0;  // of all files read from
  std::vector<DiskCeiling> ceilings;

  // The fastest of all direct reads (buffered where there is no direct I/O), whatever the way and
  // the depth; 0 if nothing was measured.
  double best() const;
};

// Random reads of `blob_bytes` from existing files. A busy disk ends a figure after two seconds.
struct DiskRequest {
  std::vector<std::filesystem::path> files;
  uint64_t blob_bytes = 0;  // rounded up to 16 KiB
  std::vector<int> depths = {1, 2, 4, 8, 16};
  double seconds = 0.4;  // per figure, at least; and never fewer than a few reads
  enum class Ways : uint8_t {
    kPlain,  // pread on as many threads as reads are in flight
    kRing,   // io_uring on one thread; where there is none, plain
    kAll,    // both, the engine's thread pool, and through the page cache, cold and warm
  };
  Ways ways = Ways::kAll;
};
DiskMeasurement MeasureDisk(const DiskRequest& request);

// Direct reads at one depth from a file that is written into `directory` (or the nearest one above
// it that exists) and gone afterwards: of 128 MiB, or of what a busy disk takes in two seconds.
DiskMeasurement MeasureDiskAt(const std::filesystem::path& directory, uint64_t blob_bytes);

}  // namespace mference::bench
