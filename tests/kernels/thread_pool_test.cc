#include "backend/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>

namespace mference::cpu {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryTaskOnceAndShowsWhatItWrote) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (int round = 0; round < 2000; ++round) {
    const int tasks = round % 17;
    std::vector<int> runs(static_cast<size_t>(tasks), 0);  // plain ints: a race would show in tsan
    pool.Run(tasks, [&](int task) { ++runs[static_cast<size_t>(task)]; });
    EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(tasks), 1));
  }
}

TEST_P(ThreadPoolTest, WakesWorkersThatWentToSleep) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> sum{0};
    pool.Run(100, [&](int task) { sum += task; });
    EXPECT_EQ(sum.load(), 4950);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far beyond the spinning
  }
}

TEST_P(ThreadPoolTest, ParallelForPartitionsTheRange) {
  ThreadPool pool(GetParam());
  for (const int count : {0, 1, 31, 32, 33, 100, 2816}) {
    for (const int grain : {1, 32, 1000}) {
      std::vector<int> hits(static_cast<size_t>(count), 0);
      std::atomic<int> parts{0};
      pool.ParallelFor(count, grain, [&](int begin, int end) {
        EXPECT_EQ(begin % grain, 0);
        EXPECT_LT(begin, end);
        ++parts;
        for (int i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
      EXPECT_EQ(hits, std::vector<int>(static_cast<size_t>(count), 1)) << count << " by " << grain;
      EXPECT_LE(parts.load(), GetParam());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST(ThreadPoolDeathTest, RefusesANestedRun) {
  EXPECT_DEATH(
      {
        ThreadPool pool(1);
        pool.Run(1, [&](int) { pool.Run(1, [](int) {}); });
      },
      "another run is in progress");
}

}  // namespace
}  // namespace mference::cpu
