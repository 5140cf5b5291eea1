#include "experts/uring_reader.h"

#ifdef MFERENCE_HAVE_LIBURING

#include <fmt/format.h>
#include <liburing.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/units.h"

namespace mference {
namespace {

constexpr uint64_t kRequestAlignment = 16384;

// A preallocated first-in-first-out list of indices, and a free list in one.
class IndexQueue {
 public:
  explicit IndexQueue(size_t capacity) : ring_(capacity) {}

  bool empty() const { return size_ == 0; }
  void Push(int index) {
    assert(size_ < ring_.size());
    ring_[(begin_ + size_++) % ring_.size()] = index;
  }
  int Pop() {
    const int index = ring_[begin_];
    begin_ = (begin_ + 1) % ring_.size();
    --size_;
    return index;
  }

 private:
  std::vector<int> ring_;
  size_t begin_ = 0;
  size_t size_ = 0;
};

class UringReader : public BlobReader {
 public:
  UringReader(io_uring ring, const UringOptions& options, std::span<std::byte> region,
              uint64_t slot_bytes)
      : ring_(ring),
        options_(options),
        blobs_(static_cast<size_t>(options.max_blobs)),
        free_blobs_(blobs_.size()),
        // Cutting aims at target_requests in all and makes at most that many of one blob; every
        // blob has at least one.
        requests_(blobs_.size() * static_cast<size_t>(options.target_requests)),
        free_requests_(requests_.size()),
        waiting_(requests_.size()) {
    for (size_t i = 0; i < blobs_.size(); ++i) free_blobs_.Push(static_cast<int>(i));
    for (size_t i = 0; i < requests_.size(); ++i) free_requests_.Push(static_cast<int>(i));
    RegisterBuffers(region, slot_bytes);
  }

  ~UringReader() override {
    ReadCompletion landed;
    while (blobs_in_flight_ > 0) Wait({&landed, 1});
    io_uring_queue_exit(&ring_);
  }

  int capacity() const override { return static_cast<int>(blobs_.size()); }

  void Submit(std::span<const BlobRead> reads) override {
    if (reads.empty()) return;
    const int outstanding = blobs_in_flight_ + static_cast<int>(reads.size());
    Check(outstanding <= capacity(), "more reads in flight than the reader can take");
    for (const BlobRead& read : reads) Cut(read, outstanding);
    Pump();
  }

  size_t Poll(std::span<ReadCompletion> completions) override {
    size_t count = 0;
    io_uring_cqe* cqe = nullptr;
    while (count < completions.size() && io_uring_peek_cqe(&ring_, &cqe) == 0) {
      count += static_cast<size_t>(OnRequestDone(cqe, completions[count]));
    }
    Pump();
    return count;
  }

  size_t Wait(std::span<ReadCompletion> completions) override {
    while (true) {
      if (const size_t count = Poll(completions); count > 0) return count;
      // Also submits what the kernel would not take before; then an error is only a reason to try
      // again, since Poll has found nothing to report yet.
      io_uring_submit_and_wait(&ring_, 1);
    }
  }

  std::string Describe() const override {
    return fmt::format("io_uring with up to {} requests in flight{}", options_.queue_depth,
                       buffers_.empty() ? buffers_refusal_ : ", registered buffers");
  }

 private:
  struct Blob {
    BlobRead read;
    int requests_left = 0;
    int error = 0;
    uint64_t end_of_data = 0;  // lowest offset in the blob at which a request met the file's end
  };
  struct Request {
    int blob = 0;
    uint64_t begin = 0;  // in the blob; advances with short reads
    uint64_t end = 0;
  };

  // Large buffers cost a pin at start instead of one per read. The limit on locked memory is often
  // 8 MiB; then reads do without.
  void RegisterBuffers(std::span<std::byte> region, uint64_t slot_bytes) {
    if (region.empty() || slot_bytes == 0) return;
    buffer_bytes_ = std::max<uint64_t>(kGiB / slot_bytes, 1) * slot_bytes;
    for (uint64_t at = 0; at < region.size(); at += buffer_bytes_) {
      buffers_.push_back({.iov_base = region.data() + at,
                          .iov_len = std::min<uint64_t>(buffer_bytes_, region.size() - at)});
    }
    region_ = region;
    const int error =
        io_uring_register_buffers(&ring_, buffers_.data(), static_cast<unsigned>(buffers_.size()));
    if (error == 0) return;
    buffers_.clear();
    buffers_refusal_ = fmt::format(", buffers not registered ({})", std::strerror(-error));
  }

  // Registered buffer that holds all of [target, target + bytes), or -1.
  int BufferIndex(const std::byte* target, uint64_t bytes) const {
    if (buffers_.empty() || target < region_.data()) return -1;
    const auto at = static_cast<uint64_t>(target - region_.data());
    if (at + bytes > region_.size()) return -1;
    const uint64_t index = at / buffer_bytes_;
    return (at + bytes - 1) / buffer_bytes_ == index ? static_cast<int>(index) : -1;
  }

  // Turns a blob into requests; `outstanding` blobs share the device.
  void Cut(const BlobRead& read, int outstanding) {
    const int blob = free_blobs_.Pop();
    ++blobs_in_flight_;
    const int wanted = (options_.target_requests + outstanding - 1) / outstanding;
    const uint64_t length = std::max(
        RoundUp((read.bytes + static_cast<uint64_t>(wanted) - 1) / static_cast<uint64_t>(wanted),
                kRequestAlignment),
        options_.min_request_bytes);
    Blob& target = blobs_[static_cast<size_t>(blob)];
    target = {.read = read, .end_of_data = read.bytes};
    for (uint64_t begin = 0; begin < read.bytes; begin += length) {
      const int request = free_requests_.Pop();
      requests_[static_cast<size_t>(request)] = {
          .blob = blob, .begin = begin, .end = std::min(begin + length, read.bytes)};
      waiting_.Push(request);
      ++target.requests_left;
    }
  }

  // Hands waiting requests to the kernel, as many as the queue depth allows.
  void Pump() {
    while (!waiting_.empty() && requests_in_flight_ < options_.queue_depth) {
      io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
      if (sqe == nullptr) break;
      const int index = waiting_.Pop();
      const Request& request = requests_[static_cast<size_t>(index)];
      const BlobRead& read = blobs_[static_cast<size_t>(request.blob)].read;
      std::byte* target = read.target + request.begin;
      const auto bytes = static_cast<unsigned>(request.end - request.begin);
      const uint64_t offset = read.offset + request.begin;
      const int buffer = BufferIndex(target, bytes);
      if (buffer >= 0) {
        io_uring_prep_read_fixed(sqe, read.fd, target, bytes, offset, buffer);
      } else {
        io_uring_prep_read(sqe, read.fd, target, bytes, offset);
      }
      sqe->user_data = static_cast<uint64_t>(index);
      ++requests_in_flight_;
    }
    // Entries the kernel does not take now (EAGAIN, EBUSY) stay in the ring for the next call.
    if (io_uring_sq_ready(&ring_) > 0) io_uring_submit(&ring_);
  }

  // Accounts for one finished request. True when that completes its blob, reported in `completion`.
  bool OnRequestDone(io_uring_cqe* cqe, ReadCompletion& completion) {
    const auto index = static_cast<int>(cqe->user_data);
    const int result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    --requests_in_flight_;
    Request& request = requests_[static_cast<size_t>(index)];
    Blob& blob = blobs_[static_cast<size_t>(request.blob)];
    if (result > 0) request.begin += static_cast<uint64_t>(result);
    const bool interrupted = result == -EINTR || (result > 0 && request.begin < request.end);
    if (interrupted && blob.error == 0) {
      waiting_.Push(index);
      return false;
    }
    if (result < 0 && blob.error == 0) blob.error = -result;
    if (request.begin < request.end) blob.end_of_data = std::min(blob.end_of_data, request.begin);
    free_requests_.Push(index);
    if (--blob.requests_left > 0) return false;
    completion = {.id = blob.read.id, .error = blob.error, .bytes_read = blob.end_of_data};
    free_blobs_.Push(request.blob);
    --blobs_in_flight_;
    return true;
  }

  io_uring ring_;
  UringOptions options_;
  std::vector<Blob> blobs_;
  IndexQueue free_blobs_;
  std::vector<Request> requests_;
  IndexQueue free_requests_;
  IndexQueue waiting_;  // requests cut but not yet handed to the kernel
  int requests_in_flight_ = 0;
  int blobs_in_flight_ = 0;
  std::vector<iovec> buffers_;   // empty: not registered
  std::string buffers_refusal_;  // what to say of it; empty when nothing was to be registered
  std::span<std::byte> region_;
  uint64_t buffer_bytes_ = 0;
};

}  // namespace

std::unique_ptr<BlobReader> MakeUringReader(const UringOptions& options,
                                            std::span<std::byte> region, uint64_t slot_bytes,
                                            std::string& refusal) {
  if (options.max_blobs < 1 || options.queue_depth < 1 || options.target_requests < 1) {
    Fail(ErrorCode::kInvalidArgument, "io_uring reader: {} blobs, depth {}, {} requests",
         options.max_blobs, options.queue_depth, options.target_requests);
  }
  io_uring ring;
  const int error = io_uring_queue_init(static_cast<unsigned>(options.queue_depth), &ring, 0);
  if (error != 0) {
    refusal = fmt::format("the kernel refuses io_uring ({})", std::strerror(-error));
    return nullptr;
  }
  // The ring is plain data and pointers into shared mappings: it may be copied once set up.
  return std::make_unique<UringReader>(ring, options, region, slot_bytes);
}

}  // namespace mference

#else  // !MFERENCE_HAVE_LIBURING

namespace mference {

std::unique_ptr<BlobReader> MakeUringReader(const UringOptions& /*options*/,
                                            std::span<std::byte> /*region*/,
                                            uint64_t /*slot_bytes*/, std::string& refusal) {
  refusal = "built without liburing";
  return nullptr;
}

}  // namespace mference

#endif
