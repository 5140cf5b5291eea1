// Expected draws were computed from the specification's formulas by a separate program in exact
// integer and double arithmetic.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(Sampler, PresencePenaltyActsOnceAndFrequencyPenaltyPerOccurrence) {
  Sampler sampler(5, 0);
  const auto greedy = [&](const SamplingParams& params, const std::vector<int32_t>& generated) {
    return sampler.Sample(kLogits, generated, generated.size(), params);
  };
  // Id 3 leads id 1 by 1.0.
  const SamplingParams presence{.temperature = 0, .presence_penalty = 0.9f};
  EXPECT_EQ(greedy(presence, {3, 3, 3, 3}), 3);
  EXPECT_EQ(greedy({.temperature = 0, .presence_penalty = 1.1f}, {3}), 1);
  const SamplingParams frequency{.temperature = 0, .frequency_penalty = 0.4f};
  EXPECT_EQ(greedy(frequency, {3, 3}), 3);
  EXPECT_EQ(greedy(frequency, {3, 0, 3, 99, 3}), 1);
  EXPECT_EQ(greedy({.temperature = 0, .presence_penalty = 0.5f, .frequency_penalty = 0.3f}, {3, 3}),
            1);
  // Both look at the whole reply, whatever the repetition penalty's window is.
  std::vector<int32_t> longer(300, 2);
  longer[0] = longer[1] = longer[2] = 3;
  EXPECT_EQ(greedy(frequency, longer), 1);
  EXPECT_EQ(greedy({.temperature = 0, .presence_penalty = -1.1f}, {1}), 1);
}

TEST(Sampler, PenaltiesCombineWithTheRepetitionPenaltyOnTheCappedValue) {
  Sampler sampler(5, 30);
  // 3 / 1.2 = 2.5, less 0.6 = 1.9 < 2.
  EXPECT_EQ(
      sampler.Sample(kLogits, std::vector<int32_t>{3}, 1,
                     {.temperature = 0, .repetition_penalty = 1.2f, .presence_penalty = 0.6f}),
      1);
  EXPECT_EQ(
      sampler.Sample(kLogits, std::vector<int32_t>{3}, 1,
                     {.temperature = 0, .repetition_penalty = 1.2f, .presence_penalty = 0.4f}),
      3);
}

TEST(Sampler, LogitBiasShiftsForcesAndBans) {
  EXPECT_EQ(Draw({.temperature = 0, .logit_bias = {{.id = 1, .bias = 1.5f}}}, 1),
            std::vector<int32_t>{1});
  EXPECT_EQ(Draw({.temperature = 0, .logit_bias = {{.id = 3, .bias = -100}}}, 1),
            std::vector<int32_t>{1});
  EXPECT_EQ(Draw({.temperature = 0, .logit_bias = {{.id = 99, .bias = 100}}}, 1),
            std::vector<int32_t>{3});
  SamplingParams params{.temperature = 2, .top_k = 0, .top_p = 1, .seed = 4};
  params.logit_bias = {{.id = 4, .bias = 100}};
  EXPECT_EQ(Draw(params, 50), std::vector<int32_t>(50, 4));
  // Of several forced tokens the model chooses, at its own odds.
  params.logit_bias = {{.id = 4, .bias = 100}, {.id = 0, .bias = 100}};
  std::vector<int32_t> ids = Draw(params, 200);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 0) + std::count(ids.begin(), ids.end(), 4), 200);
  EXPECT_GT(std::count(ids.begin(), ids.end(), 4), 20);  // 54 expected: 1 / (1 + e^(2/2))
  EXPECT_LT(std::count(ids.begin(), ids.end(), 4), 100);
  params.logit_bias = {{.id = 3, .bias = -100}, {.id = 1, .bias = -100}};
  for (const int32_t id : Draw(params, 200)) EXPECT_TRUE(id != 3 && id != 1) << id;
}

TEST(Sampler, AMaskLeavesOnlyWhatItAllows) {
  Sampler sampler(5, 0);
  const std::vector<uint64_t> mask = {0b10101};  // ids 0, 2, 4
  const auto draw = [&](const SamplingParams& params, std::span<const uint64_t> allowed) {
    return sampler.Sample(kLogits, {}, 0, params, allowed);
  };
  EXPECT_EQ(draw({.temperature = 0}, mask), 0);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (const SamplingParams& params :
         {SamplingParams{.temperature = 5, .top_k = 0, .top_p = 1, .seed = seed},
          SamplingParams{.temperature = 5, .top_k = 0, .top_p = 0.99f, .seed = seed},
          SamplingParams{.temperature = 5, .top_k = 40, .top_p = 1, .seed = seed}}) {
      EXPECT_EQ(draw(params, mask) % 2, 0);
    }
    // Top-p sees the masked distribution: of ids 0 and 4, the first holds 88 %.
    EXPECT_EQ(draw({.temperature = 1, .top_k = 0, .top_p = 0.85f, .seed = seed},
                   std::vector<uint64_t>{0b10001}),
              0);
  }
  // The mask wins over biases, and a ban gives way where nothing else is allowed.
  EXPECT_EQ(draw({.temperature = 0, .logit_bias = {{.id = 1, .bias = 100}}}, mask), 0);
  EXPECT_EQ(draw({.temperature = 0, .logit_bias = {{.id = 4, .bias = -100}}},
                 std::vector<uint64_t>{0b10000}),
            4);
  // Ids beyond the mask's words, and beyond the candidates, are not allowed.
  std::vector<float> many(130, 0.0f);
  many[100] = 9;
  many[3] = 1;
  Sampler wide(130, 0);
  EXPECT_EQ(wide.Sample(many, {}, 0, {.temperature = 0}, std::vector<uint64_t>{~uint64_t{0}}), 3);
  EXPECT_EQ(draw({.temperature = 0}, std::vector<uint64_t>{uint64_t{1} << 5}), -1);
}

TEST(Sampler, LogprobsAreOfTheModelsOwnDistribution) {
  // log-softmax of kLogits.
  const double sum = std::exp(1.0) + std::exp(2.0) + std::exp(0.5) + std::exp(3.0) + std::exp(-1.0);
  Sampler sampler(5, 0);
  TokenLogprobs out;
  sampler.Logprobs(kLogits, 2, 3, &out);
  EXPECT_EQ(out.chosen.id, 2);
  EXPECT_NEAR(out.chosen.logprob, 0.5 - std::log(sum), 1e-6);
  ASSERT_EQ(out.top_count, 3);
  EXPECT_EQ(out.top[0].id, 3);
  EXPECT_NEAR(out.top[0].logprob, 3.0 - std::log(sum), 1e-6);
  EXPECT_EQ(out.top[1].id, 1);
  EXPECT_EQ(out.top[2].id, 0);
  EXPECT_NEAR(out.top[2].logprob, 1.0 - std::log(sum), 1e-6);
  sampler.Logprobs(kLogits, 3, 0, &out);
  EXPECT_EQ(out.top_count, 0);
  sampler.Logprobs(kLogits, 3, 20, &out);
  EXPECT_EQ(out.top_count, 5);  // there are no more
  // Ties by id; what is not finite has no place; padding does not count.
  Sampler four(4, 0);
  four.Logprobs(std::vector<float>{1, kNaN, 1, 1, 80}, 0, 2, &out);
  ASSERT_EQ(out.top_count, 2);
  EXPECT_EQ(out.top[0].id, 0);
  EXPECT_EQ(out.top[1].id, 2);
  EXPECT_NEAR(out.chosen.logprob, std::log(1.0 / 3), 1e-6);
}

TEST(Sampler, RejectsParametersWithoutMeaning) {
  for (const SamplingParams& params :
       {SamplingParams{.temperature = -1}, SamplingParams{.temperature = kNaN},
        SamplingParams{.top_k = -1}, SamplingParams{.top_p = 0}, SamplingParams{.top_p = 1.5f},
        SamplingParams{.min_p = 2}, SamplingParams{.repetition_penalty = 0},
        SamplingParams{.presence_penalty = 2.1f}, SamplingParams{.frequency_penalty = kNaN},
        SamplingParams{.logit_bias = {{.id = 3, .bias = 101}}},
        SamplingParams{.logit_bias = {{.id = -1, .bias = 1}}}}) {
    EXPECT_THROW(params.Validate(), Error);
  }
  SamplingParams().Validate();
}

}  // namespace
}  // namespace mference
