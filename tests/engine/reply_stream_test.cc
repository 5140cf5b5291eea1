// ReplyStream: stop strings on visible text, order around reasoning, raw completions.
#include "engine/reply_stream.h"

#include <gtest/gtest.h>

#include "engine/golden_model.h"
#include "model/catalogue.h"

namespace mference {
namespace {

using Kind = DialectEvent::Kind;

class ReplyStreamTest : public testing::Test {
 protected:
  static const TextLayer& Text() {
    static const TextLayer layer = [] {
      const ModelDirectory directory =
          ModelDirectory::Open(testing_support::InstalledSnapshot(MFERENCE_DEMO_SNAPSHOT),
                               {.policy = VerifyPolicy::kAuto, .resolve = ResolveModel});
      const Json config =
          ParseConfig(directory.ReadSidecar("config.json", kMaxConfigBytes), "config");
      return TextLayer::Load(directory, JsonReader(config, "config", ErrorCode::kManifestCorrupt));
    }();
    return layer;
  }

  // Feeds the ids of `text`, markers recognised, and ends with `reason`.
  static Reply Feed(ReplyStream& stream, std::string_view text,
                    StopReason reason = StopReason::kEndOfTurn) {
    std::vector<DialectEvent> events;
    for (const TokenId id : Text().tokenizer().Encode(text, SpecialParsing::kAll)) {
      if (!stream.Push(id, &events)) break;
    }
    stream.Finish(reason, &events);
    Reply reply;
    AppendEvents(events, &reply);
    return reply;
  }
};

TEST_F(ReplyStreamTest, PlainText) {
  ReplyStream stream(Text(), {});
  EXPECT_EQ(Feed(stream, "Hello wörld \U0001F60A!").content, "Hello wörld \U0001F60A!");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.finish_reason(), FinishReason::kStop);
}

TEST_F(ReplyStreamTest, LengthIsTheFinishReasonOfACutReply) {
  ReplyStream stream(Text(), {});
  Feed(stream, "Hello", StopReason::kMaxTokens);
  EXPECT_EQ(stream.finish_reason(), FinishReason::kLength);
}

TEST_F(ReplyStreamTest, AStopStringEndsItAndIsNotShown) {
  ReplyStream stream(Text(), {.stops = {"END"}});
  EXPECT_EQ(Feed(stream, "one two END three").content, "one two ");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.finish_reason(), FinishReason::kStop);
}

TEST_F(ReplyStreamTest, TextHeldForAStopComesOutAtTheEnd) {
  ReplyStream stream(Text(), {.stops = {"ENDING"}});
  EXPECT_EQ(Feed(stream, "one END").content, "one END");
  EXPECT_FALSE(stream.stopped());
}

// Stop strings look at what is shown; reasoning is not.
TEST_F(ReplyStreamTest, StopsDoNotMatchInReasoning) {
  ReplyStream stream(Text(), {.stops = {"secret"}});
  const Reply reply = Feed(stream, "<|channel>thought\na secret<channel|>an answer");
  EXPECT_EQ(reply.content, "an answer");
  EXPECT_FALSE(stream.stopped());
}

// Without declared tools a call is text; with them it is a call, after the text before it, whose
// final white space only separates the two.
TEST_F(ReplyStreamTest, CallsNeedTools) {
  const std::string text = "Look: <|tool_call>call:ls{path:<|\"|>/tmp<|\"|>}<tool_call|>";
  ReplyStream plain(Text(), {});
  EXPECT_EQ(Feed(plain, text).content, text);

  ReplyStream with_tools(Text(), {.tools = {{"ls", Json::object()}}, .stops = {": never"}});
  const Reply reply = Feed(with_tools, text, StopReason::kToolCalls);
  EXPECT_EQ(reply.content, "Look:");
  ASSERT_EQ(reply.calls.size(), 1u);
  EXPECT_EQ(reply.calls[0].name, "ls");
  EXPECT_EQ(with_tools.finish_reason(), FinishReason::kToolCalls);
}

TEST_F(ReplyStreamTest, AMalformedCallFails) {
  ReplyStream stream(Text(), {.tools = {{"ls", Json::object()}}});
  Feed(stream, "<|tool_call>call:rm{}<tool_call|>");
  ASSERT_TRUE(stream.failure().has_value());
  EXPECT_EQ(stream.failure()->ClassName(), "unknown_tool:rm");
}

TEST_F(ReplyStreamTest, RawCompletionsKnowNoDialect) {
  ReplyStream stream(Text(), {.raw = true, .stops = {"stop here"}});
  EXPECT_EQ(Feed(stream, "<|channel>thought\nx<channel|>y stop here z").content, "thought\nxy ");
  EXPECT_TRUE(stream.stopped());
}

}  // namespace
}  // namespace mference
