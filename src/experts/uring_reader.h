// Reads blobs with io_uring: one thread keeps the device's queue full without a pool behind it.
//
// A blob is cut into requests, so that even one missing expert gives the device several reads to
// work on; with many blobs outstanding each is one request. Requests beyond the queue depth wait
// here in order of submission, so that earlier blobs land earlier.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "experts/blob_reader.h"

namespace mference {

struct UringOptions {
  int max_blobs = 64;        // most blobs in flight or queued
  int queue_depth = 64;      // most requests in flight
  int target_requests = 16;  // blobs are cut until about this many requests are outstanding
  // Requests are cut to multiples of 16 KiB, at least this long (the last one of a blob aside).
  uint64_t min_request_bytes = uint64_t{512} << 10;
};

// Null, with `refusal` set, when the kernel does not give us a ring (no io_uring, seccomp, limits)
// or the program was built without liburing. `region` is registered with the kernel where the
// memlock limit allows, in buffers of at most 1 GiB cut at multiples of `slot_bytes`; otherwise
// reads pin their pages one by one. An empty region is not registered.
std::unique_ptr<BlobReader> MakeUringReader(const UringOptions& options,
                                            std::span<std::byte> region, uint64_t slot_bytes,
                                            std::string& refusal);

}  // namespace mference
