// Which prompts a conversation is continued from, for every family's framing.
#include "engine/turn_history.h"

#include <gtest/gtest.h>

#include "engine/golden_model.h"
#include "model/catalogue.h"

namespace mference {
namespace {

using testing_support::GoldenPath;
using testing_support::InstalledSnapshot;
using Ids = std::vector<TokenId>;

// The text of a golden model, whose tokenizers spell their family's markers; the chat template is
// that of the test data where the family has one.
const TextLayer& TextOf(const std::string& golden) {
  static std::map<std::string, TextLayer> loaded;
  const auto known = loaded.find(golden);
  if (known != loaded.end()) return known->second;
  const std::filesystem::path path = InstalledSnapshot(GoldenPath(golden) / "snapshot");
  const ModelDirectory directory =
      ModelDirectory::Open(path, {.policy = VerifyPolicy::kAuto, .resolve = ResolveModel});
  const Json document = ParseJson(directory.ReadSidecar("config.json", 1 << 20), "config.json",
                                  ErrorCode::kManifestCorrupt);
  return loaded
      .emplace(golden, TextLayer::Load(directory, JsonReader(document, "config.json",
                                                             ErrorCode::kManifestCorrupt)))
      .first->second;
}

ChatMessage Message(ChatRole role, const std::string& content) {
  ChatMessage message;
  message.role = role;
  message.content = content;
  return message;
}
ChatMessage User(const std::string& content) { return Message(ChatRole::kUser, content); }
ChatMessage Assistant(const std::string& content) { return Message(ChatRole::kAssistant, content); }

// A reply that no rendering would give: single bytes, one after the other.
GenerationResult Sampled(const TextLayer& text, StopReason reason) {
  GenerationResult result;
  result.reason = reason;
  for (const char* piece : {"h", "e", "y", " ", "h", "o"}) {
    const Ids ids = text.tokenizer().Encode(piece, SpecialParsing::kNone);
    result.tokens.insert(result.tokens.end(), ids.begin(), ids.end());
  }
  if (reason == StopReason::kEndOfTurn) {
    result.tokens.push_back(text.stops().end_of_turn.front());
  }
  return result;
}

Ids Joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class TurnHistoryTest : public testing::TestWithParam<const char*> {
 protected:
  const TextLayer& text() const { return TextOf(GetParam()); }
  EffectivePrompt Prepare(const std::vector<ChatMessage>& messages) {
    return history_.Prepare(text(), messages, {}, options_);
  }
  // Asks `messages`, gets "hey ho"; the ids that the turn is continued from.
  Ids Turn(const std::vector<ChatMessage>& messages, StopReason reason = StopReason::kEndOfTurn) {
    const EffectivePrompt prompt = Prepare(messages);
    const GenerationResult result = Sampled(text(), reason);
    history_.Remember(text(), messages, {}, options_, prompt.ids, result, Assistant("hey ho"));
    Ids ids = Joined(prompt.ids, result.tokens);
    if (reason == StopReason::kEndOfTurn) ids.pop_back();
    return ids;
  }
  Ids Continuation(const std::string& message) {
    return text().EncodePrompt(text().renderer().Continuation(message, options_));
  }

  TurnHistory history_;
  PromptOptions options_;
};

TEST_P(TurnHistoryTest, ATurnGoesOnFromWhatWasSampled) {
  for (const StopReason reason : {StopReason::kEndOfTurn, StopReason::kMaxTokens}) {
    history_.Clear();
    const Ids first = Turn({User("hi")}, reason);
    const std::vector<ChatMessage> second = {User("hi"), Assistant("hey ho"), User("and now?")};
    const EffectivePrompt prompt = Prepare(second);
    EXPECT_EQ(prompt.ids, Joined(first, Continuation("and now?")));
    EXPECT_EQ(prompt.remembered_tokens, static_cast<int64_t>(first.size()));
    EXPECT_EQ(prompt.rendered_ids,
              text().EncodePrompt(text().renderer().Render(second, {}, options_)));
    // The third turn goes on from the second's effective ids.
    const Ids again = Turn(second, reason);
    std::vector<ChatMessage> third = second;
    third.push_back(Assistant("hey ho"));
    third.push_back(User("more"));
    EXPECT_EQ(Prepare(third).ids, Joined(again, Continuation("more")));
  }
}

TEST_P(TurnHistoryTest, AnEarlierTurnServesWhenTheLatestIsUnknown) {
  const Ids first = Turn({User("hi")});
  const EffectivePrompt prompt = Prepare(
      {User("hi"), Assistant("hey ho"), User("and now?"), Assistant("never said"), User("so")});
  EXPECT_EQ(prompt.remembered_tokens, static_cast<int64_t>(first.size()));
  ASSERT_GT(prompt.ids.size(), first.size());
  EXPECT_TRUE(std::equal(first.begin(), first.end(), prompt.ids.begin()));
  // What follows is the rendering from the end of that turn on.
  const Ids rest(prompt.ids.begin() + static_cast<ptrdiff_t>(first.size()), prompt.ids.end());
  EXPECT_EQ(rest.front(), text().stops().end_of_turn.front());
  ASSERT_LE(rest.size(), prompt.rendered_ids.size());
  EXPECT_TRUE(std::equal(rest.rbegin(), rest.rend(), prompt.rendered_ids.rbegin()));
}

TEST_P(TurnHistoryTest, WhatDoesNotCountIsIgnored) {
  Turn({User("hi")});
  ChatMessage reply = Assistant("hey ho \n");
  reply.reasoning = "hm";
  EXPECT_GT(Prepare({User("hi"), reply, User("x")}).remembered_tokens, 0);
}

TEST_P(TurnHistoryTest, OtherHistoriesAreRendered) {
  Turn({User("hi")});
  const auto rendered = [&](const std::vector<ChatMessage>& messages) {
    const EffectivePrompt prompt = Prepare(messages);
    return prompt.remembered_tokens == 0 && prompt.ids == prompt.rendered_ids;
  };
  EXPECT_TRUE(rendered({User("hi")}));
  EXPECT_TRUE(rendered({User("Hi"), Assistant("hey ho"), User("x")}));
  EXPECT_TRUE(rendered({User("hi "), Assistant("hey ho"), User("x")}));
  EXPECT_TRUE(rendered({User("hi"), Assistant("hey"), User("x")}));
  EXPECT_TRUE(
      rendered({Message(ChatRole::kSystem, "s"), User("hi"), Assistant("hey ho"), User("x")}));
  options_.extra = {{"flag", jinja::Value::Bool(true)}};
  EXPECT_TRUE(rendered({User("hi"), Assistant("hey ho"), User("x")}));
}

TEST_P(TurnHistoryTest, TurnsThatEndedOtherwiseAreNotRemembered) {
  Turn({User("hi")}, StopReason::kStopString);
  Turn({User("hi")}, StopReason::kEos);
  EXPECT_EQ(history_.size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Families, TurnHistoryTest,
                         testing::Values("gemma4", "qwen3_5_moe", "deepseek_v4", "inkling",
                                         "maple"),
                         [](const testing::TestParamInfo<const char*>& family) {
                           return std::string(family.param);
                         });

TEST(TurnHistory, IsBounded) {
  const TextLayer& text = TextOf("gemma4");
  TurnHistory history;
  for (int i = 0; i < 300; ++i) {
    const std::vector<ChatMessage> messages = {User(std::to_string(i))};
    history.Remember(text, messages, {}, {}, Ids(10, 3), Sampled(text, StopReason::kEndOfTurn),
                     Assistant("hey ho"));
  }
  EXPECT_EQ(history.size(), TurnHistory::kMaxTurns);
  EXPECT_EQ(
      history.Prepare(text, {User("1"), Assistant("hey ho"), User("x")}, {}, {}).remembered_tokens,
      0);
  EXPECT_GT(history.Prepare(text, {User("299"), Assistant("hey ho"), User("x")}, {}, {})
                .remembered_tokens,
            0);
  const Ids long_prompt(TurnHistory::kMaxTokens, 3);
  for (int i = 0; i < 2; ++i) {
    history.Remember(text, {User(std::to_string(i))}, {}, {}, long_prompt,
                     Sampled(text, StopReason::kEndOfTurn), Assistant("hey ho"));
  }
  EXPECT_EQ(history.size(), 1u);
}

}  // namespace
}  // namespace mference
