// Brings weights to where products read them fastest, while they are in use.
//
// Files pack tensors without padding, so that in some models nearly every vector of codes lies
// across two cache lines, and a file's own pages are small. Neither changes a result, but with
// memory at 80 GB/s products take 10 % longer for the one and 5 to 10 % for the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <span>
#include <vector>

#include "backend/cpu/weight_moves.h"
#include "base/file.h"

namespace mference {

// Copies ranges of a mapped file to huge pages, each to the beginning of a cache line, and lets go
// of the file's pages. What is too large to be held twice for a moment moves onto huge pages at its
// own address (see MoveToHugePages).
//
// One thread owns it. `moves()` is for the thread that uses the weights.
class WeightMover {
 public:
  struct Options {
    // Copies that nobody uses yet are held twice: at most this much, or one range.
    size_t held_twice_bytes = size_t{8} << 20;
    // Ranges larger than this keep their address.
    size_t largest_copy_bytes = size_t{16} << 20;
    // Whether the file's pages may stay in the page cache.
    bool keep_page_cache = true;
  };

  // `mapping` is all of `file`, whose pages outlive the mover; `ranges` lie in it, in any order,
  // and may repeat.
  WeightMover(std::span<const std::byte> mapping, const FileDescriptor& file,
              std::vector<std::span<const std::byte>> ranges, const Options& options);
  // Stops, and frees the copies: nothing may use them any more.
  ~WeightMover();
  WeightMover(const WeightMover&) = delete;
  WeightMover& operator=(const WeightMover&) = delete;

  cpu::WeightMoves& moves() { return moves_; }

  // Begins, on a thread of its own, once `after` is ready. Nothing the second time.
  void Start(std::shared_future<void> after);
  // What has been copied, padding included. Not while the thread is copying.
  std::span<const std::byte> copies() const { return {copies_, used_bytes_}; }

 private:
  void Run();
  void MoveInPlace(std::span<const std::byte> range);
  // Gives the copies pages up to `end`; false when stopped.
  bool MakeRoom(size_t end);
  // Lets go of the file's pages of the first `count` copied ranges.
  void Release(size_t count);

  std::span<const std::byte> mapping_;
  const FileDescriptor& file_;
  Options options_;
  std::vector<std::span<const std::byte>> copied_;  // ascending
  std::vector<std::span<const std::byte>> in_place_;
  cpu::WeightMoves moves_;

  void* reserved_ = nullptr;  // addresses for all copies
  size_t reserved_bytes_ = 0;
  std::byte* copies_ = nullptr;
  size_t copies_bytes_ = 0;
  size_t backed_bytes_ = 0;  // have pages
  size_t used_bytes_ = 0;
  size_t released_ = 0;  // of `copied_`
  const std::byte* released_end_ = nullptr;
  uint64_t dropped_bytes_ = 0;  // of the file, from its beginning
  std::future<void> done_;
};

}  // namespace mference
