// Expected draws were computed from the specification's formulas by a separate program in exact
// integer and double arithmetic.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace mference {
namespace {

const std::vector<float> kLogits = {1.0f, 2.0f, 0.5f, 3.0f, -1.0f};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<int32_t> Draw(const SamplingParams& params, int count,
                          const std::vector<float>& logits = kLogits) {
  Sampler sampler(static_cast<int32_t>(logits.size()), 0);
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) {
    ids.push_back(sampler.Sample(logits, {}, static_cast<uint64_t>(i), params));
  }
  return ids;
}

TEST(UniformDraw, FollowsTheSpecifiedGeneratorBitForBit) {
  const double unit = 0x1p-24;
  EXPECT_EQ(UniformDraw(0, 0), 16163320 * unit);
  EXPECT_EQ(UniformDraw(7, 0), 6623560 * unit);
  EXPECT_EQ(UniformDraw(7, 1), 6899873 * unit);
  EXPECT_EQ(UniformDraw(UINT64_MAX, 1), 16163320 * unit);  // seed + index wraps
  EXPECT_EQ(UniformDraw(123456789, 1000), 8538839 * unit);
}

TEST(Sampler, GreedyTakesTheLargestAndBreaksTiesLow) {
  const SamplingParams greedy{.temperature = 0};
  EXPECT_EQ(Draw(greedy, 1), std::vector<int32_t>{3});
  EXPECT_EQ(Draw(greedy, 1, {2, 5, 5, 1}), std::vector<int32_t>{1});
  EXPECT_EQ(Draw(greedy, 1, {kNaN, -7, kNaN, -8}), std::vector<int32_t>{1});
}

// Rows that pad a vocabulary have logits too: as if they were not there, in every way of drawing.
TEST(Sampler, NeverDrawsPaddingOfTheVocabulary) {
  std::vector<float> padded = kLogits;
  padded.insert(padded.end(), {50.0f, kInfinity, 4.0f});
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 0}, SamplingParams{.temperature = 0, .repetition_penalty = 2},
        SamplingParams{.temperature = 0.7f, .top_k = 3, .top_p = 0.9f, .seed = 5},
        SamplingParams{.temperature = 1, .top_k = 0, .top_p = 1, .seed = 11}}) {
    Sampler sampler(static_cast<int32_t>(kLogits.size()), 0);
    std::vector<int32_t> ids;
    for (uint64_t i = 0; i < 24; ++i) ids.push_back(sampler.Sample(padded, {}, i, params));
    EXPECT_EQ(ids, Draw(params, 24));
  }
  Sampler none(2, 0);
  EXPECT_EQ(none.Sample(std::vector<float>{kNaN, -kInfinity, 1}, {}, 0, {.temperature = 0}), -1);
}

TEST(Sampler, SaysWhenNothingIsFinite) {
  EXPECT_EQ(Draw({.temperature = 0}, 1, {kNaN, -kInfinity, kNaN}), std::vector<int32_t>{-1});
  EXPECT_EQ(Draw({.temperature = 1}, 1, {kNaN, -kInfinity, kNaN}), std::vector<int32_t>{-1});
}

TEST(Sampler, TruncatedDrawsMatchTheSpecification) {
  EXPECT_EQ(Draw({.temperature = 0.7f, .top_k = 3, .top_p = 0.9f, .seed = 5}, 24),
            (std::vector<int32_t>{3, 3, 3, 3, 3, 3, 3, 3, 0, 3, 3, 1,
                                  3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}));
}

TEST(Sampler, DrawsOverEverythingUseTheGumbelForm) {
  EXPECT_EQ(Draw({.temperature = 1, .top_k = 0, .top_p = 1, .seed = 11}, 24),
            (std::vector<int32_t>{3, 3, 3, 1, 3, 3, 3, 1, 1, 3, 3, 3,
                                  3, 3, 1, 3, 1, 3, 3, 3, 3, 3, 3, 3}));
}

TEST(Sampler, TemperatureNeverAddsCandidates) {
  // softmax: 0.62 for id 3 and 0.23 for id 1 reach 0.8 together.
  for (const int32_t id : Draw({.temperature = 100, .top_k = 0, .top_p = 0.8f, .seed = 3}, 200)) {
    EXPECT_TRUE(id == 3 || id == 1) << id;
  }
}

TEST(Sampler, MinPDropsWhatIsFarBelowTheBest) {
  // id 0 has 0.135 of the best's probability, id 1 has 0.368.
  for (const int32_t id :
       Draw({.temperature = 50, .top_k = 0, .top_p = 1, .min_p = 0.2f, .seed = 3}, 200)) {
    EXPECT_TRUE(id == 3 || id == 1) << id;
  }
}

TEST(Sampler, TopKMayExceedTheVocabulary) {
  for (const int32_t id : Draw({.temperature = 1, .top_k = 64, .top_p = 1}, 50)) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, 5);
  }
}

TEST(Sampler, TinyTemperaturesDoNotUnderflow) {
  EXPECT_EQ(Draw({.temperature = 1e-6f, .top_k = 0, .top_p = 0.99f}, 3),
            (std::vector<int32_t>{3, 3, 3}));
}

TEST(Sampler, APrefixThatMustGrowIsStillInOrder) {
  // 4,096 equal values: top-p 0.9 keeps ids below 0.9 * 4,096 (ties by id), far beyond one sort.
  std::vector<float> logits(4096, 0.25f);
  for (const int32_t id : Draw({.temperature = 1, .top_k = 0, .top_p = 0.9f}, 300, logits)) {
    EXPECT_LE(id, 3687);
  }
}

TEST(Sampler, RepetitionPenaltyActsOnceOnRecentTokensOnly) {
  Sampler sampler(5, 0);
  SamplingParams params{.temperature = 0, .repetition_penalty = 2.0f, .repeat_last_n = 2};
  // 3.0 / 2 = 1.5 < 2.0: id 1 wins; twice in the window counts once.
  EXPECT_EQ(sampler.Sample(kLogits, std::vector<int32_t>{3, 3}, 2, params), 1);
  // Outside the window nothing is penalised.
  EXPECT_EQ(sampler.Sample(kLogits, std::vector<int32_t>{3, 0, 2}, 3, params), 3);
  // Negative values grow more negative; ids out of range are ignored.
  const std::vector<float> negative = {-1.0f, -1.5f};
  Sampler two(2, 0);
  EXPECT_EQ(two.Sample(negative, std::vector<int32_t>{0, 99}, 2, params), 1);
}

TEST(Sampler, RejectsParametersWithoutMeaning) {
  for (const SamplingParams& params :
       {SamplingParams{.temperature = -1}, SamplingParams{.temperature = kNaN},
        SamplingParams{.top_k = -1}, SamplingParams{.top_p = 0}, SamplingParams{.top_p = 1.5f},
        SamplingParams{.min_p = 2}, SamplingParams{.repetition_penalty = 0}}) {
    EXPECT_THROW(params.Validate(), Error);
  }
  SamplingParams().Validate();
}

}  // namespace
}  // namespace mference
