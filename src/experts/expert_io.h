// Choosing how experts are read: through the page cache or around it, and by which reader.
//
// Buffered reads are right when all experts fit in memory that is free anyway: the page cache is
// then a second cache for nothing. Direct reads are right when they do not: the page cache would
// only thrash, be charged to our memory limit, and push out resident weights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "experts/blob_reader.h"

namespace mference {

enum class ExpertIo { kAuto, kDirect, kBuffered };

// "auto", "direct", "buffered". Throws kInvalidArgument.
ExpertIo ParseExpertIo(std::string_view text);

struct IoChoice {
  bool direct = false;
  std::string reason;  // for people: "direct: 12.00 GiB of experts do not fit in ..."
};

// Decides kAuto: direct when `expert_bytes` (all experts of the model) exceed 0.7 of
// `free_memory_bytes` (what the machine or its cgroup leaves after our own reservations).
IoChoice ChooseIo(ExpertIo mode, uint64_t expert_bytes, uint64_t free_memory_bytes);

struct ReaderOptions {
  int threads = 8;           // of the pread pool: blobs read at a time
  int max_blobs = 64;        // most blobs in flight or queued in the reader
  int queue_depth = 64;      // io_uring: most requests in flight
  int target_requests = 16;  // io_uring: blobs are split until about this many are in flight
  // io_uring: register the slots with the kernel, where the limit on locked memory allows. Blobs of
  // megabytes on huge pages gain nothing from it (50 us of CPU per 3.2 MiB blob against 40
  // without), and it touches every page at once, at the cost of start time.
  bool register_buffers = false;
};

// Direct choice: io_uring where the kernel allows it, else the pread pool; buffered: the pread
// pool. When io_uring was wanted and could not be had, `refusal` says why. `region` is the memory
// that reads land in (SlotMemory::ReadRegion), for `register_buffers`.
std::unique_ptr<BlobReader> MakeBlobReader(const IoChoice& choice, const ReaderOptions& options,
                                           std::span<std::byte> region, uint64_t slot_bytes,
                                           std::string* refusal = nullptr);

// Sets O_DIRECT on an open file. Returns why not, if the file system refuses it or needs an
// alignment that `alignment` (of every offset, length and address) does not meet.
std::optional<std::string> EnableDirectIo(const FileDescriptor& file, uint64_t alignment);
// Clears O_DIRECT and tells the kernel that access is random: no read-ahead beside ours.
void UseBufferedIo(const FileDescriptor& file);

}  // namespace mference
