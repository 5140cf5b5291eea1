#include "base/huge_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/pattern_file.h"

namespace mference {
namespace {

using testing_support::kMiB;

constexpr size_t kBytes = 13 * kMiB + 777;

class HugePagesTest : public testing_support::PatternFileTest {
 protected:
  HugePagesTest() : PatternFileTest(kBytes) {}

  // The first of [begin, end) that is not what it should be; end if there is none.
  size_t FirstDifference(size_t begin, size_t end) const {
    for (size_t at = begin; at < end; ++at) {
      if (mapping_.bytes()[at] != Expected(at)) return at;
    }
    return end;
  }
};

TEST_F(HugePagesTest, EveryByteStaysWhileOthersRead) {
  std::atomic<bool> done = false;
  std::atomic<size_t> difference = kBytes;
  std::thread reader([&] {
    do {
      if (const size_t at = FirstDifference(0, kBytes); at != kBytes) difference = at;
    } while (!done);
  });
  size_t told = 0;
  const size_t moved = MoveToHugePages(mapping_.bytes(), [&](size_t, size_t bytes) {
    told += bytes;
    return true;
  });
  done = true;
  reader.join();
  EXPECT_EQ(difference, kBytes);
  EXPECT_EQ(FirstDifference(0, kBytes), kBytes);
  EXPECT_EQ(told, moved);
#ifdef __linux__
  // All but what lies outside whole huge pages.
  EXPECT_GE(moved, 10 * kMiB);
#endif
}

TEST_F(HugePagesTest, WhatHasMovedNoLongerDependsOnTheFile) {
  size_t begin = kBytes;
  size_t end = 0;
  const size_t moved = MoveToHugePages(mapping_.bytes(), [&](size_t offset, size_t bytes) {
    begin = std::min(begin, offset);
    end = std::max(end, offset + bytes);
    return true;
  });
  ASSERT_EQ(end - begin, moved);
  ASSERT_EQ(ftruncate(file_.get(), 0), 0);
  EXPECT_EQ(FirstDifference(begin, end), end);
}

TEST_F(HugePagesTest, StopsWhenToldTo) {
  int pieces = 0;
  const size_t moved = MoveToHugePages(mapping_.bytes(), [&](size_t, size_t) {
    ++pieces;
    return false;
  });
  EXPECT_EQ(pieces, 1);
  EXPECT_LT(moved, kBytes / 2);
  EXPECT_EQ(FirstDifference(0, kBytes), kBytes);
}

TEST_F(HugePagesTest, LeavesAloneWhatIsSmallerThanAPage) {
  const auto never = [](size_t, size_t) { return true; };
  EXPECT_EQ(MoveToHugePages({}, never), 0u);
  EXPECT_EQ(MoveToHugePages(mapping_.bytes().subspan(100, 5000), never), 0u);
  EXPECT_EQ(FirstDifference(0, kBytes), kBytes);
}

}  // namespace
}  // namespace mference
