// Reads blobs with pread on a pool of threads: works everywhere, and is as fast as io_uring where
// whole blobs are large. The read of one blob is one thread's, from its first byte to its last.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/function_ref.h"
#include "experts/blob_reader.h"
#include "experts/bounded_queue.h"

namespace mference {

class PreadReader : public BlobReader {
 public:
  // `threads` blobs are read at a time, up to `capacity` are in flight or queued. Both at least 1,
  // else kInvalidArgument.
  PreadReader(int threads, int capacity);
  ~PreadReader() override;

  int capacity() const override { return capacity_; }
  void Submit(std::span<const BlobRead> reads) override;
  size_t Poll(std::span<ReadCompletion> completions) override;
  size_t Wait(std::span<ReadCompletion> completions) override;
  std::string Describe() const override;

 private:
  void Work();

  int capacity_;
  int in_flight_ = 0;  // submitted and not reported; the caller's thread only
  BoundedQueue<BlobRead> requests_;
  BoundedQueue<ReadCompletion> landed_;
  // Counters that threads sleep on: the value changes with every push, so that a waiter that read
  // it before it found the queue empty cannot miss a wake-up.
  std::atomic<int> requests_pushed_ = 0;
  std::atomic<int> landed_pushed_ = 0;
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> threads_;
};

// One blob, to its last byte, an error or the end of the file. Retries EINTR and short reads.
ReadCompletion ReadBlob(const BlobRead& read);

// The same with another pread(2): tests imitate it.
using PreadFunction = FunctionRef<ssize_t(int fd, void* target, size_t bytes, off_t offset)>;
ReadCompletion ReadBlob(const BlobRead& read, PreadFunction pread_function);

}  // namespace mference
