#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace mference::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

// 4 runs of 100 tokens in 10, 20, 30 and 60 seconds.
Phase Example(bool decode) {
  Phase phase{.name = decode ? "decode 100 after 8" : "prefill 100",
              .decode = decode,
              .tokens = 100,
              .memory_bytes = 2e9,
              .operations = 6e9};
  for (const double seconds : {20.0, 10.0, 60.0, 30.0}) {
    phase.samples.push_back({.seconds = seconds,
                             .waiting_seconds = seconds / 4,
                             .bytes_read = 50'000'000'000,
                             .experts_asked = 1000,
                             .expert_hits = 600});
  }
  return phase;
}

Ceilings ExampleCeilings() {
  Ceilings ceilings;
  ceilings.memory = {{1, 20e9}, {2, 40e9}};
  ceilings.arithmetic = {{"fp32", "fma", 2, 400e9}, {"int8", "dot", 2, 1.5e12}};
  ceilings.disk.direct = true;
  ceilings.disk.ceilings = {{"direct", 1, 1e9, 0.1},
                            {"direct", 8, 2.5e9, 0.1},
                            {"page cache", 1, 9e9, 0.1},
                            {"io_uring", 8, 2.6e9, 0.1}};
  return ceilings;
}

TEST(Phase, TheMedianRunAndItsSpread) {
  const Phase phase = Example(/*decode=*/true);
  EXPECT_DOUBLE_EQ(phase.Rate(), 5);  // the faster of the two middle runs
  EXPECT_DOUBLE_EQ(phase.FastestRate(), 10);
  EXPECT_DOUBLE_EQ(phase.SlowestRate(), 100.0 / 60);
  EXPECT_DOUBLE_EQ(phase.BytesReadPerToken(), 5e8);
  EXPECT_DOUBLE_EQ(phase.HitRate(), 0.6);
  EXPECT_DOUBLE_EQ(phase.WaitingShare(), 0.25);
}

TEST(Walls, DecodingMeetsMemoryOrDisk) {
  const Walls walls = WallsOf(Example(/*decode=*/true), ExampleCeilings());
  EXPECT_DOUBLE_EQ(walls.memory_seconds, 2e9 / 40e9);
  EXPECT_DOUBLE_EQ(walls.disk_seconds, 5e8 / 2.6e9);  // direct reads, whatever the way
  EXPECT_STREQ(walls.highest, "disk");
  // Runs of 60, 30, 20 and 10 s reach ever more of it: the lower of the two in the middle.
  EXPECT_DOUBLE_EQ(walls.share, 5e8 / 2.6e9 * 100 / 30);
}

TEST(Walls, WhatWasMeasuredBesideARunCounts) {
  Phase phase = Example(/*decode=*/true);
  for (SpeedSample& sample : phase.samples) {
    sample.rates = {.memory_bytes_per_second = 10e9, .disk_bytes_per_second = 5e9};
  }
  const Walls walls = WallsOf(phase, ExampleCeilings());
  EXPECT_DOUBLE_EQ(walls.memory_seconds, 2e9 / 10e9);
  EXPECT_DOUBLE_EQ(walls.disk_seconds, 5e8 / 5e9);
  EXPECT_STREQ(walls.highest, "memory");
}

TEST(Walls, PrefillMeetsArithmeticOrDisk) {
  Phase phase = Example(/*decode=*/false);
  for (SpeedSample& sample : phase.samples) sample.bytes_read = 0;
  const Walls walls = WallsOf(phase, ExampleCeilings());
  EXPECT_STREQ(walls.highest, "arithmetic");
  EXPECT_DOUBLE_EQ(walls.share, 6e9 / 1.5e12 * 100 / 30);
}

TEST(Walls, WithoutDirectReadsBufferedOnesCount) {
  DiskMeasurement disk;
  EXPECT_EQ(disk.best(), 0);
  disk.ceilings = {{"buffered", 1, 1e9, 0.1}, {"page cache", 1, 9e9, 0.1}};
  EXPECT_EQ(disk.best(), 1e9);
}

TEST(Report, SaysTheSameToPeopleAndPrograms) {
  Report report;
  report.model = "toy";
  report.ceilings = ExampleCeilings();
  report.phases = {Example(true), Example(false)};
  report.parts = {{"weights", uint64_t{100} << 20}};
  report.group = GroupCharge{.bytes = uint64_t{150} << 20, .limit_hits = 3};
  const std::string text = DescribeReport(report);
  EXPECT_THAT(text, HasSubstr("decode 100 after 8"));
  EXPECT_THAT(text, HasSubstr("100 MiB"));
  EXPECT_THAT(text, HasSubstr("3 times at the limit"));
  const Json json = ReportToJson(report);
  EXPECT_EQ(json["phases"][0]["name"], "decode 100 after 8");
  EXPECT_DOUBLE_EQ(json["phases"][0]["tokens_per_s"].get<double>(), 5);
  EXPECT_EQ(json["phases"][0]["wall"], "disk");
  EXPECT_EQ(json["phases"][0]["runs"].size(), 4u);
  EXPECT_EQ(json["memory"]["parts"]["weights"], uint64_t{100} << 20);
  EXPECT_EQ(json["ceilings"]["disk_best_bytes_per_s"], 2.6e9);
}

TEST(Report, ComparesPhasesOfTheSameName) {
  Report report;
  report.ceilings = ExampleCeilings();
  report.phases = {Example(true)};
  const Json a = ReportToJson(report);
  for (SpeedSample& sample : report.phases[0].samples) sample.seconds /= 16;
  const Json b = ReportToJson(report);
  const std::string faster = CompareReports(a, "old.json", b, "new.json");
  EXPECT_THAT(faster, HasSubstr("16.000"));
  EXPECT_THAT(faster, Not(HasSubstr("within the spread")));
  EXPECT_THAT(CompareReports(a, "old.json", a, "new.json"), HasSubstr("within the spread"));
  EXPECT_THROW(CompareReports(a, "a", Json::array(), "b"), Error);
  EXPECT_THROW(CompareReports(Json::object(), "a", b, "b"), Error);
}

}  // namespace
}  // namespace mference::bench
