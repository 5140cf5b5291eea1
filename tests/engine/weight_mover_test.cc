#include "engine/weight_mover.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <thread>

#include "base/pattern_file.h"
#include "engine/golden_model.h"

namespace mference {
namespace {

using cpu::WeightMove;
using testing_support::GoldenPath;
using testing_support::InstalledSnapshot;

using testing_support::kMiB;

constexpr size_t kBytes = 14 * kMiB + 777;

std::shared_future<void> Now() {
  std::promise<void> done;
  done.set_value();
  return done.get_future().share();
}

class WeightMoverTest : public testing_support::PatternFileTest {
 protected:
  WeightMoverTest() : PatternFileTest(kBytes) {}

  std::span<const std::byte> Range(size_t offset, size_t bytes) const {
    return mapping_.bytes().subspan(offset, bytes);
  }
  // Whether `bytes` are what the file has from `offset` on.
  static bool IsContent(std::span<const std::byte> bytes, size_t offset) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] != Expected(offset + i)) return false;
    }
    return true;
  }
};

TEST_F(WeightMoverTest, CopiesBeginAtCacheLinesAndOldPlacesStay) {
  // As in a file: tensors without padding, a scalar in between, one that two matrices share.
  const std::vector<std::span<const std::byte>> ranges = {
      Range(5 * kMiB + 2, 3 * kMiB), Range(16384, 100000), Range(116384 + 2, 70000),
      Range(186386, 2 * kMiB),       Range(16384, 100000), Range(12 * kMiB, 0)};
  for (const bool keep_page_cache : {true, false}) {
    WeightMover mover(mapping_.bytes(), file_, ranges,
                      {.held_twice_bytes = kMiB, .keep_page_cache = keep_page_cache});
    mover.Start(Now());
    mover.Start(Now());
    std::map<const std::byte*, const std::byte*> moved;
    while (mover.moves().WaitForNew()) {
      mover.moves().TakeNew(
          [&](const WeightMove& move) { EXPECT_TRUE(moved.emplace(move.from, move.to).second); });
    }
    EXPECT_EQ(moved.size(), 4u);
    for (const std::span<const std::byte>& range : ranges) {
      if (range.empty()) continue;
      const std::byte* const to = moved.at(range.data());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(to) % 64, 0u);
      const auto offset = static_cast<size_t>(range.data() - mapping_.bytes().data());
      EXPECT_TRUE(IsContent({to, range.size()}, offset));
      const std::span<const std::byte> copies = mover.copies();
      EXPECT_TRUE(to >= copies.data() && to + range.size() <= copies.data() + copies.size());
    }
    EXPECT_TRUE(IsContent(mapping_.bytes(), 0));
  }
}

TEST_F(WeightMoverTest, WhatIsLargeKeepsItsAddress) {
  WeightMover mover(mapping_.bytes(), file_, {Range(100, 11 * kMiB), Range(12 * kMiB + 2, 5000)},
                    {.largest_copy_bytes = kMiB});
  mover.Start(Now());
  std::vector<WeightMove> moves;
  while (mover.moves().WaitForNew()) {
    mover.moves().TakeNew([&](const WeightMove& move) { moves.push_back(move); });
  }
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].from, Range(12 * kMiB + 2, 5000).data());
  EXPECT_TRUE(IsContent(mapping_.bytes(), 0));
#ifdef __linux__
  // It depends on the file no longer.
  ASSERT_EQ(ftruncate(file_.get(), 0), 0);
  EXPECT_TRUE(IsContent(Range(4 * kMiB, 4 * kMiB), 4 * kMiB));
#endif
}

TEST_F(WeightMoverTest, LittleIsHeldTwice) {
  std::vector<std::span<const std::byte>> ranges;
  for (size_t i = 0; i < 20; ++i) ranges.push_back(Range(i * 300000 + 2, 299990));
  ranges.push_back(Range(7 * kMiB, 2 * kMiB));  // more than may be held twice: alone
  WeightMover mover(mapping_.bytes(), file_, ranges, {.held_twice_bytes = kMiB});
  mover.Start(Now());
  size_t moved = 0;
  while (mover.moves().WaitForNew()) {
    // However long nobody takes anything, no more is copied.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    size_t taken_bytes = 0;
    size_t taken = 0;
    mover.moves().TakeNew([&](const WeightMove& move) {
      const auto range = std::find_if(ranges.begin(), ranges.end(),
                                      [&](const auto& r) { return r.data() == move.from; });
      taken_bytes += range->size();
      ++taken;
    });
    EXPECT_TRUE(taken_bytes <= kMiB || taken == 1);
    moved += taken;
  }
  EXPECT_EQ(moved, ranges.size());
}

TEST_F(WeightMoverTest, EndsThoughNobodyTakesAnything) {
  for (const bool started : {true, false}) {
    WeightMover mover(mapping_.bytes(), file_, {Range(2, kMiB), Range(2 * kMiB, kMiB)},
                      {.held_twice_bytes = kMiB});
    if (started) mover.Start(Now());
  }
}

// What a loaded model computes before, while and after its weights move.
class MovedWeightsTest : public testing::TestWithParam<const char*> {};

TEST_P(MovedWeightsTest, ChangeNoLogits) {
  LoadOptions options;
  options.path = InstalledSnapshot(GoldenPath(GetParam()) / "snapshot");
  options.memory_budget_bytes = size_t{1} << 30;
  options.context = 64;
  options.threads = 2;
  const auto logits_of = [&](int moved_before) {
    const auto model = LoadedModel::Load(options);
    const std::byte* const mapped = model->resident_weights().data();
    std::vector<float> all;
    const auto keep = [&](std::span<const float> logits) {
      all.insert(all.end(), logits.begin(), logits.end());
    };
    if (moved_before == 0) model->FinishLoading();
    keep(model->session().Prefill(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}).logits);
    for (int32_t i = 1; i <= 8; ++i) {
      if (moved_before == i) model->FinishLoading();
      keep(model->session().Append(i * 3));
    }
    EXPECT_EQ(model->resident_weights().data() != mapped, moved_before <= 8);
    return all;
  };
  const std::vector<float> never = logits_of(100);
  EXPECT_EQ(logits_of(0), never);
  EXPECT_EQ(logits_of(4), never);
}

INSTANTIATE_TEST_SUITE_P(Families, MovedWeightsTest, testing::Values("gemma4", "qwen3_5_moe"));

}  // namespace
}  // namespace mference
