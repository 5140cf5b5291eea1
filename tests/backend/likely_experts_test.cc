// Which experts are guessed, for logits whose spread is known by hand.
#include "backend/cpu/likely_experts.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

namespace mference::cpu {
namespace {

std::vector<int32_t> Guesses(const std::vector<float>& logits, int32_t top_k) {
  std::array<int32_t, 16> ids{};
  const int32_t count = LikelyExperts(logits, top_k, ids);
  return {ids.begin(), ids.begin() + count};
}
using Ids = std::vector<int32_t>;

TEST(LikelyExperts, AreThoseThatLeadTheBestThatIsNotChosen) {
  // Mean 0, variance 5: the lead is 0.22. -1 is the best expert outside of two.
  EXPECT_EQ(Guesses({3, 1, -1, -3}, 2), (Ids{0, 1}));
  EXPECT_EQ(Guesses({-3, 1, -1, 3}, 2), (Ids{3, 1}));
  EXPECT_EQ(Guesses({3, 1, -1, -3}, 1), (Ids{0}));
  EXPECT_EQ(Guesses({3, 1, -1, -3}, 3), (Ids{0, 1, 2}));
}

TEST(LikelyExperts, LeadByATenthOfTheDeviation) {
  // Mean 0; the second of two stands 0.70 and 0.75 above the third, a tenth of the deviation is
  // sqrt((100 + 0.49 + 114.49) / 4) / 10 = 0.733 and sqrt((100 + 0.5625 + 115.5625) / 4) / 10 =
  // 0.735.
  EXPECT_EQ(Guesses({10, 0.70f, 0, -10.70f}, 2), (Ids{0}));
  EXPECT_EQ(Guesses({10, 0.75f, 0, -10.75f}, 2), (Ids{0, 1}));
  // The same differences far from zero, and in other units.
  EXPECT_EQ(Guesses({30, 20.70f, 20, 9.30f}, 2), (Ids{0}));
  EXPECT_EQ(Guesses({30, 20.75f, 20, 9.25f}, 2), (Ids{0, 1}));
  EXPECT_EQ(Guesses({1000, 70, 0, -1070}, 2), (Ids{0}));
  EXPECT_EQ(Guesses({1000, 75, 0, -1075}, 2), (Ids{0, 1}));
}

TEST(LikelyExperts, AreNoneWhereNoneLeads) {
  EXPECT_EQ(Guesses({1, 1, 1, 1}, 2), Ids{});
  EXPECT_EQ(Guesses({5, 5, 5, 0}, 2), Ids{});
  EXPECT_EQ(Guesses({9, 5, 5, 0}, 2), (Ids{0}));
}

TEST(LikelyExperts, AreAllWhereAllAreChosen) {
  EXPECT_EQ(Guesses({1, 3, 2}, 3), (Ids{1, 2, 0}));
  EXPECT_EQ(Guesses({0}, 1), (Ids{0}));
}

TEST(LikelyExperts, AreNeverGuessedFromWhatIsNoNumber) {
  EXPECT_EQ(Guesses({NAN, 3, 1, -1}, 2), Ids{});
}

}  // namespace
}  // namespace mference::cpu
