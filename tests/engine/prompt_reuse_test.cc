// Reuse with real models: restored states continue with the same bytes, in memory and from disk.
#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>
#include <fstream>

#include "base/units.h"
#include "engine/golden_model.h"

namespace mference {
namespace {

namespace fs = std::filesystem;
using testing_support::GoldenPath;
using testing_support::InstalledSnapshot;
using testing_support::Reference;
using Tokens = std::vector<int32_t>;

class PromptReuseTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "mference-reuse-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    const Reference reference(GoldenPath(GetParam()) / "reference.safetensors");
    one_ = reference.Ints("seq1.tokens");
    two_ = reference.Ints("seq2.tokens");
  }
  void TearDown() override { fs::remove_all(root_); }

  LoadOptions Options() {
    LoadOptions options;
    options.path = InstalledSnapshot(GoldenPath(GetParam()) / "snapshot");
    options.memory_budget_bytes = 512 * kMiB;
    options.context = 256;
    options.chunk_rows = 16;
    options.threads = 2;
    options.prompt_cache.memory = PromptCacheOptions::Memory::kAuto;
    options.prompt_cache.on_check = [this](const PrefillCheck& check) {
      checks_.push_back(check);
      EXPECT_TRUE(check.passed) << check.Message();
    };
    options.prompt_cache.on_warning = [this](const std::string& warning) {
      warnings_.push_back(warning);
    };
    return options;
  }

  struct Turn {
    int64_t reused = 0;
    Tokens tokens;  // prompt and all of the reply that the state holds
    std::vector<float> logits;
  };
  // A greedy reply of a few tokens to `prompt`; the logits after its last token.
  static Turn Reply(LoadedModel& model, const Tokens& prompt) {
    const PrefillResult prefill = model.session().Prefill(prompt);
    Turn turn{.reused = prefill.reused_tokens, .tokens = prompt, .logits = {}};
    std::span<const float> logits = prefill.logits;
    for (int i = 0; i < 5; ++i) {
      turn.tokens.push_back(Argmax(logits));
      logits = model.session().Append(turn.tokens.back());
    }
    turn.logits.assign(logits.begin(), logits.end());
    return turn;
  }
  static Tokens Followed(Tokens tokens, const Tokens& by, size_t count) {
    tokens.insert(tokens.end(), by.begin(), by.begin() + static_cast<ptrdiff_t>(count));
    return tokens;
  }

  fs::path root_;
  Tokens one_, two_;
  std::vector<PrefillCheck> checks_;
  std::vector<std::string> warnings_;
};

TEST_P(PromptReuseTest, AnInterruptedConversationContinuesWithTheSameBytes) {
  const auto alone = LoadedModel::Load(Options());
  const Turn first = Reply(*alone, one_);
  const Tokens next = Followed(first.tokens, two_, 7);
  const Turn expected = Reply(*alone, next);
  EXPECT_EQ(expected.reused, static_cast<int64_t>(first.tokens.size()));

  const auto shared = LoadedModel::Load(Options());
  EXPECT_GT(shared->plan().prompt_cache_bytes, 0u);
  EXPECT_EQ(Reply(*shared, one_).logits, first.logits);
  const Turn other = Reply(*shared, two_);
  const Turn got = Reply(*shared, next);
  EXPECT_EQ(got.reused, expected.reused);
  EXPECT_EQ(got.tokens, expected.tokens);
  EXPECT_EQ(got.logits, expected.logits);
  // And the one that interrupted it.
  const Turn back = Reply(*shared, Followed(other.tokens, one_, 3));
  EXPECT_EQ(back.reused, static_cast<int64_t>(other.tokens.size()));
}

// The whole of the prompt but its last token is in reach again after a reply, whatever the state is
// made of; what is reused agrees with computing everything.
TEST_P(PromptReuseTest, AskingAgainReusesThePrompt) {
  LoadOptions options = Options();
  options.prompt_cache.verify = true;
  const auto model = LoadedModel::Load(options);
  Tokens prompt = one_;
  while (prompt.size() < 100) prompt.insert(prompt.end(), one_.begin(), one_.end());
  prompt.resize(100);
  const Turn first = Reply(*model, prompt);
  const Turn again = Reply(*model, prompt);
  EXPECT_EQ(again.reused, 99);
  EXPECT_EQ(again.tokens, first.tokens);
  ASSERT_EQ(checks_.size(), 1u);
  EXPECT_EQ(checks_[0].reused_tokens, 99);
  EXPECT_TRUE(checks_[0].greedy_equal);
}

TEST_P(PromptReuseTest, ARestartContinuesFromDisk) {
  const auto alone = LoadedModel::Load(Options());
  const Turn first = Reply(*alone, one_);
  const Tokens next = Followed(first.tokens, two_, 7);
  const Turn expected = Reply(*alone, next);

  LoadOptions options = Options();
  options.prompt_cache.directory = root_ / "cache";
  {
    const auto model = LoadedModel::Load(options);
    Reply(*model, one_);
    model->SavePrompt();
    EXPECT_EQ(model->prompt_cache_directory()->counters().saves, 1);
  }
  {
    const auto model = LoadedModel::Load(options);
    EXPECT_EQ(model->MatchPrefix(next).source, PrefixMatch::Source::kDisk);
    const Turn got = Reply(*model, next);
    EXPECT_EQ(got.reused, expected.reused);
    EXPECT_EQ(got.tokens, expected.tokens);
    EXPECT_EQ(got.logits, expected.logits);
  }
  // Other settings compute other bytes.
  LoadOptions wide = options;
  wide.kv_type = ElementType::kF32;
  EXPECT_EQ(LoadedModel::Load(wide)->MatchPrefix(next).tokens, 0);
  LoadOptions shorter = options;
  shorter.context = 200;
  EXPECT_EQ(LoadedModel::Load(shorter)->MatchPrefix(next).tokens, 0);
  EXPECT_TRUE(warnings_.empty());
  // A damaged file costs a prefill.
  for (const auto& entry : fs::directory_iterator(root_ / "cache")) {
    fs::resize_file(entry.path(), fs::file_size(entry.path()) - 100);
  }
  const auto model = LoadedModel::Load(options);
  EXPECT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(Reply(*model, one_).logits, first.logits);
  model->SavePrompt();
  options.prompt_cache.clear = true;
  EXPECT_EQ(LoadedModel::Load(options)->MatchPrefix(next).tokens, 0);
}

// Cancelled before any layer of any chunk: no layer more is computed where that loses no more than
// it spares, and what is kept continues with the bytes of a prefill that nobody interrupted.
TEST_P(PromptReuseTest, ACancelledPromptKeepsWhatIsExact) {
  Tokens prompt = one_;
  while (prompt.size() < 60) prompt.insert(prompt.end(), two_.begin(), two_.end());
  prompt.resize(60);
  CancelFlag cancel{false};
  int layers_left = INT_MAX;
  int layers_seen = 0;
  LoadOptions options = Options();
  options.prompt_cache.memory = PromptCacheOptions::Memory::kOff;
  options.on_open = [&](int, std::span<const int32_t>) {
    ++layers_seen;
    if (--layers_left == 0) cancel = true;
  };
  const auto model = LoadedModel::Load(options);
  Session& session = model->session();
  const PrefillResult whole = session.Prefill(prompt);
  const std::vector<float> expected(whole.logits.begin(), whole.logits.end());
  const int chunks = (60 + 15) / 16;
  const int layers = layers_seen / chunks;
  ASSERT_EQ(layers_seen, layers * chunks);
  const bool rewinds = model->model().state_layout().CanRewind(64, 48, 256);
  for (int stop = 1; stop <= layers * (chunks - 1); ++stop) {
    session.Reset();
    layers_left = stop;
    layers_seen = 0;
    const PrefillResult broken = session.Prefill(prompt, &cancel);
    EXPECT_TRUE(broken.cancelled);
    cancel = false;
    const int chunk = (stop - 1) / layers;
    const bool finished = stop % layers == 0;
    // A state that cannot go back loses the chunks before: two are more than is spared.
    const bool waited = !rewinds && chunk > 1;
    EXPECT_EQ(layers_seen, waited ? (chunk + 1) * layers : stop) << stop;
    const int held = finished || waited ? chunk + 1 : rewinds ? chunk : 0;
    EXPECT_EQ(session.tokens().size(), static_cast<size_t>(16 * held)) << stop;
    const PrefillResult again = session.Prefill(prompt);
    EXPECT_EQ(again.reused_tokens, 16 * held) << stop;
    EXPECT_EQ(std::vector<float>(again.logits.begin(), again.logits.end()), expected) << stop;
  }
}

// A long conversation is not lost with the turn that was cancelled.
TEST_P(PromptReuseTest, ACancelledTurnGoesBackToASnapshot) {
  CancelFlag cancel{false};
  bool stop = false;
  LoadOptions options = Options();
  options.chunk_rows = 64;
  options.on_open = [&](int, std::span<const int32_t>) { cancel = stop; };
  const auto model = LoadedModel::Load(options);
  Tokens prompt = one_;
  while (prompt.size() < 100) prompt.insert(prompt.end(), two_.begin(), two_.end());
  prompt.resize(100);
  Reply(*model, prompt);
  const Turn expected = Reply(*model, prompt);
  EXPECT_EQ(expected.reused, 99);
  Tokens next = expected.tokens;
  for (int i = 0; i < 4; ++i) next = Followed(next, one_, 16);
  stop = true;
  EXPECT_TRUE(model->session().Prefill(next, &cancel).cancelled);
  stop = false;
  const Turn again = Reply(*model, prompt);
  EXPECT_EQ(again.reused, 99);
  EXPECT_EQ(again.logits, expected.logits);
}

TEST_P(PromptReuseTest, EveryByteIsInTheLedger) {
  const auto model = LoadedModel::Load(Options());
  const uint64_t reserved = model->ledger().reserved_bytes();
  EXPECT_EQ(reserved, model->plan().planned_bytes);
  for (int i = 0; i < 3; ++i) {
    Reply(*model, one_);
    Reply(*model, two_);
  }
  EXPECT_EQ(model->ledger().reserved_bytes(), reserved);
  EXPECT_GT(model->prefix_cache().used_bytes(), 0u);
  EXPECT_LE(model->prefix_cache().used_bytes(), model->plan().prompt_cache_bytes);
}

INSTANTIATE_TEST_SUITE_P(Families, PromptReuseTest, testing::Values("gemma4", "qwen3_5_moe"),
                         [](const testing::TestParamInfo<const char*>& family) {
                           return std::string(family.param);
                         });

}  // namespace
}  // namespace mference
