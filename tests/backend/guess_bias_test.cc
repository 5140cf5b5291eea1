// What is learnt from guesses that turned out short, with means worked out by hand.
#include "backend/cpu/guess_bias.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace mference::cpu {
namespace {

using Logits = std::vector<float>;

Logits Corrected(GuessBias& bias, size_t layer, Logits guess) {
  bias.Correct(layer, guess);
  return guess;
}

class GuessBiasTest : public testing::Test {
 protected:
  GuessBiasTest() {
    bias_.AddLayer(2);
    bias_.AddLayer(3);
  }
  GuessBias bias_;
};

TEST_F(GuessBiasTest, NothingIsAddedBeforeAnythingIsKnown) {
  EXPECT_EQ(Corrected(bias_, 0, {1, 2}), (Logits{1, 2}));
  bias_.Learn(1, Logits{5, 5, 5});  // nobody guessed
  EXPECT_EQ(Corrected(bias_, 1, {1, 2, 3}), (Logits{1, 2, 3}));
}

TEST_F(GuessBiasTest, TheMeanOfWhatWasMissingIsAdded) {
  Corrected(bias_, 0, {1, 2});
  bias_.Learn(0, Logits{2, 0});  // short of 1 and -2
  EXPECT_EQ(Corrected(bias_, 0, {10, 20}), (Logits{11, 18}));
  bias_.Learn(0, Logits{13, 20});  // short of 3 and 0: what was guessed counts, not what was added
  EXPECT_EQ(Corrected(bias_, 0, {0, 0}), (Logits{2, -1}));
  bias_.Learn(0, Logits{2, 2});  // 2 and 2
  EXPECT_EQ(Corrected(bias_, 0, {0, 0}), (Logits{2, 0}));
}

TEST_F(GuessBiasTest, LayersAndPointsAreTheirOwn) {
  Corrected(bias_, 1, {0, 0, 0});
  Corrected(bias_, 1, {1, 1, 1});
  bias_.Learn(1, Logits{4, 3, 2});
  EXPECT_EQ(Corrected(bias_, 0, {0, 0}), (Logits{0, 0}));
  EXPECT_EQ(Corrected(bias_, 1, {0, 0, 0}), (Logits{4, 3, 2}));
  EXPECT_EQ(Corrected(bias_, 1, {0, 0, 0}), (Logits{3, 2, 1}));
  EXPECT_EQ(Corrected(bias_, 1, {0, 0, 0}), (Logits{3, 2, 1})) << "one more than there are points";
}

TEST_F(GuessBiasTest, OldTokensAreForgotten) {
  for (int token = 0; token < 100; ++token) {
    Corrected(bias_, 0, {0, 0});
    bias_.Learn(0, Logits{8, 0});
  }
  for (int token = 0; token < 100; ++token) {
    Corrected(bias_, 0, {0, 0});
    bias_.Learn(0, Logits{-8, 0});
  }
  // 16 * 0.95^100 = 0.095 above -8.
  EXPECT_NEAR(Corrected(bias_, 0, {0, 0})[0], -7.905, 0.001);
}

TEST_F(GuessBiasTest, WhatIsNoNumberIsNotLearnt) {
  Corrected(bias_, 0, {1, 2});
  bias_.Learn(0, Logits{std::numeric_limits<float>::quiet_NaN(), 3});
  Corrected(bias_, 0, {std::numeric_limits<float>::infinity(), 2});
  bias_.Learn(0, Logits{1, 3});
  EXPECT_EQ(Corrected(bias_, 0, {1, 2}), (Logits{1, 3}));
}

}  // namespace
}  // namespace mference::cpu
