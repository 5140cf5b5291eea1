// How bytes arrive: asynchronous reads of whole blobs, apart from the policy that asks for them.
//
// A reader takes batches of reads and reports completions in any order. It retries what the kernel
// leaves half done (EINTR, short reads) and reports everything else once; whether a failed read
// deserves another attempt is the store's decision. Implementations: a pool of threads that call
// pread (pread_reader.h), io_uring (uring_reader.h), and a fault-injecting one in the tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace mference {

struct BlobRead {
  int fd = -1;
  uint64_t offset = 0;          // bytes from the start of the file
  std::byte* target = nullptr;  // `bytes` writable bytes, the reader's until completion
  uint64_t bytes = 0;
  int id = 0;  // the caller's, in [0, capacity of ids it chose); unique among reads in flight
};

struct ReadCompletion {
  int id = 0;
  int error = 0;            // errno, or 0
  uint64_t bytes_read = 0;  // from the start, without a gap; less than asked without an error:
                            // the file ends there
};

// One thread submits and reaps; it may be any thread, but one at a time.
class BlobReader {
 public:
  // Waits until no read is in flight: targets must outlive the reader.
  virtual ~BlobReader() = default;

  // Most reads in flight at a time, at least 1.
  virtual int capacity() const = 0;
  // Starts reads; the caller keeps the total in flight within `capacity()`. Never waits for a read,
  // never allocates. Every read submitted is reported exactly once.
  virtual void Submit(std::span<const BlobRead> reads) = 0;
  // Reports completed reads, as many as are there and fit; 0 if none. Never blocks.
  virtual size_t Poll(std::span<ReadCompletion> completions) = 0;
  // The same, but sleeps until there is at least one. Only with reads in flight.
  virtual size_t Wait(std::span<ReadCompletion> completions) = 0;
  // What it is, for people: "io_uring, up to 64 requests in flight, registered buffers".
  virtual std::string Describe() const = 0;
};

}  // namespace mference
