// SHA-256 of the output files, computed while their bytes are still in memory.
//
// A file's digest needs its bytes in order, but ranges arrive in the source's order. The hasher
// follows each file's longest complete prefix: what was just written is hashed from the page cache
// by a thread of its own, and its pages are let go afterwards. Nothing is read back from the disk
// unless memory is so short that the kernel dropped it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "format/manifest.h"
#include "install/outputs.h"
#include "install/range_plan.h"

namespace mference {

class OutputHasher {
 public:
  // Borrows plan and outputs. With `background` a thread follows the writes; without, all hashing
  // happens in `Finish`.
  OutputHasher(const RangePlan& plan, OutputFiles& outputs, bool background);
  ~OutputHasher();
  OutputHasher(const OutputHasher&) = delete;
  OutputHasher& operator=(const OutputHasher&) = delete;

  // Every destination of `range` has its final bytes. Thread-safe.
  void MarkWritten(size_t range);

  // Waits until every byte is hashed; all ranges must have been marked. `on_progress` gets the
  // bytes hashed so far, over all files, from this thread, and may throw. Throws what hashing
  // threw.
  std::vector<FileRecord> Finish(const std::function<void(uint64_t hashed)>& on_progress);

 private:
  struct FileState {
    std::vector<uint32_t> copies;  // into plan.copies, by output offset
    size_t next = 0;               // first of `copies` that is not hashed
    uint64_t hashed = 0;           // bytes
    Sha256 hash;
  };
  struct Work {
    uint32_t output = 0;
    uint64_t end = 0;
    size_t next = 0;
  };

  void Run();
  // The next complete stretch of a file, or one without bytes when there is none.
  Work FindWork() const;
  void HashTo(FileState& file, const Work& work);

  const RangePlan& plan_;
  OutputFiles& outputs_;
  ScratchBuffer scratch_{kHashScratchBytes};
  std::vector<FileState> states_;  // [plan.outputs]; touched by the hashing thread only

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> written_;  // [plan.copies]
  uint64_t hashed_bytes_ = 0;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace mference
