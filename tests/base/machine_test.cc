#include "base/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace mference {
namespace {

class MachineMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("mference_machine_" + std::to_string(getpid()) + "_" +
             testing::UnitTest::GetInstance()->current_test_info()->name());
    Write("proc/meminfo",
          "MemTotal:       8000000 kB\nMemFree: 1 kB\nMemAvailable:   6000000 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  std::filesystem::path root_;
};

TEST_F(MachineMemoryTest, WithoutCgroupsTheKernelsEstimateCounts) {
  const MachineMemory memory = ReadMachineMemory(root_);
  EXPECT_EQ(memory.total_bytes, uint64_t{8000000} * 1024);
  EXPECT_FALSE(memory.cgroup_limit_bytes);
  EXPECT_EQ(memory.usable_bytes(), uint64_t{6000000} * 1024);
}

TEST_F(MachineMemoryTest, TheTightestAncestorOfAVersion2GroupCounts) {
  Write("proc/self/cgroup", "0::/user/app\n");
  Write("sys/fs/cgroup/user/app/memory.max", "max\n");
  Write("sys/fs/cgroup/user/memory.max", "2147483648\n");
  Write("sys/fs/cgroup/user/memory.current", "1000000\n");
  Write("sys/fs/cgroup/user/memory.stat", "anon 5\ninactive_file 400000\n");
  const MachineMemory memory = ReadMachineMemory(root_);
  EXPECT_EQ(memory.cgroup_limit_bytes, 2147483648u);
  EXPECT_EQ(memory.usable_bytes(), 2147483648u - 600000u);
}

TEST_F(MachineMemoryTest, Version1GroupsAndTheirNoLimitMark) {
  Write("proc/self/cgroup", "9:cpu,cpuacct:/x\n5:memory:/docker/abc\n");
  Write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "1073741824\n");
  Write("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "73741824\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const MachineMemory memory = ReadMachineMemory(root_);
  EXPECT_EQ(memory.usable_bytes(), 1000000000u);
}

TEST_F(MachineMemoryTest, TheChargeOfAVersion1Group) {
  Write("proc/self/cgroup", "9:cpu,cpuacct:/x\n5:memory:/docker/abc\n0::/\n");
  const std::string group = "sys/fs/cgroup/memory/docker/abc/";
  Write(group + "memory.usage_in_bytes", "5000\n");
  Write(group + "memory.max_usage_in_bytes", "7000\n");
  Write(group + "memory.failcnt", "3\n");
  Write(group + "memory.stat", "cache 1\nrss 2\ntotal_cache 2000\ntotal_rss 3000\n");
  const std::optional<GroupCharge> charge = ReadGroupCharge(root_);
  ASSERT_TRUE(charge);
  EXPECT_EQ(charge->bytes, 5000u);
  EXPECT_EQ(charge->peak_bytes, 7000u);
  EXPECT_EQ(charge->anonymous_bytes, 3000u);
  EXPECT_EQ(charge->file_bytes, 2000u);
  EXPECT_EQ(charge->limit_hits, 3u);
}

TEST_F(MachineMemoryTest, TheChargeOfAVersion2Group) {
  Write("proc/self/cgroup", "0::/user/app\n");
  const std::string group = "sys/fs/cgroup/user/app/";
  Write(group + "memory.current", "5000\n");
  Write(group + "memory.events", "low 0\nhigh 1\nmax 4\noom 0\n");
  Write(group + "memory.stat", "anon 3000\nfile 2000\nfile_mapped 1\n");
  const std::optional<GroupCharge> charge = ReadGroupCharge(root_);
  ASSERT_TRUE(charge);
  EXPECT_EQ(charge->bytes, 5000u);
  EXPECT_EQ(charge->peak_bytes, 0u);  // older kernels do not keep it
  EXPECT_EQ(charge->anonymous_bytes, 3000u);
  EXPECT_EQ(charge->file_bytes, 2000u);
  EXPECT_EQ(charge->limit_hits, 4u);
}

TEST_F(MachineMemoryTest, TheRootGroupIsNobodysCharge) {
  Write("proc/self/cgroup", "5:memory:/\n0::/\n");
  Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
  EXPECT_FALSE(ReadGroupCharge(root_));
}

}  // namespace
}  // namespace mference
