// What the goldens do not show: streaming itself, failures and their explanations, bounds, misuse.

#include "text/dialects/dialect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/dialects/dialect_test_support.h"
#include "text/dialects/parse_command.h"
#include "text/dialects/utf8_repair.h"

namespace mference {
namespace {

using Kind = DialectEvent::Kind;
using testing::HasSubstr;

constexpr auto kGemma = TextFamily::kGemma4;
constexpr auto kQwen = TextFamily::kQwen36;
constexpr auto kDeepseek = TextFamily::kDeepseekV4;
constexpr auto kInkling = TextFamily::kInkling;
constexpr auto kMaple = TextFamily::kMaple;

DialectOptions Options(TextFamily family, bool stream = false) {
  DialectOptions options;
  options.family = family;
  options.start = family == kInkling ? ReplyStart::kMessageModel : ReplyStart::kContent;
  options.tools = {{.name = "f", .parameters = Json::object()}};
  options.stream_arguments = stream;
  return options;
}

std::vector<DialectEvent> PushText(DialectParser* parser, std::string_view text) {
  std::vector<DialectEvent> events;
  EXPECT_TRUE(parser->Push(Marker::kText, text, &events));
  return events;
}

TEST(DialectStreamTest, ContentArrivesWithItsToken) {
  const auto parser = MakeDialectParser(Options(kQwen));
  EXPECT_EQ(PushText(parser.get(), "Hello"),
            (std::vector<DialectEvent>{{.kind = Kind::kContent, .call = 0, .text = "Hello"}}));
  // White space waits for what follows it: before a call it would go.
  EXPECT_EQ(PushText(parser.get(), " \n"), std::vector<DialectEvent>());
  EXPECT_EQ(PushText(parser.get(), "you"),
            (std::vector<DialectEvent>{{.kind = Kind::kContent, .call = 0, .text = " \nyou"}}));
}

TEST(DialectStreamTest, WithoutToolsNothingWaits) {
  DialectOptions options = Options(kDeepseek);
  options.tools.clear();
  const auto parser = MakeDialectParser(options);
  EXPECT_EQ(PushText(parser.get(), "a <｜DSML｜ \n").size(), 1u);
}

TEST(DialectStreamTest, ACharacterIsNeverCut) {
  const auto parser = MakeDialectParser(Options(kMaple));
  EXPECT_TRUE(PushText(parser.get(), "\xE4\xB8").empty());
  EXPECT_EQ(PushText(parser.get(), "\x96!").at(0).text, "世!");
  EXPECT_TRUE(PushText(parser.get(), "\xE4").empty());
  std::vector<DialectEvent> events;
  EXPECT_TRUE(parser->Finish(ReplyEnd::kEndOfTurn, &events));
  EXPECT_EQ(events.at(0).text, "\xEF\xBF\xBD");
}

TEST(DialectStreamTest, ReasoningLiesBetweenItsMarkers) {
  for (const TextFamily family : {kGemma, kQwen, kDeepseek, kInkling, kMaple}) {
    const ReasoningMarkers markers = ReasoningMarkersOf(family);
    const auto parser = MakeDialectParser(Options(family));
    const auto push = [&](Marker marker) {
      std::vector<DialectEvent> events;
      EXPECT_TRUE(parser->Push(marker, Mark(family, marker).text, &events));
    };
    EXPECT_FALSE(parser->in_reasoning());
    push(markers.open);
    EXPECT_TRUE(parser->in_reasoning());
    PushText(parser.get(), "thought\nWell");
    EXPECT_TRUE(parser->in_reasoning());
    push(markers.close);
    EXPECT_FALSE(parser->in_reasoning());
  }
}

TEST(DialectStreamTest, ArgumentsGrowWhileTheyAreWritten) {
  struct Case {
    TextFamily family;
    std::vector<RenderedSpan> begin;
    std::string grows;
    std::string so_far;
  };
  const std::vector<Case> cases = {
      {kGemma,
       {Mark(kGemma, Marker::kCallOpen), Text("call:f{a:"), Mark(kGemma, Marker::kStringDelimiter)},
       "xy",
       "{\"a\":\"xy"},
      {kQwen,
       {Mark(kQwen, Marker::kCallOpen), Text("{\"name\":\"f\",\"arguments\":{\"a\":\"")},
       "xy",
       "{\"a\":\"xy"},
      {kDeepseek,
       {Text("<｜DSML｜tool_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" "
             "string=\"true\">")},
       "x<y",
       "{\"a\":\"x<y"},
      {kInkling,
       {Text("f"), Mark(kInkling, Marker::kInvokeJson), Text("{\"name\":\"f\",\"args\":{\"a\":\"")},
       "xy",
       "{\"a\":\"xy"},
      {kMaple,
       {Mark(kMaple, Marker::kCallOpen), Text("{\"arguments\":{\"a\":\"x\"},\"name\":\"f\"")},
       "}",
       "{\"a\":\"x\"}"}};
  for (const Case& tested : cases) {
    const auto parser = MakeDialectParser(Options(tested.family, /*stream=*/true));
    std::vector<DialectEvent> events;
    for (const RenderedSpan& span : tested.begin) parser->Push(span.marker, span.text, &events);
    parser->Push(Marker::kText, tested.grows, &events);
    Reply reply;
    AppendEvents(events, &reply);
    ASSERT_EQ(reply.calls.size(), 1u) << static_cast<int>(tested.family);
    EXPECT_EQ(reply.calls[0].name, "f");
    EXPECT_EQ(reply.calls[0].arguments, tested.so_far);
    EXPECT_TRUE(parser->in_call());
    EXPECT_EQ(parser->completed_calls(), 0u);
  }
}

TEST(DialectStreamTest, AnUndeclaredToolIsNeverAnnounced) {
  const auto parser = MakeDialectParser(Options(kMaple, /*stream=*/true));
  std::vector<DialectEvent> events;
  parser->Push(Marker::kCallOpen, "<tool_call>", &events);
  parser->Push(Marker::kText, "{\"name\":\"rm\",\"arguments\":{\"a\":1", &events);
  EXPECT_TRUE(events.empty());
}

TEST(DialectStreamTest, AnsweredKeysThatRepeatAreResolvedAtTheEnd) {
  const auto parsed = ParseSpans(Options(kGemma, /*stream=*/true),
                                 {Mark(kGemma, Marker::kCallOpen), Text("call:f{a:1,b:2,a:3}"),
                                  Mark(kGemma, Marker::kCallClose)});
  ASSERT_EQ(parsed.reply.calls.size(), 1u);
  EXPECT_EQ(parsed.reply.calls[0].arguments, "{\"b\":2,\"a\":3}");
}

TEST(DialectReasoningTest, CallsInsideReasoningAreNeverMade) {
  const std::vector<RenderedSpan> maple = {Text("let me "),
                                           Mark(kMaple, Marker::kCallOpen),
                                           Text("{\"name\":\"f\",\"arguments\":{}}"),
                                           Mark(kMaple, Marker::kCallClose),
                                           Mark(kMaple, Marker::kThinkClose),
                                           Text("No.")};
  for (const TextFamily family : {kMaple, kQwen}) {
    DialectOptions options = Options(family);
    options.start = ReplyStart::kReasoning;
    const auto parsed = ParseSpans(options, maple);
    EXPECT_EQ(parsed.reply.calls.size(), 0u);
    EXPECT_EQ(parsed.reply.content, "No.");
    EXPECT_THAT(parsed.reply.reasoning, HasSubstr("<tool_call>"));
  }
  const auto gemma = ParseSpans(
      Options(kGemma),
      {Mark(kGemma, Marker::kChannelOpen), Text("thought\n"), Mark(kGemma, Marker::kCallOpen),
       Text("call:f{}"), Mark(kGemma, Marker::kCallClose), Mark(kGemma, Marker::kChannelClose)});
  EXPECT_EQ(gemma.reply.calls.size(), 0u);
  EXPECT_EQ(gemma.reply.reasoning, "<|tool_call>call:f{}<tool_call|>");
  DialectOptions options = Options(kDeepseek);
  options.start = ReplyStart::kReasoning;
  const std::string block =
      "<｜DSML｜tool_calls><｜DSML｜invoke name=\"f\"></｜DSML｜invoke></｜DSML｜tool_calls>";
  const auto deepseek =
      ParseSpans(options, {Text(block), Mark(kDeepseek, Marker::kThinkClose), Text("No.")});
  EXPECT_EQ(deepseek.reply.calls.size(), 0u);
  EXPECT_EQ(deepseek.reply.reasoning, block);
  const auto inkling = ParseSpans(Options(kInkling), {Mark(kInkling, Marker::kContentThinking),
                                                      Text("f{\"name\":\"f\",\"args\":{}}"),
                                                      Mark(kInkling, Marker::kEndMessage)});
  EXPECT_EQ(inkling.reply.calls.size(), 0u);
}

TEST(DialectReasoningTest, KnowsWhereItIs) {
  const auto parser = MakeDialectParser(Options(kQwen));
  std::vector<DialectEvent> events;
  EXPECT_FALSE(parser->in_reasoning());
  parser->Push(Marker::kThinkOpen, "<think>", &events);
  EXPECT_TRUE(parser->in_reasoning());
  parser->Push(Marker::kThinkClose, "</think>", &events);
  parser->Push(Marker::kCallOpen, "<tool_call>", &events);
  EXPECT_FALSE(parser->in_reasoning());
  EXPECT_TRUE(parser->in_call());
}

TEST(DialectFailureTest, SaysWhatIsWrongAndWhere) {
  const auto parsed =
      ParseSpans(Options(kGemma), {Text("Hi "), Mark(kGemma, Marker::kCallOpen), Text("call:f{a:"),
                                   Mark(kGemma, Marker::kStringDelimiter), Text("é"),
                                   Mark(kGemma, Marker::kStringDelimiter), Text(",b:/tmp}"),
                                   Mark(kGemma, Marker::kCallClose)});
  ASSERT_TRUE(parsed.failure);
  EXPECT_EQ(parsed.failure->ClassName(), "bad_syntax");
  // "Hi " + <|tool_call> + "call:f{a:" + <|"|> + é + <|"|> + ",b:"
  EXPECT_EQ(parsed.failure->position, 3u + 12u + 9u + 5u + 2u + 5u + 3u);
  EXPECT_THAT(parsed.failure->note, HasSubstr("quotes"));
  EXPECT_EQ(parsed.failure->excerpt, "call:f{a:<|\"|>é<|\"|>,b:/tmp}");
  EXPECT_THAT(parsed.failure->Message(), testing::Not(HasSubstr("/tmp")));
}

TEST(DialectFailureTest, ANumberBeyondEveryTypeIsRefused) {
  const auto call = [](const std::string& number) {
    return ParseSpans(Options(kGemma),
                      {Mark(kGemma, Marker::kCallOpen), Text("call:f{a:" + number + "}"),
                       Mark(kGemma, Marker::kCallClose)});
  };
  const auto parsed = call("90E07199254740993");
  ASSERT_TRUE(parsed.failure);
  EXPECT_EQ(parsed.failure->ClassName(), "bad_syntax");
  EXPECT_THAT(parsed.failure->note, HasSubstr("too large"));
  for (const char* number : {"9007199254740993", "1e308", "-1e-999"}) {
    EXPECT_FALSE(call(number).failure) << number;
  }
}

TEST(DialectFailureTest, TheFirstFailureIsFinal) {
  const auto parser = MakeDialectParser(Options(kQwen));
  std::vector<DialectEvent> events;
  EXPECT_FALSE(parser->Push(Marker::kCallClose, "</tool_call>", &events));
  EXPECT_FALSE(parser->Push(Marker::kText, "more", &events));
  EXPECT_FALSE(parser->Finish(ReplyEnd::kEndOfTurn, &events));
  EXPECT_TRUE(events.empty());
  EXPECT_THAT(parser->failure()->note, HasSubstr("not opened"));
}

TEST(DialectFailureTest, TheExcerptIsBoundedAndWhole) {
  std::string value;
  for (int i = 0; i < 2000; ++i) value += "世";
  const auto parsed = ParseSpans(
      Options(kMaple), {Mark(kMaple, Marker::kCallOpen), Text("{\"name\":\"f\",\"x\":\"" + value),
                        Mark(kMaple, Marker::kCallClose)});
  ASSERT_TRUE(parsed.failure);
  EXPECT_LE(parsed.failure->excerpt.size(), 160u);
  Utf8Repair repair;  // finds nothing to repair and nothing left over
  EXPECT_EQ(repair.Push(parsed.failure->excerpt), parsed.failure->excerpt);
}

TEST(DialectFailureTest, ToolResponseWithoutACall) {
  const auto parsed = ParseSpans(Options(kGemma), {Text("Hi")}, ReplyEnd::kToolResponse);
  ASSERT_TRUE(parsed.failure);
  EXPECT_EQ(parsed.failure->ClassName(), "bad_syntax");
  // Without tools the model's call was text, and so is its request for the result.
  DialectOptions options = Options(kGemma);
  options.tools.clear();
  EXPECT_FALSE(ParseSpans(options,
                          {Mark(kGemma, Marker::kCallOpen), Text("call:f{}"),
                           Mark(kGemma, Marker::kCallClose)},
                          ReplyEnd::kToolResponse)
                   .failure);
}

TEST(DialectFailureTest, SyntaxIsJudgedBeforeTheName) {
  const auto parsed =
      ParseSpans(Options(kDeepseek),
                 {Text("<｜DSML｜tool_calls><｜DSML｜invoke name=\"rm\"></｜DSML｜invoke>oops"
                       "</｜DSML｜tool_calls>")});
  ASSERT_TRUE(parsed.failure);
  EXPECT_EQ(parsed.failure->ClassName(), "bad_syntax");
}

TEST(DialectFailureTest, CallsBeforeAFailureStand) {
  const auto parsed = ParseSpans(
      Options(kMaple), {Mark(kMaple, Marker::kCallOpen), Text("{\"name\":\"f\",\"arguments\":{}}"),
                        Mark(kMaple, Marker::kCallClose), Mark(kMaple, Marker::kCallOpen),
                        Text("{"), Mark(kMaple, Marker::kCallClose)});
  EXPECT_TRUE(parsed.failure);
  EXPECT_EQ(parsed.reply.calls.size(), 1u);
}

TEST(DialectBoundsTest, ExactlyTheLimitFits) {
  constexpr size_t kLimit = 262144;
  struct Case {
    TextFamily family;
    std::vector<RenderedSpan> open;
    std::string head;
    std::string tail;
    std::vector<RenderedSpan> close;
  };
  const std::vector<Case> cases = {
      {kGemma,
       {Mark(kGemma, Marker::kCallOpen)},
       "call:f{a:\"",
       "\"}",
       {Mark(kGemma, Marker::kCallClose)}},
      {kMaple,
       {Mark(kMaple, Marker::kCallOpen)},
       "{\"name\":\"f\",\"arguments\":{\"a\":\"",
       "\"}}",
       {Mark(kMaple, Marker::kCallClose)}},
      {kQwen,
       {Mark(kQwen, Marker::kCallOpen)},
       "<function=f>\n<parameter=a>\n",
       "\n</parameter>\n</function>\n",
       {Mark(kQwen, Marker::kCallClose)}},
      {kInkling,
       {Mark(kInkling, Marker::kInvokeJson)},
       "{\"name\":\"f\",\"args\":{\"a\":\"",
       "\"}}",
       {Mark(kInkling, Marker::kEndMessage)}},
      {kDeepseek,
       {Text("<｜DSML｜tool_calls>")},
       "<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" string=\"true\">",
       "</｜DSML｜parameter></｜DSML｜invoke>",
       {Text("</｜DSML｜tool_calls>")}}};
  for (const Case& tested : cases) {
    for (const size_t over : {0, 1}) {
      const size_t fill = kLimit - tested.head.size() - tested.tail.size() + over;
      std::vector<RenderedSpan> spans = tested.open;
      spans.push_back(Text(tested.head + std::string(fill, 'x') + tested.tail));
      spans.insert(spans.end(), tested.close.begin(), tested.close.end());
      for (const size_t piece : {0, 4093}) {
        const auto parsed = ParseSpans(Options(tested.family), spans, ReplyEnd::kEndOfTurn, piece);
        ASSERT_EQ(parsed.failure.has_value(), over == 1) << static_cast<int>(tested.family);
        if (over == 1) {
          EXPECT_EQ(parsed.failure->ClassName(), "oversized");
        }
      }
    }
  }
}

// Inputs that make a careless parser quadratic or recursive: it would not come back, or overflow
// its stack.
TEST(DialectBoundsTest, HostileRepliesCostNoMoreThanOthers) {
  const auto repeat = [](const std::string& text, size_t bytes) {
    std::string all;
    while (all.size() + text.size() <= bytes) all += text;
    return all;
  };
  constexpr size_t kBytes = 260000;
  const std::vector<std::pair<TextFamily, std::vector<RenderedSpan>>> cases = {
      {kQwen,
       {Mark(kQwen, Marker::kCallOpen),
        Text("<function=f>\n" + repeat("<parameter=a>\n</parameter>\n", kBytes)),
        Mark(kQwen, Marker::kCallClose)}},
      {kQwen,
       {Mark(kQwen, Marker::kCallOpen),
        Text("<function=f>\n<parameter=a>" + repeat("</parameter>", kBytes)),
        Mark(kQwen, Marker::kCallClose)}},
      {kQwen, {Text(repeat("<\n", 4 * kBytes))}},
      {kQwen, {Text(repeat("<function=f>\n", kBytes / 2) + repeat("</function>", kBytes / 2))}},
      {kQwen, {Text(repeat("<function=f>\n</function>\nx\n", 4 * kBytes))}},
      {kQwen, {Mark(kQwen, Marker::kCallOpen), Text(repeat(" ", kBytes))}},
      {kGemma, {Mark(kGemma, Marker::kCallOpen), Text("call:f{a:" + repeat("[", kBytes))}},
      {kGemma,
       {Mark(kGemma, Marker::kCallOpen), Text("call:f{" + repeat("a:1,", kBytes) + "}"),
        Mark(kGemma, Marker::kCallClose)}},
      {kMaple, {Mark(kMaple, Marker::kCallOpen), Text("{\"name\":\"" + repeat("\\\"", kBytes))}},
      {kDeepseek, {Text(repeat("<", 4 * kBytes))}},
      {kDeepseek, {Text(repeat("<｜DSML｜invoke name=", 4 * kBytes))}},
      {kDeepseek,
       {Text("<｜DSML｜tool_calls><｜DSML｜invoke name=\"f\">" +
             repeat("<｜DSML｜parameter name=\"a\">", kBytes))}},
      {kDeepseek, {Text("<｜DSML｜tool_calls>" + repeat("</", kBytes))}},
      {kDeepseek, {Text("<｜DSML｜tool_calls><｜DSML｜invoke " + repeat("a", kBytes))}},
      {kInkling, {Text(repeat("a", 4 * kBytes))}}};
  for (const auto& [family, spans] : cases) {
    const auto cut = ParseSpans(Options(family, /*stream=*/true), spans, ReplyEnd::kEndOfTurn, 7);
    const auto whole = ParseSpans(Options(family, /*stream=*/true), spans);
    EXPECT_EQ(cut.failure.has_value(), whole.failure.has_value());
    EXPECT_EQ(Joined(cut.events), Joined(whole.events));
  }
}

TEST(DialectLimitTest, TheTokenLimitDropsOnlyTheOpenCall) {
  const std::string invoke = "<｜DSML｜invoke name=\"f\"></｜DSML｜invoke>";
  const auto parsed = ParseSpans(
      Options(kDeepseek), {Text("A\n\n<｜DSML｜tool_calls>" + invoke + "<｜DSML｜invoke name=\"f")},
      ReplyEnd::kLength);
  EXPECT_FALSE(parsed.failure);
  EXPECT_EQ(parsed.finish_reason, FinishReason::kToolCalls);
  EXPECT_EQ(parsed.reply.calls.size(), 1u);
  EXPECT_EQ(parsed.reply.content, "A");
}

TEST(QwenBareFunctionTest, OnlyTheLastThingOfAReplyIsACall) {
  const std::string call = "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>";
  const auto calls = [&](const std::string& text) {
    const auto parsed = ParseSpans(Options(kQwen), {Text(text)}, ReplyEnd::kEndOfTurn, 1);
    EXPECT_FALSE(parsed.failure);
    if (parsed.reply.calls.empty()) {
      EXPECT_EQ(parsed.reply.content, text);
    }
    return parsed.reply.calls.size();
  };
  EXPECT_EQ(calls(call), 1u);
  EXPECT_EQ(calls("Sure:\n" + call + "\n"), 1u);
  EXPECT_EQ(calls(call + "\nis how"), 0u);
  EXPECT_EQ(calls(call + "\n" + call), 0u);
  EXPECT_EQ(calls("It is " + call), 0u);
  EXPECT_EQ(calls("<function=g>\n</function>"), 0u);
  EXPECT_EQ(calls("<function=f>\n"), 0u);
}

TEST(ParseCommandTest, RefusesRequestsOfAnotherShape) {
  for (const char* request :
       {"[]", "{}", R"({"items": 1})", R"({"items": [1]})", R"({"items": [{"marker": 1}]})",
        R"({"items": [], "start": "middle"})", R"({"items": [], "split": [-1]})",
        R"({"items": [], "tools": [{}]})", R"({"items": [{"repeat": "x", "times": 1e15}]})",
        R"({"items": [{"repeat": "xx", "times": 40000000}]})"}) {
    EXPECT_THROW(ParseRecordedReply(kGemma, Json::parse(request)), Error) << request;
  }
}

TEST(ParseCommandTest, ReadsToolsInTheClientsFormToo) {
  const Json request = Json::parse(R"({
      "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties":
          {"a": {"type": "string"}}}}}],
      "items": [{"marker": "<tool_call>"},
                "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>",
                {"marker": "</tool_call>"}]})");
  const OrderedJson answer = ParseRecordedReply(kQwen, request);
  EXPECT_EQ(answer["tool_calls"][0]["arguments"], R"({"a":"1"})");
  EXPECT_EQ(answer["finish_reason"], "tool_calls");
}

TEST(Utf8RepairTest, ReplacesOnlyWhatCanNeverBecomeAScalar) {
  const std::string text = "a\xC3(\xE2\x82\xF0\x9F\x8C\xB3\xFF\xED\xA0\x80z\xE4\xB8";
  Utf8Repair whole;
  std::string expected = whole.Push(text);
  expected += whole.Flush();
  EXPECT_EQ(expected, "a\uFFFD(\uFFFD🌳\uFFFD\uFFFD\uFFFD\uFFFDz\uFFFD");
  Utf8Repair bytes;
  std::string joined;
  for (const char c : text) joined += bytes.Push({&c, 1});
  joined += bytes.Flush();
  EXPECT_EQ(joined, expected);
}

}  // namespace
}  // namespace mference
