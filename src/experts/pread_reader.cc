#include "experts/pread_reader.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace mference {

ReadCompletion ReadBlob(const BlobRead& read, PreadFunction pread_function) {
  ReadCompletion completion{.id = read.id};
  while (completion.bytes_read < read.bytes) {
    const ssize_t got = pread_function(read.fd, read.target + completion.bytes_read,
                                       read.bytes - completion.bytes_read,
                                       static_cast<off_t>(read.offset + completion.bytes_read));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) completion.error = errno;
    if (got <= 0) break;
    completion.bytes_read += static_cast<uint64_t>(got);
  }
  return completion;
}

ReadCompletion ReadBlob(const BlobRead& read) {
  const auto system_pread = [](int fd, void* target, size_t bytes, off_t offset) {
    return pread(fd, target, bytes, offset);
  };
  return ReadBlob(read, system_pread);
}

PreadReader::PreadReader(int threads, int capacity)
    : capacity_(capacity),
      requests_(static_cast<size_t>(capacity)),
      landed_(static_cast<size_t>(capacity)) {
  if (threads < 1 || capacity < 1) {
    Fail(ErrorCode::kInvalidArgument, "read pool of {} threads for {} blobs", threads, capacity);
  }
  threads_.reserve(static_cast<size_t>(threads));
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  } catch (const std::system_error& error) {
    // A limit on threads: fewer of them still read everything, none cannot.
    if (threads_.empty()) Fail(ErrorCode::kIo, "cannot start a reading thread: {}", error.what());
  }
}

PreadReader::~PreadReader() {
  stopping_.store(true);
  requests_pushed_.fetch_add(1);
  requests_pushed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void PreadReader::Work() {
  while (true) {
    const int pushed = requests_pushed_.load();
    if (const std::optional<BlobRead> read = requests_.Pop()) {
      const ReadCompletion completion = ReadBlob(*read);
      // There is room for all that Submit lets in, and the caller frees cells before it submits.
      [[maybe_unused]] const bool pushed_completion = landed_.Push(completion);
      assert(pushed_completion);
      landed_pushed_.fetch_add(1);
      landed_pushed_.notify_one();
    } else if (stopping_.load()) {
      return;  // what was submitted has been read
    } else {
      requests_pushed_.wait(pushed);
    }
  }
}

void PreadReader::Submit(std::span<const BlobRead> reads) {
  const int in_flight = in_flight_ + static_cast<int>(reads.size());
  Check(in_flight <= capacity_, "more reads in flight than the reader can take");
  in_flight_ = in_flight;
  for (const BlobRead& read : reads) {
    // The queue has room, except while a thread is just copying the request it has claimed.
    while (!requests_.Push(read)) std::this_thread::yield();
    requests_pushed_.fetch_add(1);
    requests_pushed_.notify_one();
  }
}

size_t PreadReader::Poll(std::span<ReadCompletion> completions) {
  size_t count = 0;
  while (count < completions.size()) {
    const std::optional<ReadCompletion> completion = landed_.Pop();
    if (!completion.has_value()) break;
    completions[count++] = *completion;
  }
  in_flight_ -= static_cast<int>(count);
  return count;
}

size_t PreadReader::Wait(std::span<ReadCompletion> completions) {
  while (true) {
    const int pushed = landed_pushed_.load();
    if (const size_t count = Poll(completions); count > 0) return count;
    landed_pushed_.wait(pushed);
  }
}

std::string PreadReader::Describe() const {
  return fmt::format("pread on {} threads", threads_.size());
}

}  // namespace mference
