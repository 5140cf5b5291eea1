// Ceilings are whatever the machine gives: only their form can be tested.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "bench/arithmetic_ceiling.h"
#include "bench/disk_ceiling.h"
#include "bench/memory_ceiling.h"

namespace mference::bench {
namespace {

TEST(Ceilings, EveryMachineMultiplies) {
  const std::vector<ArithmeticCeiling> ceilings = MeasureArithmetic(1);
  ASSERT_FALSE(ceilings.empty());
  EXPECT_EQ(ceilings[0].type, "fp32");
  for (const ArithmeticCeiling& ceiling : ceilings) {
    EXPECT_GT(ceiling.per_second, 0) << ceiling.instruction;
    EXPECT_EQ(ceiling.threads, 1);
  }
}

TEST(Ceilings, EveryMachineReadsMemory) {
  EXPECT_GT(MeasureMemoryRate(2), 0);
  const std::vector<std::byte> memory(8 << 20);
  EXPECT_GT(MeasureMemoryRate(2, memory, 1), 0);
}

class DiskCeilingTest : public testing::Test {
 protected:
  DiskCeilingTest() {
    std::ofstream(path_, std::ios::binary) << std::string(1 << 20, 'x');
    request_.files = {path_};
    request_.blob_bytes = 100'000;
    request_.depths = {1, 4};
    request_.seconds = 0.01;
  }
  ~DiskCeilingTest() override { std::filesystem::remove(path_); }

  const std::filesystem::path path_ = std::filesystem::path(testing::TempDir()) / "disk_ceiling";
  DiskRequest request_;
};

TEST_F(DiskCeilingTest, MeasuresEveryWayThereIs) {
  const DiskMeasurement disk = MeasureDisk(request_);
  EXPECT_GT(disk.best(), 0) << disk.problem;
  bool cached = false;
  for (const DiskCeiling& ceiling : disk.ceilings) {
    EXPECT_GT(ceiling.bytes_per_second, 0) << ceiling.way << " " << ceiling.depth;
    EXPECT_GT(ceiling.median_seconds, 0) << ceiling.way;
    cached = cached || ceiling.way == "page cache";
  }
  EXPECT_TRUE(cached);
}

TEST_F(DiskCeilingTest, SaysWhyNothingWasMeasured) {
  request_.blob_bytes = 2 << 20;  // longer than the file
  const DiskMeasurement disk = MeasureDisk(request_);
  EXPECT_EQ(disk.best(), 0);
  EXPECT_FALSE(disk.problem.empty());
}

TEST_F(DiskCeilingTest, MeasuresADirectoryWithoutModels) {
  const DiskMeasurement disk =
      MeasureDiskAt(std::filesystem::path(testing::TempDir()) / "not" / "there", 100'000);
  EXPECT_GT(disk.best(), 0) << disk.problem;
}

}  // namespace
}  // namespace mference::bench
