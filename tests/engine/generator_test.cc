// The generation loop's extensions: constraints and log-probabilities, on a tiny golden model.
#include "engine/generator.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/golden_model.h"

namespace mference {
namespace {

using testing_support::GoldenPath;
using testing_support::InstalledSnapshot;

// Allows ids of one remainder, then the end token, and is complete after `length` tokens.
class EveryThird final : public TokenConstraint {
 public:
  EveryThird(int32_t vocab, int64_t length) : length_(length), words_((vocab + 63) / 64) {
    for (int32_t id = 1; id < vocab; id += 3) words_[id / 64] |= uint64_t{1} << id % 64;
  }
  std::span<const uint64_t> Allowed(int64_t remaining_tokens) override {
    remaining.push_back(remaining_tokens);
    return words_;
  }
  void Accept(int32_t id) override { accepted.push_back(id); }
  bool may_end() const override { return complete(); }
  bool complete() const override { return static_cast<int64_t>(accepted.size()) >= length_; }

  std::vector<int64_t> remaining;
  std::vector<int32_t> accepted;

 private:
  int64_t length_;
  std::vector<uint64_t> words_;
};

class GeneratorTest : public ::testing::Test {
 protected:
  static std::unique_ptr<LoadedModel> Load() {
    LoadOptions options;
    options.path = InstalledSnapshot(GoldenPath("gemma4") / "snapshot");
    options.context = 64;
    return LoadedModel::Load(options);
  }
  const std::vector<int32_t> prompt_ = {2, 5, 9, 11, 7};
};

TEST_F(GeneratorTest, AConstraintChoosesTheBestAllowedTokenAndEndsTheReply) {
  const auto model = Load();
  EveryThird constraint(model->model().vocab_size(), 6);
  GenerationRequest request;
  request.prompt = prompt_;
  request.sampling.temperature = 0;
  request.max_new_tokens = 20;
  request.constraint = &constraint;
  const GenerationResult result = model->Generate(request);
  EXPECT_EQ(result.reason, StopReason::kConstraintMet);
  ASSERT_EQ(result.tokens.size(), 6u);
  EXPECT_EQ(constraint.accepted, result.tokens);
  EXPECT_EQ(constraint.remaining, (std::vector<int64_t>{20, 19, 18, 17, 16, 15}));

  // Each is the argmax of its logits over the allowed ids.
  model->session().Reset();
  std::span<const float> logits = model->session().Prefill(prompt_).logits;
  for (const int32_t id : result.tokens) {
    EXPECT_EQ(id % 3, 1);
    for (int32_t other = 1; other < model->model().vocab_size(); other += 3) {
      EXPECT_LE(logits[other], logits[id]);
    }
    logits = model->session().Append(id);
  }
}

TEST_F(GeneratorTest, AConstraintIsToldOfTheContextsRoomToo) {
  const auto model = Load();
  EveryThird constraint(model->model().vocab_size(), 1000);
  GenerationRequest request;
  request.prompt = prompt_;
  request.sampling.temperature = 0;
  request.max_new_tokens = 500;
  request.constraint = &constraint;
  const GenerationResult result = model->Generate(request);
  EXPECT_EQ(result.reason, StopReason::kContextFull);
  ASSERT_FALSE(constraint.remaining.empty());
  EXPECT_EQ(constraint.remaining.front(), static_cast<int64_t>(result.tokens.size()));
  EXPECT_EQ(constraint.remaining.back(), 1);
}

TEST_F(GeneratorTest, LogprobsPrecedeEveryTokenAndIgnorePenaltiesAndMasks) {
  const auto model = Load();
  EveryThird constraint(model->model().vocab_size(), 4);
  std::vector<TokenLogprobs> seen;
  std::vector<int32_t> shown;
  GenerationRequest request;
  request.prompt = prompt_;
  request.sampling.temperature = 0;
  request.sampling.presence_penalty = 2;
  request.max_new_tokens = 20;
  request.constraint = &constraint;
  request.top_logprobs = 5;
  request.on_logprobs = [&](const TokenLogprobs& logprobs) {
    EXPECT_EQ(seen.size(), shown.size());
    seen.push_back(logprobs);
  };
  request.on_token = [&](int32_t id) {
    shown.push_back(id);
    return true;
  };
  const GenerationResult result = model->Generate(request);
  ASSERT_EQ(seen.size(), result.tokens.size());

  model->session().Reset();
  std::span<const float> logits = model->session().Prefill(prompt_).logits;
  for (size_t i = 0; i < seen.size(); ++i) {
    double sum = 0;
    for (const float value : logits) sum += std::exp(static_cast<double>(value));
    EXPECT_EQ(seen[i].chosen.id, result.tokens[i]);
    EXPECT_NEAR(seen[i].chosen.logprob, logits[result.tokens[i]] - std::log(sum), 1e-4);
    ASSERT_EQ(seen[i].top_count, 5);
    EXPECT_EQ(seen[i].top[0].id, Argmax(logits));
    EXPECT_NEAR(seen[i].top[0].logprob, logits[Argmax(logits)] - std::log(sum), 1e-4);
    for (int k = 1; k < 5; ++k) EXPECT_LE(seen[i].top[k].logprob, seen[i].top[k - 1].logprob);
    logits = model->session().Append(result.tokens[i]);
  }
}

}  // namespace
}  // namespace mference
