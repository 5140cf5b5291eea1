#include "install/range_plan.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "base/error.h"

namespace mference {
namespace {

constexpr uint64_t kFormatMajor = 1;
constexpr uint64_t kFormatMinor = 0;

void HashInteger(Sha256& hash, uint64_t value) {
  std::array<std::byte, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  hash.Update(bytes);
}

void HashString(Sha256& hash, std::string_view text) {
  HashInteger(hash, text.size());
  hash.Update(text);
}

bool IsTransformed(const ScalarCopy& copy) {
  return copy.transform.kind != TransformKind::kIdentity;
}

void CheckDestinations(const std::vector<ScalarCopy>& copies,
                       const std::vector<PlannedOutput>& outputs) {
  std::vector<const ScalarCopy*> sorted;
  sorted.reserve(copies.size());
  for (const ScalarCopy& copy : copies) {
    Check(copy.output < outputs.size(), "a copy names no output");
    const uint64_t end = copy.output_offset + copy.output_bytes();
    Check(copy.source_bytes > 0 && end > copy.output_offset && end <= outputs[copy.output].bytes,
          "a copy leaves its output file");
    sorted.push_back(&copy);
  }
  std::sort(sorted.begin(), sorted.end(), [](const ScalarCopy* a, const ScalarCopy* b) {
    return std::tie(a->output, a->output_offset) < std::tie(b->output, b->output_offset);
  });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const ScalarCopy& before = *sorted[i - 1];
    Check(before.output != sorted[i]->output ||
              before.output_offset + before.output_bytes() <= sorted[i]->output_offset,
          "two copies write the same bytes");
  }
}

// Cuts what is larger than a transfer, at multiples of the transform's unit.
std::vector<ScalarCopy> SplitCopies(const std::vector<ScalarCopy>& copies, uint64_t chunk_bytes) {
  std::vector<ScalarCopy> pieces;
  pieces.reserve(copies.size());
  for (const ScalarCopy& copy : copies) {
    const uint64_t unit = copy.transform.unit_bytes();
    const uint64_t most = chunk_bytes / unit * unit;
    if (most == 0) {
      Fail(ErrorCode::kInvalidArgument, "a chunk of {} bytes is smaller than the {} of {}",
           chunk_bytes, unit, copy.transform.Name());
    }
    for (uint64_t done = 0; done < copy.source_bytes; done += most) {
      ScalarCopy piece = copy;
      piece.source_offset += done;
      piece.source_bytes = std::min(most, copy.source_bytes - done);
      piece.output_offset += done * copy.transform.expansion();
      pieces.push_back(piece);
    }
  }
  return pieces;
}

}  // namespace

std::string RangePlan::RangeId(size_t range) { return fmt::format("range-{:08d}", range); }

uint64_t RangePlan::OutputBytesOf(const SourceRange& range) const {
  uint64_t bytes = 0;
  for (const ScalarCopy& copy : CopiesOf(range)) bytes += copy.output_bytes();
  return bytes;
}

uint64_t RangePlan::source_bytes() const {
  uint64_t bytes = 0;
  for (const SourceRange& range : ranges) bytes += range.bytes;
  return bytes;
}

uint64_t RangePlan::gap_bytes() const {
  uint64_t needed = 0;
  std::vector<std::pair<uint64_t, uint64_t>> spans;
  for (const SourceRange& range : ranges) {
    // Two copies of a range may read the same bytes (a ternary scale feeds scale and bias).
    spans.clear();
    for (const ScalarCopy& copy : CopiesOf(range)) {
      spans.emplace_back(copy.source_offset, copy.source_offset + copy.source_bytes);
    }
    std::sort(spans.begin(), spans.end());
    uint64_t covered_to = range.offset;
    for (const auto& [begin, end] : spans) {
      if (end <= covered_to) continue;
      needed += end - std::max(begin, covered_to);
      covered_to = end;
    }
  }
  return source_bytes() - needed;
}

uint64_t RangePlan::output_bytes() const {
  uint64_t bytes = 0;
  for (const PlannedOutput& output : outputs) bytes += output.bytes;
  return bytes;
}

RangePlan BuildRangePlan(std::vector<std::string> shards, std::vector<PlannedOutput> outputs,
                         const std::vector<ScalarCopy>& copies, std::string index_region_sha256,
                         uint64_t chunk_bytes) {
  if (chunk_bytes == 0 || chunk_bytes > kMaxChunkBytes) {
    Fail(ErrorCode::kInvalidArgument, "a transfer of {} bytes is not within 1 to {}", chunk_bytes,
         kMaxChunkBytes);
  }
  Check(std::is_sorted(outputs.begin(), outputs.end(),
                       [](const auto& a, const auto& b) { return a.path < b.path; }),
        "planned outputs are not sorted");
  CheckDestinations(copies, outputs);

  RangePlan plan;
  plan.chunk_bytes = chunk_bytes;
  plan.index_region_sha256 = std::move(index_region_sha256);
  plan.shards = std::move(shards);
  plan.outputs = std::move(outputs);
  plan.copies = SplitCopies(copies, chunk_bytes);
  std::stable_sort(plan.copies.begin(), plan.copies.end(),
                   [&](const ScalarCopy& a, const ScalarCopy& b) {
                     if (a.shard != b.shard) return plan.shards[a.shard] < plan.shards[b.shard];
                     return a.source_offset < b.source_offset;
                   });

  for (size_t i = 0; i < plan.copies.size(); ++i) {
    const ScalarCopy& copy = plan.copies[i];
    const uint64_t copy_end = copy.source_offset + copy.source_bytes;
    if (!plan.ranges.empty()) {
      SourceRange& last = plan.ranges.back();
      const uint64_t end = std::max(last.offset + last.bytes, copy_end);
      if (last.shard == copy.shard && end - last.offset <= chunk_bytes) {
        last.bytes = end - last.offset;
        ++last.copy_count;
        continue;
      }
    }
    plan.ranges.push_back({.shard = copy.shard,
                           .offset = copy.source_offset,
                           .bytes = copy.source_bytes,
                           .first_copy = i,
                           .copy_count = 1});
  }
  for (const SourceRange& range : plan.ranges) {
    const auto first = plan.copies.begin() + static_cast<ptrdiff_t>(range.first_copy);
    std::sort(first, first + static_cast<ptrdiff_t>(range.copy_count),
              [](const ScalarCopy& a, const ScalarCopy& b) {
                return std::tie(a.output, a.output_offset, a.source_offset) <
                       std::tie(b.output, b.output_offset, b.source_offset);
              });
  }
  return plan;
}

std::string PlanFingerprint(const RangePlan& plan) {
  const bool transformed = std::any_of(plan.copies.begin(), plan.copies.end(), IsTransformed);
  Sha256 hash;
  HashString(hash, transformed ? "Mference.RemoteInstallPlan.v2" : "Mference.RemoteInstallPlan.v1");
  HashInteger(hash, kFormatMajor);
  HashInteger(hash, kFormatMinor);
  HashInteger(hash, plan.chunk_bytes);
  HashString(hash, "identity");  // the order of experts in a layer file
  HashString(hash, "");          // the hash of another order
  HashString(hash, plan.index_region_sha256);
  HashInteger(hash, plan.outputs.size());
  for (const PlannedOutput& output : plan.outputs) {
    HashString(hash, output.path);
    HashInteger(hash, output.bytes);
  }
  HashInteger(hash, plan.ranges.size());
  for (size_t i = 0; i < plan.ranges.size(); ++i) {
    const SourceRange& range = plan.ranges[i];
    HashString(hash, RangePlan::RangeId(i));
    HashString(hash, plan.shards[range.shard]);
    HashInteger(hash, range.offset);
    HashInteger(hash, range.bytes);
    HashInteger(hash, range.copy_count);
    for (const ScalarCopy& copy : plan.CopiesOf(range)) {
      HashString(hash, plan.outputs[copy.output].path);
      HashInteger(hash, copy.output_offset);
      HashInteger(hash, copy.source_offset - range.offset);
      HashInteger(hash, copy.source_bytes);
      if (transformed) {
        HashInteger(hash, copy.output_bytes());
        HashString(hash, copy.transform.Name());
      }
    }
  }
  return hash.FinishHex();
}

RangeDigest::RangeDigest(const RangePlan& plan, size_t range)
    : plan_(plan), range_(plan.ranges[range]) {
  const auto copies = plan.CopiesOf(range_);
  transformed_ = std::any_of(copies.begin(), copies.end(), IsTransformed);
  HashString(hash_, transformed_ ? "Mference.RemoteRangeDestination.v2"
                                 : "Mference.RemoteRangeDestination.v1");
  HashString(hash_, RangePlan::RangeId(range));
  HashInteger(hash_, range_.copy_count);
}

void RangeDigest::BeginCopy(const ScalarCopy& copy) {
  HashString(hash_, plan_.outputs[copy.output].path);
  HashInteger(hash_, copy.output_offset);
  HashInteger(hash_, copy.source_offset - range_.offset);
  HashInteger(hash_, copy.source_bytes);
  if (transformed_) {
    HashInteger(hash_, copy.output_bytes());
    HashString(hash_, copy.transform.Name());
  }
}

}  // namespace mference
