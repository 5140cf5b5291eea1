// The canonical range plan: which source bytes go where, in transfer-sized pieces.
//
// A plan is what makes an install resumable: it is a pure function of the source's headers and the
// chunk size, its fingerprint says whether a saved download belongs to it, and each range's digest
// says whether that range is already on disk. The specification is installer-and-streaming A4; a
// local snapshot and a remote repository have the same plan.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "install/transform.h"

namespace mference {

// The most one transfer fetches, and the default.
constexpr uint64_t kMaxChunkBytes = uint64_t{64} << 20;

struct PlannedOutput {
  std::string path;  // in the install directory
  uint64_t bytes = 0;
};

// One contiguous run of source bytes and where it goes.
struct ScalarCopy {
  uint32_t shard = 0;   // into RangePlan::shards
  uint32_t output = 0;  // into RangePlan::outputs
  uint64_t source_offset = 0;
  uint64_t source_bytes = 0;
  uint64_t output_offset = 0;
  Transform transform{};
  bool ternary = false;  // two-bit codes that must not contain 3

  uint64_t output_bytes() const { return source_bytes * transform.expansion(); }
};

// A transfer: [offset, offset + bytes) of a shard, scattered to `destinations`.
struct SourceRange {
  uint32_t shard = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  size_t first_copy = 0;  // into RangePlan::copies
  size_t copy_count = 0;
};

struct RangePlan {
  uint64_t chunk_bytes = kMaxChunkBytes;
  std::string index_region_sha256;  // of the resident index; 64 hex digits
  std::vector<std::string> shards;
  std::vector<PlannedOutput> outputs;  // sorted by path
  std::vector<SourceRange> ranges;     // by shard name and offset
  std::vector<ScalarCopy> copies;      // by range, then by output and output offset

  static std::string RangeId(size_t range);  // "range-00000007"
  std::span<const ScalarCopy> CopiesOf(const SourceRange& range) const {
    return std::span(copies).subspan(range.first_copy, range.copy_count);
  }
  uint64_t OutputBytesOf(const SourceRange& range) const;

  uint64_t source_bytes() const;  // to transfer, gaps included
  uint64_t gap_bytes() const;     // transferred and ignored
  uint64_t output_bytes() const;  // of all outputs
};

// Splits, sorts and coalesces `copies`. Throws kInternal when destinations overlap or leave their
// output, kInvalidArgument for a chunk size out of [1, kMaxChunkBytes] or below a transform's unit.
RangePlan BuildRangePlan(std::vector<std::string> shards, std::vector<PlannedOutput> outputs,
                         const std::vector<ScalarCopy>& copies, std::string index_region_sha256,
                         uint64_t chunk_bytes);

// 64 hex digits; equal for equal plans, whatever directory they are carried out in.
std::string PlanFingerprint(const RangePlan& plan);

// The digest of one range's destinations. Feed each copy's bytes, as they are in the output, in
// plan order.
class RangeDigest {
 public:
  RangeDigest(const RangePlan& plan, size_t range);
  // Starts the next copy of the range; its bytes follow.
  void BeginCopy(const ScalarCopy& copy);
  void Update(std::span<const std::byte> output_bytes) { hash_.Update(output_bytes); }
  std::string FinishHex() { return hash_.FinishHex(); }

 private:
  const RangePlan& plan_;
  const SourceRange& range_;
  bool transformed_ = false;
  Sha256 hash_;
};

}  // namespace mference
