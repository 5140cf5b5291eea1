#include "experts/replay.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace mference {
namespace {

// One layer of 8 experts, one per token.
RoutingTrace OneLayer(const std::vector<int32_t>& experts) {
  TraceBuilder builder(1, 8, 100);
  for (const int32_t expert : experts) {
    builder.Add(0, 1, std::vector<int32_t>{expert}, std::vector<float>{1});
  }
  return builder.Finish();
}

double Hits(const RoutingTrace& trace, CachePolicyKind policy, int slots) {
  return static_cast<double>(Replay(trace, policy, {.slots = slots}).hits);
}

// The textbook reference string: FIFO-like queues aside, counted by hand.
TEST(Replay, CountsByHand) {
  const RoutingTrace trace = OneLayer({1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5});
  EXPECT_EQ(Hits(trace, CachePolicyKind::kLru, 3), 2);    // 10 faults
  EXPECT_EQ(Hits(trace, CachePolicyKind::kLru, 4), 4);    // 8 faults
  EXPECT_EQ(ReplayBelady(trace, {.slots = 3}).hits, 5u);  // 7 faults
  EXPECT_EQ(ReplayBelady(trace, {.slots = 4}).hits, 6u);  // 6 faults
  const ReplayResult result = Replay(trace, CachePolicyKind::kLru, {.slots = 3});
  EXPECT_EQ(result.tokens, 12);
  EXPECT_EQ(result.asked, 12u);
  EXPECT_DOUBLE_EQ(result.hit_rate(), 2.0 / 12);
  EXPECT_DOUBLE_EQ(result.bytes_per_token(), 10 * 100.0 / 12);
}

TEST(Replay, WarmUpFillsTheCacheAndIsNotCounted) {
  const RoutingTrace trace = OneLayer({0, 1, 2, 0, 1, 2});
  const ReplayResult result =
      Replay(trace, CachePolicyKind::kLfu, {.slots = 3, .warm_up_tokens = 3});
  EXPECT_EQ(result.tokens, 3);
  EXPECT_EQ(result.hits, 3u);
  EXPECT_EQ(result.bytes_per_token(), 0);
  EXPECT_THROW(Replay(trace, CachePolicyKind::kLfu, {.slots = 3, .warm_up_tokens = 6}), Error);
}

TEST(Replay, AWideStepAsksForEachExpertOnce) {
  TraceBuilder builder(1, 8, 100);
  // Six rows, one expert each: five distinct.
  builder.Add(0, 1, std::vector<int32_t>{1, 2, 3, 4, 1, 5}, std::vector<float>(6, 1.0f));
  const RoutingTrace trace = builder.Finish();
  const ReplayResult step = Replay(trace, CachePolicyKind::kLfu, {.slots = 2});
  EXPECT_EQ(step.tokens, 6);
  EXPECT_EQ(step.asked, 5u);
  EXPECT_EQ(step.blobs_read, 5u);
  EXPECT_EQ(step.decoded_tokens, 0);
  const ReplayResult tokens =
      Replay(trace, CachePolicyKind::kLfu, {.slots = 5, .token_by_token = true});
  EXPECT_EQ(tokens.asked, 6u);
  EXPECT_EQ(tokens.hits, 1u);
  EXPECT_EQ(tokens.decoded_tokens, 6);
  EXPECT_DOUBLE_EQ(tokens.decode_bytes_per_token(), 5 * 100.0 / 6);
}

// One prompt of 300 rows, in which expert 1 + 2 n of layer n is chosen by all and the others by one
// in ten; then 40 tokens in the same manner. The default knows the popular ones after the prompt,
// and never reads them again.
TEST(Replay, APromptTellsTheDefaultPolicyWhatDecodingWillUse) {
  constexpr int kLayers = 4;
  constexpr int kRows = 300;
  TraceBuilder builder(kLayers, 11, 100);
  uint32_t random = 1;
  const auto row_of = [&random](int layer) {
    random = random * 1664525 + 1013904223;
    const int32_t popular = 1 + 2 * layer;
    const auto other = static_cast<int32_t>((random >> 8) % 10);
    std::vector<int32_t> row = {popular, other < popular ? other : other + 1};
    std::sort(row.begin(), row.end());
    return row;
  };
  for (int step = 0; step <= 40; ++step) {
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<int32_t> experts;
      for (int row = 0; row < (step == 0 ? kRows : 1); ++row) {
        const std::vector<int32_t> chosen = row_of(layer);
        experts.insert(experts.end(), chosen.begin(), chosen.end());
      }
      builder.Add(layer, 2, experts, std::vector<float>(experts.size(), 1.0f));
    }
  }
  // The prompt streams 11 experts per layer through 7 slots: one per layer and three that pass.
  const ReplayResult result =
      Replay(builder.Finish(), CachePolicyKind::kNextUse, {.slots = 7, .warm_up_tokens = kRows});
  EXPECT_EQ(result.tokens, 40);
  EXPECT_EQ(result.decoded_tokens, 40);
  EXPECT_GE(result.hits, 40u * kLayers);
  EXPECT_LE(result.decode_blobs_read, 40u * kLayers);
}

TEST(Replay, NoPolicyBeatsTheOptimum) {
  std::vector<int32_t> experts;
  uint32_t random = 1;
  for (int i = 0; i < 2000; ++i) {
    random = random * 1664525 + 1013904223;
    experts.push_back(static_cast<int32_t>((random >> 28) * (random >> 24 & 15) / 32));
  }
  const RoutingTrace trace = OneLayer(experts);
  for (const int slots : {1, 2, 4, 7}) {
    const auto best = static_cast<double>(ReplayBelady(trace, {.slots = slots}).hits);
    for (const CachePolicyKind policy : kCachePolicies) {
      EXPECT_LE(Hits(trace, policy, slots), best) << CachePolicyName(policy) << ", " << slots;
    }
  }
}

TEST(Replay, RefusesAPoolBelowTopK) {
  TraceBuilder builder(1, 8, 100);
  builder.Add(0, 2, std::vector<int32_t>{1, 2}, std::vector<float>{1, 1});
  EXPECT_THROW(Replay(builder.Finish(), CachePolicyKind::kLfu, {.slots = 1}), Error);
}

TEST(CachePolicyKind, NamesAreParsedBack) {
  for (const CachePolicyKind policy : kCachePolicies) {
    EXPECT_EQ(ParseCachePolicy(CachePolicyName(policy)), policy);
  }
  EXPECT_THROW(ParseCachePolicy("fifo"), Error);
}

}  // namespace
}  // namespace mference
