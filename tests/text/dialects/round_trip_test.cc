// Random conversations with tools, written in native syntax and read back: the same calls and
// text, however the text is cut. What a dialect cannot represent (see render.h) is not generated.

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>

#include "text/dialects/dialect_test_support.h"
#include "text/dialects/json_text.h"

namespace mference {
namespace {

constexpr std::array kFamilies = {TextFamily::kGemma4, TextFamily::kQwen36, TextFamily::kDeepseekV4,
                                  TextFamily::kInkling, TextFamily::kMaple};

class Generator {
 public:
  Generator(TextFamily family, uint64_t seed) : family_(family), random_(seed) {}

  Reply MakeReply() {
    Reply reply;
    if (Below(2) == 0) reply.reasoning = Prose();
    if (Below(3) > 0) reply.content = Prose();
    const size_t calls = Below(4);
    for (size_t i = 0; i < calls; ++i) {
      reply.calls.push_back(
          {.name = Below(2) == 0 ? "get_weather" : "fs.read-file", .arguments = Object(1)});
    }
    return reply;
  }

 private:
  size_t Below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  // Text whose ends are no white space, and no newline at either end of reasoning.
  std::string Prose() { return "a" + String() + "z"; }

  // Pieces that lexers trip over. Left out for Qwen: a line that begins like a call, closing tags;
  // for DSML: its bars.
  std::string String() {
    static const std::vector<std::string> kPieces = {"x",
                                                     " ",
                                                     "\n",
                                                     "\t",
                                                     "\"",
                                                     "\\",
                                                     "'",
                                                     "{",
                                                     "}",
                                                     "[1,2]",
                                                     ",",
                                                     ":",
                                                     "<",
                                                     ">",
                                                     "</",
                                                     "é",
                                                     "世界",
                                                     "👩‍👧",
                                                     "\x01",
                                                     "\\u00e9",
                                                     "<|\"|>",
                                                     "null",
                                                     "<think>",
                                                     "</think>",
                                                     "<tool_call>",
                                                     "</tool_call>",
                                                     "<tool_call|>",
                                                     "<|end_message|>",
                                                     "<parameter=a>",
                                                     "<｜",
                                                     "</invoke>",
                                                     "0",
                                                     "-1.50e+7",
                                                     "True",
                                                     "call:f{}"};
    std::string text;
    for (size_t n = Below(7); n > 0; --n) text += kPieces[Below(kPieces.size())];
    return text;
  }

  std::string Key() {
    static const std::vector<std::string> kPlain = {"city", "a-b", "x.y", "k$", "my key", "ключ"};
    static const std::vector<std::string> kAny = {"", "@timestamp", "a\"b", "a\nb", "{", "<|\"|>"};
    const bool restricted = family_ == TextFamily::kQwen36 || family_ == TextFamily::kDeepseekV4;
    if (restricted || Below(3) > 0) return kPlain[Below(kPlain.size())] + std::to_string(serial_++);
    return kAny[Below(kAny.size())] + std::to_string(serial_++);
  }

  std::string Quoted(const std::string& text) {
    std::string quoted = "\"";
    AppendJsonEscaped(text, &quoted);
    return quoted + "\"";
  }

  std::string Value(size_t depth) {
    static const std::vector<std::string> kScalars = {"true",
                                                      "false",
                                                      "null",
                                                      "0",
                                                      "-1",
                                                      "2.50",
                                                      "1E-7",
                                                      "9007199254740993",
                                                      "123456789012345678901234567890"};
    switch (Below(depth > 5 ? 2 : 4)) {
      case 0:
        return kScalars[Below(kScalars.size())];
      case 1:
        return Quoted(String());
      case 2:
        return Object(depth + 1);
      default: {
        std::string array = "[";
        for (size_t i = 0, n = Below(4); i < n; ++i) array += (i > 0 ? "," : "") + Value(depth + 1);
        return array + "]";
      }
    }
  }

  // Qwen's values have no types: its top-level strings begin so that they look like none.
  std::string Object(size_t depth) {
    std::string object = "{";
    for (size_t i = 0, n = Below(4); i < n; ++i) {
      std::string value = Value(depth);
      const bool untyped = family_ == TextFamily::kQwen36 && depth == 1;
      if (untyped && value[0] == '"') value = Quoted("s" + String());
      object += (i > 0 ? "," : "") + Quoted(Key()) + ":" + value;
    }
    return object + "}";
  }

  TextFamily family_;
  std::mt19937_64 random_;
  size_t serial_ = 0;
};

DialectOptions OptionsFor(TextFamily family, bool stream) {
  DialectOptions options;
  options.family = family;
  options.start = DefaultReplyStart(family, /*thinking=*/true);
  options.tools = {{.name = "get_weather", .parameters = Json::object()},
                   {.name = "fs.read-file", .parameters = Json::object()}};
  options.stream_arguments = stream;
  return options;
}

TEST(DialectRoundTripTest, RenderedRepliesReadBackTheSame) {
  for (const TextFamily family : kFamilies) {
    for (uint64_t seed = 0; seed < 1500; ++seed) {
      const Reply reply = Generator(family, seed).MakeReply();
      const DialectOptions options = OptionsFor(family, seed % 2 == 0);
      const auto spans = RenderReply(family, reply, options.start);
      SCOPED_TRACE(testing::Message() << "family " << static_cast<int>(family) << " seed " << seed);
      const ParsedReply whole = ParseSpans(options, spans);
      ASSERT_FALSE(whole.failure) << whole.failure->Message() << "\n" << whole.failure->excerpt;
      ASSERT_EQ(whole.reply.reasoning, reply.reasoning);
      ASSERT_EQ(whole.reply.content, reply.content);
      ASSERT_EQ(whole.reply.calls, reply.calls);
      for (const size_t piece : {1, 3}) {
        const ParsedReply cut = ParseSpans(options, spans, ReplyEnd::kEndOfTurn, piece);
        ASSERT_EQ(Joined(cut.events), Joined(whole.events)) << piece;
      }
    }
  }
}

// The template's own spelling of calls is what the parsers meet most.
TEST(DialectRenderTest, WritesTheFamiliesOwnSyntax) {
  const Reply reply{
      .reasoning = {},
      .content = {},
      .calls = {{.name = "get_weather", .arguments = R"({"city":"Paris","days":3})"}}};
  const auto flat = [&](TextFamily family, ReplyStart start) {
    std::string text;
    for (const RenderedSpan& span : RenderReply(family, reply, start)) text += span.text;
    return text;
  };
  EXPECT_EQ(flat(TextFamily::kGemma4, ReplyStart::kContent),
            "<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>,days:3}<tool_call|>");
  EXPECT_EQ(flat(TextFamily::kQwen36, ReplyStart::kContent),
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
            "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>");
  EXPECT_EQ(flat(TextFamily::kDeepseekV4, ReplyStart::kContent),
            "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
            "<｜DSML｜parameter name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n"
            "<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n"
            "</｜DSML｜invoke>\n</｜DSML｜tool_calls>");
  EXPECT_EQ(flat(TextFamily::kInkling, ReplyStart::kMessageModel),
            "get_weather<|content_invoke_tool_json|>"
            "{\"name\":\"get_weather\",\"args\":{\"city\":\"Paris\",\"days\":3}}<|end_message|>");
  EXPECT_EQ(
      flat(TextFamily::kMaple, ReplyStart::kContent),
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\":\"Paris\",\"days\":3}}\n"
      "</tool_call>");
}

TEST(DialectRenderTest, AForcedPrefixContinuesIntoACall) {
  struct Case {
    TextFamily family;
    std::vector<RenderedSpan> rest;
  };
  const std::vector<Case> cases = {
      {TextFamily::kGemma4, {Text("}"), Mark(TextFamily::kGemma4, Marker::kCallClose)}},
      {TextFamily::kQwen36, {Text("</function>\n"), Mark(TextFamily::kQwen36, Marker::kCallClose)}},
      {TextFamily::kDeepseekV4, {Text("</｜DSML｜invoke></｜DSML｜tool_calls>")}},
      {TextFamily::kInkling, {Text("{}}"), Mark(TextFamily::kInkling, Marker::kEndMessage)}},
      {TextFamily::kMaple, {Text("{}}\n"), Mark(TextFamily::kMaple, Marker::kCallClose)}}};
  for (const Case& tested : cases) {
    DialectOptions options = OptionsFor(tested.family, false);
    options.start =
        tested.family == TextFamily::kInkling ? ReplyStart::kMessageModel : ReplyStart::kContent;
    auto spans = RenderCallPrefix(tested.family, "get_weather");
    spans.insert(spans.end(), tested.rest.begin(), tested.rest.end());
    const ParsedReply parsed = ParseSpans(options, spans);
    ASSERT_FALSE(parsed.failure) << parsed.failure->Message();
    EXPECT_EQ(parsed.reply.calls,
              (std::vector<ToolCall>{{.name = "get_weather", .arguments = "{}"}}));
  }
}

std::string Refusal(TextFamily family, const Reply& reply) {
  try {
    RenderReply(family, reply);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMessagesInvalid);
    return error.what();
  }
  return "";
}

TEST(DialectRenderTest, RefusesWhatADialectCannotSay) {
  const auto call = [](std::string name, std::string arguments) {
    return Reply{.reasoning = {},
                 .content = {},
                 .calls = {{.name = std::move(name), .arguments = std::move(arguments)}}};
  };
  for (const TextFamily family : kFamilies) {
    EXPECT_NE(Refusal(family, call("no name", "{}")), "");
    EXPECT_NE(Refusal(family, call("f", "[1]")), "");
    EXPECT_NE(Refusal(family, call("f", "{\"a\":}")), "");
  }
  EXPECT_NE(Refusal(TextFamily::kQwen36, call("f", "{\"a<b\":1}")), "");
  EXPECT_NE(Refusal(TextFamily::kQwen36, call("f", "{\"a\":\"</parameter>\"}")), "");
  EXPECT_NE(Refusal(TextFamily::kDeepseekV4, call("f", "{\"a\":\"</｜DSML｜parameter>\"}")), "");
  EXPECT_NE(Refusal(TextFamily::kDeepseekV4, call("f", "{\"a\":\"</DSML｜parameter>\"}")), "");
  EXPECT_NE(Refusal(TextFamily::kDeepseekV4, call("f", "{\"a\\\"b\":1}")), "");
  EXPECT_NE(Refusal(TextFamily::kDeepseekV4,
                    {.reasoning = {}, .content = "<｜DSML｜tool_calls>", .calls = {}}),
            "");
}

}  // namespace
}  // namespace mference
