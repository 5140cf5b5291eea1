// Fingerprints and digests against the published vectors; splitting and coalescing rules.
#include "install/range_plan.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"

namespace mference {
namespace {

constexpr Transform kUnpack{.kind = TransformKind::kInt2ToInt4};

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

RangePlan OneRange(const Transform& transform) {
  return BuildRangePlan(
      {"source.bin"}, {{"weights.bin", 32}},
      {{.source_offset = 4, .source_bytes = 8, .output_offset = 12, .transform = transform}},
      std::string(64, 'a'), 4096);
}

TEST(PlanFingerprint, MatchesThePublishedVectors) {
  EXPECT_EQ(PlanFingerprint(OneRange({})),
            "fa14918215869b02f0fae5b0de6b05112c505b2c3f2734f8924a8a7adb926581");
  EXPECT_EQ(PlanFingerprint(OneRange(kUnpack)),
            "cb1a7640e8809944776acd7f9c28524b6c71b22b04c575a9aee7cf7bce43e598");
}

std::string DigestOf(const RangePlan& plan, size_t range, std::span<const std::byte> bytes) {
  RangeDigest digest(plan, range);
  digest.BeginCopy(plan.CopiesOf(plan.ranges[range]).front());
  digest.Update(bytes);
  return digest.FinishHex();
}

TEST(RangeDigest, MatchesThePublishedVectors) {
  RangePlan plan;
  plan.shards = {"source.bin"};
  plan.outputs = {{"weights.bin", 64}, {"model_weights.bin", 256}};
  plan.ranges = {{.bytes = 4, .copy_count = 1},
                 {.offset = 64, .bytes = 2, .first_copy = 1, .copy_count = 1}};
  plan.copies = {{.source_bytes = 4},
                 {.output = 1,
                  .source_offset = 64,
                  .source_bytes = 2,
                  .output_offset = 100,
                  .transform = {TransformKind::kRepeatBf16, 4, true}}};
  EXPECT_EQ(DigestOf(plan, 0, Bytes({1, 2, 3, 4})),
            "b9ae1be999b259f6de9cc3024bee4d145692881e19d17722351cccbf994a1b52");
  EXPECT_EQ(DigestOf(plan, 1, Bytes({0x80, 0xBF, 0x80, 0xBF, 0x80, 0xBF, 0x80, 0xBF})),
            "5e1f52c587a2d7f79c14dbd1e747f059f1977b4ae655883793d45c07055f7e21");

  plan.copies[0].transform = kUnpack;
  EXPECT_EQ(DigestOf(plan, 0, Bytes({7, 7, 7, 7, 7, 7, 7, 7})),
            "5912ebc42907ea06d1f1e475443f8be856416d6a8d1fff74231b0f7092e515b6");
}

TEST(Transform, WidensTernaryCodes) {
  std::vector<std::byte> buffer(16);
  const uint32_t words[] = {0xE4E4E4E4, 0x00000009};
  std::memcpy(buffer.data(), words, 8);
  ApplyTransform(kUnpack, buffer, 8);
  EXPECT_EQ(buffer, Bytes({0x10, 0x32, 0x10, 0x32, 0x10, 0x32, 0x10, 0x32,  //
                           0x21, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(Transform, RepeatsAndNegatesScales) {
  std::vector<std::byte> buffer = Bytes({0x80, 0x3F, 0x00, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0});
  ApplyTransform({TransformKind::kRepeatBf16, 3, true}, buffer, 4);
  EXPECT_EQ(buffer,
            Bytes({0x80, 0xBF, 0x80, 0xBF, 0x80, 0xBF, 0x00, 0x40, 0x00, 0x40, 0x00, 0x40}));
}

TEST(Transform, FindsTheCodeThatTernaryFilesNeverHold) {
  // Codes 2,0,1,1, 0,2,1,0, 1,1,2,2, 0,0,1,2.
  std::vector<std::byte> bytes = Bytes({0x52, 0x18, 0xA5, 0x90});
  EXPECT_FALSE(HasInvalidTernaryCode(bytes));
  for (size_t i = 0; i < 13; ++i) bytes.push_back(std::byte{0x12});
  EXPECT_FALSE(HasInvalidTernaryCode(bytes));
  bytes[9] = std::byte{0x30};
  EXPECT_TRUE(HasInvalidTernaryCode(bytes));
  bytes[9] = std::byte{0};
  bytes.back() = std::byte{0xC0};
  EXPECT_TRUE(HasInvalidTernaryCode(bytes));
}

TEST(BuildRangePlan, CoalescesAcrossGapsUpToTheChunk) {
  const RangePlan plan =
      BuildRangePlan({"b", "a"}, {{"out", 1000}},
                     {{.shard = 0, .source_offset = 0, .source_bytes = 10, .output_offset = 500},
                      {.shard = 1, .source_offset = 90, .source_bytes = 10, .output_offset = 0},
                      {.shard = 1, .source_offset = 0, .source_bytes = 10, .output_offset = 10},
                      {.shard = 1, .source_offset = 101, .source_bytes = 5, .output_offset = 20}},
                     std::string(64, '0'), 100);
  ASSERT_EQ(plan.ranges.size(), 3u);
  EXPECT_EQ(plan.ranges[0].shard, 1u);  // "a" sorts before "b"
  EXPECT_EQ(plan.ranges[0].bytes, 100u);
  EXPECT_EQ(plan.CopiesOf(plan.ranges[0])[0].output_offset, 0u);  // by destination
  EXPECT_EQ(plan.ranges[1].offset, 101u);
  EXPECT_EQ(plan.ranges[2].shard, 0u);
  EXPECT_EQ(plan.source_bytes(), 115u);
  EXPECT_EQ(plan.gap_bytes(), 80u);
}

TEST(BuildRangePlan, SplitsAtTheTransformsUnit) {
  const RangePlan plan = BuildRangePlan(
      {"s"}, {{"out", 100}},
      {{.source_offset = 3, .source_bytes = 20, .output_offset = 40, .transform = kUnpack}},
      std::string(64, '0'), 11);
  ASSERT_EQ(plan.ranges.size(), 3u);
  EXPECT_EQ(plan.ranges[1].offset, 11u);
  EXPECT_EQ(plan.copies[1].source_bytes, 8u);
  EXPECT_EQ(plan.copies[1].output_offset, 56u);
  EXPECT_EQ(plan.copies[2].source_bytes, 4u);
  EXPECT_EQ(plan.copies[2].output_offset, 72u);
}

TEST(BuildRangePlan, RefusesWhatCannotBeRight) {
  const auto build = [](std::vector<ScalarCopy> copies, uint64_t chunk) {
    return BuildRangePlan({"s"}, {{"out", 100}}, std::move(copies), std::string(64, '0'), chunk);
  };
  EXPECT_THROW(build({{.source_bytes = 10}, {.source_bytes = 1, .output_offset = 9}}, 64), Error);
  EXPECT_THROW(build({{.source_bytes = 10, .output_offset = 91}}, 64), Error);
  EXPECT_THROW(build({{.source_bytes = 51, .transform = kUnpack}}, 64), Error);
  EXPECT_THROW(build({{.source_bytes = 4, .transform = kUnpack}}, 3), Error);
  EXPECT_THROW(build({{.source_bytes = 4}}, 0), Error);
  EXPECT_THROW(build({{.source_bytes = 4}}, kMaxChunkBytes + 1), Error);
}

}  // namespace
}  // namespace mference
