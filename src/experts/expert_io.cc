#include "experts/expert_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/units.h"
#include "experts/pread_reader.h"
#include "experts/uring_reader.h"

namespace mference {
namespace {

// Above this share of free memory the page cache would not keep what it is given.
constexpr double kCacheableShare = 0.7;

#ifdef O_DIRECT
constexpr int kDirectFlag = O_DIRECT;
#else
constexpr int kDirectFlag = 0;  // no such mode here: EnableDirectIo refuses
#endif

std::optional<std::string> SetDirectFlag(int fd, bool direct) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, direct ? flags | kDirectFlag : flags & ~kDirectFlag) != 0) {
    return fmt::format("the file system refuses direct I/O ({})", std::strerror(errno));
  }
  return std::nullopt;
}

}  // namespace

ExpertIo ParseExpertIo(std::string_view text) {
  if (text == "auto") return ExpertIo::kAuto;
  if (text == "direct") return ExpertIo::kDirect;
  if (text == "buffered") return ExpertIo::kBuffered;
  Fail(ErrorCode::kInvalidArgument, "expert I/O: expected auto, direct or buffered, found '{}'",
       text);
}

IoChoice ChooseIo(ExpertIo mode, uint64_t expert_bytes, uint64_t free_memory_bytes) {
  if (mode == ExpertIo::kDirect) return {.direct = true, .reason = "direct, as asked"};
  if (mode == ExpertIo::kBuffered) return {.direct = false, .reason = "buffered, as asked"};
  const bool cacheable =
      static_cast<double>(expert_bytes) <= kCacheableShare * static_cast<double>(free_memory_bytes);
  return {
      .direct = !cacheable,
      .reason = fmt::format("{}: {} of experts {} the page cache in {} of free memory",
                            cacheable ? "buffered" : "direct", FormatByteCount(expert_bytes),
                            cacheable ? "fit" : "do not fit", FormatByteCount(free_memory_bytes))};
}

std::unique_ptr<BlobReader> MakeBlobReader(const IoChoice& choice, const ReaderOptions& options,
                                           std::span<std::byte> region, uint64_t slot_bytes,
                                           std::string* refusal) {
  if (choice.direct) {
    const UringOptions uring{.max_blobs = options.max_blobs,
                             .queue_depth = options.queue_depth,
                             .target_requests = options.target_requests};
    std::string why;
    if (!options.register_buffers) region = {};
    if (auto reader = MakeUringReader(uring, region, slot_bytes, why)) return reader;
    if (refusal != nullptr) *refusal = why;
  }
  return std::make_unique<PreadReader>(options.threads, options.max_blobs);
}

std::optional<std::string> EnableDirectIo(const FileDescriptor& file, uint64_t alignment) {
  if (kDirectFlag == 0) return "this system has no direct I/O";
  uint64_t needed = 4096;  // where the kernel does not say: enough for every common device
#ifdef STATX_DIOALIGN
  struct statx info {};
  if (statx(file.get(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0) {
    needed = std::max(info.stx_dio_offset_align, info.stx_dio_mem_align);
    if (needed == 0) return "the file system has no direct I/O";
  }
#endif
  if (alignment % needed != 0) {
    return fmt::format("direct I/O needs an alignment of {} bytes, the blobs have {}", needed,
                       alignment);
  }
  return SetDirectFlag(file.get(), true);
}

void UseBufferedIo(const FileDescriptor& file) {
  SetDirectFlag(file.get(), false);
#ifdef POSIX_FADV_RANDOM
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_RANDOM);  // advice: failure costs nothing
#endif
}

}  // namespace mference
