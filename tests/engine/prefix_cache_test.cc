// Whose bytes the state holds after every kind of reuse, and what that costs.
#include "engine/prefix_cache.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "base/error.h"
#include "base/units.h"
#include "engine/fake_line.h"

namespace mference {
namespace {

using testing_support::FakeModel;
using Tokens = std::vector<int32_t>;

constexpr int64_t kContext = 256;
constexpr int32_t kTurn = 7;  // begins a turn
constexpr int32_t kChunk = 32;

// `count` ids that no other `seed` gives.
Tokens Text(int32_t seed, int32_t count) {
  Tokens tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), seed * 1000);
  return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A session as the engine runs it, over a fake model.
class Conversations {
 public:
  Conversations(FakeModel::Blocks blocks, uint64_t budget_bytes, PrefixCacheOptions options = {})
      : model_(blocks),
        ledger_(model_.layout().BytesFor(kContext) + budget_bytes),
        state_(model_.layout(), kContext, ledger_),
        cache_(model_.layout(), kContext, ledger_, With(std::move(options), budget_bytes)) {}

  // Prefills `prompt`; how many tokens were reused.
  int64_t Prompt(const Tokens& prompt) {
    const PrefixMatch expected = cache_.Match(prompt, state_, tokens_);
    const PrefixMatch match = cache_.Resume(prompt, state_, tokens_);
    EXPECT_EQ(match.tokens, expected.tokens);
    EXPECT_EQ(match.source, expected.source);
    EXPECT_LT(match.tokens, static_cast<int64_t>(prompt.size()));
    EXPECT_EQ(tokens_, Tokens(prompt.begin(), prompt.begin() + match.tokens));
    EXPECT_TRUE(model_.Holds(state_, tokens_)) << "after reusing " << match.tokens;
    const std::span<const int32_t> all(prompt);
    while (tokens_.size() < prompt.size()) {
      const auto begin = static_cast<int64_t>(tokens_.size());
      const int64_t end = cache_.StepEnd(
          prompt, begin, std::min<int64_t>(begin + kChunk, static_cast<int64_t>(prompt.size())));
      EXPECT_GT(end, begin);
      model_.Forward(state_, all.first(static_cast<size_t>(end)));
      tokens_.assign(prompt.begin(), prompt.begin() + end);
      cache_.AfterStep(prompt, state_);
      ++steps_;
    }
    EXPECT_LE(cache_.used_bytes(), cache_.budget_bytes());
    return match.tokens;
  }
  // Samples `reply`: its tokens follow the prompt.
  void Reply(const Tokens& reply) {
    for (const int32_t token : reply) {
      tokens_.push_back(token);
      model_.Forward(state_, tokens_);
    }
  }

  PrefixCache& cache() { return cache_; }
  SequenceState& state() { return state_; }
  MemoryLedger& ledger() { return ledger_; }
  const FakeModel& model() const { return model_; }
  Tokens& tokens() { return tokens_; }
  int steps() const { return steps_; }

 private:
  static PrefixCacheOptions With(PrefixCacheOptions options, uint64_t budget_bytes) {
    options.budget_bytes = budget_bytes;
    options.turn_starts = {kTurn};
    options.min_gain_tokens = 4;
    options.min_parked_tokens = 4;
    return options;
  }

  FakeModel model_;
  MemoryLedger ledger_;
  SequenceState state_;
  PrefixCache cache_;
  Tokens tokens_;
  int steps_ = 0;
};

// What each family's state is made of: attention only, with windows, recurrent, all of it.
constexpr FakeModel::Blocks kKinds[] = {{false, false}, {true, false}, {false, true}, {true, true}};

std::string KindName(const testing::TestParamInfo<FakeModel::Blocks>& kind) {
  return std::string("Rows") + (kind.param.ring ? "Ring" : "") + (kind.param.fixed ? "Fixed" : "");
}

class PrefixCacheTest : public testing::TestWithParam<FakeModel::Blocks> {};

TEST_P(PrefixCacheTest, TheNextTurnComputesOnlyWhatIsNew) {
  Conversations chat(GetParam(), 0);
  const Tokens first = Text(1, 40);
  EXPECT_EQ(chat.Prompt(first), 0);
  chat.Reply(Text(2, 10));
  EXPECT_EQ(chat.Prompt(first + Text(2, 10) + Text(3, 8)), 50);
  EXPECT_EQ(chat.cache().counters().live_resumed, 1);
  EXPECT_EQ(chat.cache().counters().prompt_tokens, 98);
  EXPECT_EQ(chat.cache().counters().reused_tokens, 50);
}

TEST_P(PrefixCacheTest, InterleavedConversationsEachKeepTheirPrefix) {
  Conversations chat(GetParam(), kMiB);
  Tokens history[3];
  for (int turn = 0; turn < 4; ++turn) {
    for (int who = 0; who < 3; ++who) {
      const auto before = static_cast<int64_t>(history[who].size());
      history[who] = history[who] + Text(10 * who + turn, 20 + who);
      EXPECT_EQ(chat.Prompt(history[who]), before) << "conversation " << who << ", turn " << turn;
      const Tokens reply = Text(100 + 10 * who + turn, 6);
      chat.Reply(reply);
      history[who] = history[who] + reply;
    }
  }
  EXPECT_EQ(chat.cache().counters().evictions, 0);
  EXPECT_EQ(chat.cache().parked_lines(), 2u);
}

// A side request that shares the system block, and a last message that is asked again or edited.
TEST_P(PrefixCacheTest, BranchesBeginAtTurnBorders) {
  Conversations chat(GetParam(), kMiB);
  const Tokens system = Tokens{kTurn} + Text(1, 39);
  const Tokens user = Tokens{kTurn} + Text(2, 29);
  const Tokens opener = {kTurn, 8, 9};
  const Tokens reply = Text(3, 30);
  chat.Prompt(system + user + opener);
  chat.Reply(reply);
  // The same message again: all but the opener at least.
  EXPECT_GE(chat.Prompt(system + user + opener), 70);
  chat.Reply(Text(4, 30));
  // Another last message: the system block.
  EXPECT_GE(chat.Prompt(system + Tokens{kTurn} + Text(5, 20) + opener), 40);
  chat.Reply(Text(6, 3));
  // And the first reply's conversation goes on.
  EXPECT_EQ(chat.Prompt(system + user + opener + reply + Text(7, 9)), 103);
}

TEST_P(PrefixCacheTest, ASmallBudgetIsNeverExceededAndNeverWrong) {
  std::mt19937 random(1);
  for (const uint64_t budget : {0, 3000, 10000, 20000, 40000}) {
    PrefixCacheOptions options;
    options.spacing_tokens = 20;
    Conversations chat(GetParam(), budget, options);
    std::vector<Tokens> histories(4, Tokens{kTurn} + Text(1, 25));
    for (int i = 0; i < 120; ++i) {
      Tokens& history = histories[random() % histories.size()];
      const auto kind = random() % 5;
      if (kind == 0) history.resize(std::max<size_t>(2, history.size() * (random() % 10) / 10));
      if (history.size() > 150) history = Tokens{kTurn} + Text(1, 25);
      history = history + Tokens{kTurn} +
                Text(static_cast<int32_t>(10 + random() % 3), static_cast<int32_t>(random() % 40));
      chat.Prompt(history);
      const Tokens reply =
          Text(static_cast<int32_t>(50 + random() % 3), static_cast<int32_t>(random() % 30));
      chat.Reply(reply);
      if (kind != 1) history = history + reply;
      ASSERT_LE(chat.ledger().reserved_bytes(), chat.ledger().budget_bytes());
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(PrefixCacheTest, AFailedStepLosesTheLiveLineOnly) {
  Conversations chat(GetParam(), kMiB);
  const Tokens one = Text(1, 40);
  chat.Prompt(one);
  chat.Prompt(Text(2, 40));
  chat.state().BeginStep(1);  // never completed: a read failed
  EXPECT_EQ(chat.Prompt(one + Text(3, 5)), 40);
  EXPECT_EQ(chat.Prompt(Text(2, 40) + Text(4, 5)), 0);
}

TEST_P(PrefixCacheTest, AStateThatIsNotWhatItSaysIsNotUsed) {
  Conversations chat(GetParam(), kMiB);
  chat.Prompt(Text(1, 40));
  chat.tokens().pop_back();  // as if someone had stepped the state past the session
  EXPECT_EQ(chat.Prompt(Text(1, 40) + Text(2, 4)), 0);
}

TEST_P(PrefixCacheTest, ClearForgets) {
  Conversations chat(GetParam(), kMiB);
  chat.Prompt(Text(1, 40));
  chat.Prompt(Text(2, 40));
  chat.cache().Clear();
  EXPECT_EQ(chat.cache().used_bytes(), 0u);
  EXPECT_EQ(chat.Prompt(Text(1, 40)), 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PrefixCacheTest, testing::ValuesIn(kKinds), KindName);

TEST(PrefixCache, StepsAreSplitAtBordersOnlyWhereNothingElseLeadsBack) {
  const Tokens prompt = Tokens{kTurn} + Text(1, 9) + Tokens{kTurn} + Text(2, 9) + Tokens{kTurn, 8};
  Conversations attention({}, kMiB);
  attention.Prompt(prompt);
  EXPECT_EQ(attention.steps(), 1);
  EXPECT_EQ(attention.cache().counters().snapshots_taken, 0);
  Conversations window({.ring = true}, kMiB);
  window.Prompt(prompt);
  EXPECT_EQ(window.steps(), 1);
  EXPECT_EQ(window.cache().counters().snapshots_taken, 1) << "the ring goes back from the end";
  Conversations recurrent({.fixed = true}, kMiB);
  recurrent.Prompt(prompt);
  EXPECT_EQ(recurrent.steps(), 3);
  EXPECT_EQ(recurrent.cache().live_snapshots(), 2u);
  Conversations no_budget({.fixed = true}, 0);
  no_budget.Prompt(prompt);
  EXPECT_EQ(no_budget.steps(), 1);
}

TEST(PrefixCache, ALongPromptKeepsItsFirstAndNewestSnapshotsAndSomeBetween) {
  PrefixCacheOptions options;
  options.spacing_tokens = 16;
  options.snapshots_per_line = 4;
  Conversations chat({.fixed = true}, kMiB, options);
  const Tokens prompt =
      Tokens{kTurn} + Text(1, 9) + Tokens{kTurn} + Text(2, 220) + Tokens{kTurn, 8};
  chat.Prompt(prompt);
  EXPECT_EQ(chat.cache().live_snapshots(), 4u);
  EXPECT_EQ(chat.Prompt(prompt), 231);
  // Any cut finds something in reach: no gap is wider than half of the whole.
  int64_t reused = chat.Prompt(Tokens(prompt.begin(), prompt.begin() + 150) + Text(3, 3));
  EXPECT_GE(reused, 40);
  reused = chat.Prompt(Tokens(prompt.begin(), prompt.begin() + 12) + Text(3, 3));
  EXPECT_EQ(reused, 10);
}

TEST(PrefixCache, TheLeastRecentlyUsedLineGivesWay) {
  const FakeModel model({.fixed = true});
  // Two lines of 40 tokens, each with its end and the snapshot of its prompt, and the live line's.
  const uint64_t snapshot = model.layout().SnapshotBytes(40, 256);
  const uint64_t line = model.layout().AppendedBytes(40) + 2 * snapshot;
  Conversations chat({.fixed = true}, 2 * line + snapshot + 100);
  for (const int who : {1, 2, 3, 4}) chat.Prompt(Text(who, 40));  // 1 has given way
  EXPECT_EQ(chat.Prompt(Text(2, 40) + Text(9, 1)), 40);
  EXPECT_EQ(chat.Prompt(Text(4, 40) + Text(9, 1)), 40);
  EXPECT_EQ(chat.Prompt(Text(1, 40) + Text(9, 1)), 0);
}

TEST(PrefixCache, TheBudgetIsReservedWhenItIsMade) {
  const FakeModel model({});
  MemoryLedger ledger(1000);
  EXPECT_THROW(PrefixCache(model.layout(), 64, ledger, {.budget_bytes = 1001}), Error);
  const PrefixCache cache(model.layout(), 64, ledger, {.budget_bytes = 600});
  EXPECT_EQ(ledger.available_bytes(), 400u);
}

}  // namespace
}  // namespace mference
