// Replies with calls, in every family's own syntax: what a model that knows nothing writes under
// the grammar is read back by the family's parser, and the arguments fit the tool's schema.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "constrain/constraint_testing.h"
#include "constrain/schema_validator.h"
#include "text/dialects/dialect.h"

namespace mference {
namespace {

using testing_support::Accepts;
using testing_support::Dice;
using testing_support::IsValid;
using testing_support::MixedVocabulary;
using testing_support::Outcome;
using testing_support::RandomReply;

using Calls = ReplyGrammarOptions::Calls;

constexpr TextFamily kFamilies[] = {TextFamily::kGemma4, TextFamily::kQwen36,
                                    TextFamily::kDeepseekV4, TextFamily::kInkling,
                                    TextFamily::kMaple};

// The mixed vocabulary, a token for every marker byte, and one that ends replies.
std::shared_ptr<const TokenTrie> MarkerTrie() {
  static const auto trie = [] {
    std::vector<std::string> tokens = MixedVocabulary();
    for (int byte = 0xF5; byte <= 0xFF; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    tokens.emplace_back();
    return std::make_shared<const TokenTrie>(tokens);
  }();
  return trie;
}

// Where a reply begins without reasoning, for Maple too: nothing but the budget ends the random
// reasoning of a model that knows nothing.
ReplyStart StartOf(TextFamily family) {
  return family == TextFamily::kMaple ? ReplyStart::kContent : DefaultReplyStart(family, false);
}

TokenId EndId() { return MarkerTrie()->id_limit() - 1; }

std::vector<ConstrainedTool> Tools() {
  const auto tool = [](const char* name, const char* parameters) {
    return ConstrainedTool{name, OrderedJson::parse(parameters)};
  };
  return {
      tool("get_weather",
           R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer",
               "minimum":1,"maximum":14},"unit":{"type":"string","enum":["C","F"]}},
               "required":["city"]})"),
      tool("get", R"({"type":"object","properties":{}})"),
      tool("write-file.v2",
           R"({"type":"object","properties":{"path":{"type":"string","pattern":"^[a-z]+\\.txt$"},
               "mode":{"anyOf":[{"type":"string","maxLength":3},{"type":"integer"},{"type":"null"}]},
               "lines":{"type":"array","items":{"type":"string","minLength":1},"minItems":1},
               "options":{"type":"object","properties":{"@force":{"type":"boolean"},
               "note":{"type":"string"}},"required":["@force"]},"ratio":{"type":"number"}},
               "required":["path","lines","options"]})"),
      tool("tree",
           R"({"$defs":{"n":{"type":"object","properties":{"v":{"enum":["true","x y",3]},
               "kids":{"type":"array","items":{"$ref":"#/$defs/n"}}},"required":["v"]}},
               "type":"object","properties":{"root":{"$ref":"#/$defs/n"},
               "label":{"$ref":"#/$defs/s"}},"required":["root"],"$defs2":1})"),
  };
}

std::vector<ConstrainedTool> ValidTools() {
  std::vector<ConstrainedTool> tools = Tools();
  tools[3].parameters.erase("$defs2");
  tools[3].parameters["$defs"]["s"] = {{"type", "string"}, {"maxLength", 6}};
  return tools;
}

// Reads a reply as the program does. `text` has marker bytes.
Reply Read(TextFamily family, ReplyStart start, const std::string& text,
           const std::vector<ConstrainedTool>& tools, bool ends_in_response = false) {
  DialectOptions options;
  options.family = family;
  options.start = start;
  for (const ConstrainedTool& tool : tools) {
    options.tools.push_back({tool.name, Json::parse(tool.parameters.dump())});
  }
  const auto parser = MakeDialectParser(options);
  std::vector<DialectEvent> events;
  const auto markers = DialectMarkers(family);
  bool ok = true;
  for (const char byte : text) {
    const size_t index = static_cast<uint8_t>(byte) - size_t{kFirstMarkerByte};
    if (static_cast<uint8_t>(byte) >= kFirstMarkerByte && index < markers.size()) {
      ok = ok && parser->Push(markers[index].marker, markers[index].spelling, &events);
    } else {
      ok = ok && parser->Push(Marker::kText, {&byte, 1}, &events);
    }
  }
  ok = ok &&
       parser->Finish(ends_in_response ? ReplyEnd::kToolResponse : ReplyEnd::kEndOfTurn, &events);
  EXPECT_TRUE(ok) << TextFamilyName(family) << ": "
                  << (parser->failure() ? parser->failure()->Message() : "") << "\n"
                  << testing::PrintToString(text);
  Reply reply;
  AppendEvents(events, &reply);
  return reply;
}

void ExpectValid(const ToolCall& call, const std::vector<ConstrainedTool>& tools,
                 const std::string& text) {
  const auto tool = std::find_if(tools.begin(), tools.end(),
                                 [&](const ConstrainedTool& t) { return t.name == call.name; });
  ASSERT_NE(tool, tools.end()) << call.name;
  const OrderedJson arguments = OrderedJson::parse(call.arguments);
  EXPECT_TRUE(IsValid(arguments, tool->parameters, tool->parameters))
      << call.name << " " << call.arguments << "\n"
      << testing::PrintToString(text);
}

TEST(Calls, EveryFamilysParserReadsWhatItsGrammarWrites) {
  const std::vector<ConstrainedTool> tools = ValidTools();
  for (const TextFamily family : kFamilies) {
    ReplyGrammarOptions options;
    options.family = family;
    options.start = StartOf(family);
    options.calls = Calls::kRequired;
    options.tools = tools;
    const auto grammar = CompileReplyGrammar(options);
    std::set<std::string> called;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      GrammarConstraint constraint(grammar, MarkerTrie(), {EndId()});
      Dice dice(seed);
      const Outcome outcome = RandomReply(&constraint, *MarkerTrie(), EndId(), 350, &dice);
      ASSERT_TRUE(outcome.finished) << TextFamilyName(family);
      const Reply reply = Read(family, options.start, outcome.text, tools);
      EXPECT_EQ(reply.content, "");
      ASSERT_FALSE(reply.calls.empty()) << testing::PrintToString(outcome.text);
      for (const ToolCall& call : reply.calls) {
        ExpectValid(call, tools, outcome.text);
        called.insert(call.name);
      }
    }
    EXPECT_EQ(called.size(), tools.size()) << TextFamilyName(family);
  }
}

TEST(Calls, ANamedToolIsTheOnlyOneAndOneCallIsOne) {
  for (const TextFamily family : kFamilies) {
    ReplyGrammarOptions options;
    options.family = family;
    options.start = StartOf(family);
    options.calls = Calls::kRequired;
    options.tools = ValidTools();
    options.only_tool = "get";
    options.parallel_calls = false;
    const auto grammar = CompileReplyGrammar(options);
    for (uint64_t seed = 0; seed < 5; ++seed) {
      GrammarConstraint constraint(grammar, MarkerTrie(), {EndId()});
      Dice dice(seed);
      const Outcome outcome = RandomReply(&constraint, *MarkerTrie(), EndId(), 200, &dice);
      ASSERT_TRUE(outcome.finished);
      EXPECT_TRUE(constraint.complete());
      const Reply reply = Read(family, options.start, outcome.text, options.tools);
      EXPECT_EQ(reply.calls, (std::vector<ToolCall>{{"get", "{}"}}));
    }
  }
}

TEST(Calls, ReasoningIsClosedFirst) {
  for (const TextFamily family : kFamilies) {
    ReplyGrammarOptions options;
    options.family = family;
    options.start = ReplyStart::kReasoning;
    options.calls = Calls::kRequired;
    options.tools = ValidTools();
    const auto grammar = CompileReplyGrammar(options);
    for (uint64_t seed = 0; seed < 5; ++seed) {
      GrammarConstraint constraint(grammar, MarkerTrie(), {EndId()});
      Dice dice(seed);
      const Outcome outcome = RandomReply(&constraint, *MarkerTrie(), EndId(), 300, &dice);
      ASSERT_TRUE(outcome.finished) << TextFamilyName(family);
      const Reply reply = Read(family, options.start, outcome.text, options.tools);
      EXPECT_FALSE(reply.calls.empty());
      EXPECT_EQ(reply.content, "");
    }
  }
}

TEST(Calls, GemmaAndInklingMayReasonOnTheirOwn) {
  for (const TextFamily family : {TextFamily::kGemma4, TextFamily::kInkling}) {
    ReplyGrammarOptions options;
    options.family = family;
    options.start = DefaultReplyStart(family, true);
    options.reasoning = true;
    options.schema = OrderedJson::parse(R"({"type":"object","properties":{"a":{"type":"null"}}})");
    const auto grammar = CompileReplyGrammar(options);
    bool reasoned = false;
    bool answered_at_once = false;
    for (uint64_t seed = 0; seed < 30; ++seed) {
      GrammarConstraint constraint(grammar, MarkerTrie(), {EndId()});
      Dice dice(seed);
      const Outcome outcome = RandomReply(&constraint, *MarkerTrie(), EndId(), 100, &dice);
      ASSERT_TRUE(outcome.finished);
      const Reply reply = Read(family, options.start, outcome.text, {});
      EXPECT_TRUE(IsValid(OrderedJson::parse(reply.content), *options.schema, *options.schema));
      reasoned = reasoned || !reply.reasoning.empty();
      answered_at_once = answered_at_once || reply.reasoning.empty();
    }
    EXPECT_TRUE(reasoned);
    EXPECT_TRUE(answered_at_once);
  }
}

TEST(Calls, ContentOfAFormOrCalls) {
  for (const TextFamily family : kFamilies) {
    ReplyGrammarOptions options;
    options.family = family;
    options.start = StartOf(family);
    options.calls = Calls::kAllowed;
    options.tools = ValidTools();
    options.schema = AnyObjectSchema();
    const auto grammar = CompileReplyGrammar(options);
    size_t calls = 0;
    size_t contents = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      GrammarConstraint constraint(grammar, MarkerTrie(), {EndId()});
      Dice dice(seed);
      const Outcome outcome = RandomReply(&constraint, *MarkerTrie(), EndId(), 300, &dice);
      ASSERT_TRUE(outcome.finished);
      const Reply reply = Read(family, options.start, outcome.text, options.tools);
      if (reply.calls.empty()) {
        ++contents;
        EXPECT_TRUE(OrderedJson::parse(reply.content).is_object());
      } else {
        ++calls;
        EXPECT_EQ(reply.content, "");
      }
    }
    EXPECT_GT(contents, 0u) << TextFamilyName(family);
    EXPECT_GT(calls, 0u) << TextFamilyName(family);
  }
}

TEST(Calls, FreeContentThenCallsThatFit) {
  for (const TextFamily family : kFamilies) {
    ReplyGrammarOptions options;
    options.family = family;
    options.start = StartOf(family);
    options.calls = Calls::kAllowed;
    options.tools = ValidTools();
    const auto grammar = CompileReplyGrammar(options);
    for (uint64_t seed = 0; seed < 40; ++seed) {
      GrammarConstraint constraint(grammar, MarkerTrie(), {EndId()});
      Dice dice(seed);
      const Outcome outcome = RandomReply(&constraint, *MarkerTrie(), EndId(), 250, &dice);
      ASSERT_TRUE(outcome.finished);
      // A bare function that is no call of the grammar's may be read out of Qwen's content.
      if (family == TextFamily::kQwen36 && outcome.text.find("<function=") != std::string::npos) {
        continue;
      }
      for (const ToolCall& call : Read(family, options.start, outcome.text, options.tools).calls) {
        ExpectValid(call, options.tools, outcome.text);
      }
    }
  }
}

TEST(Calls, QwensUntypedValuesNeverReadAsAnotherType) {
  ReplyGrammarOptions options;
  options.family = TextFamily::kQwen36;
  options.calls = Calls::kRequired;
  options.tools = {{"t", OrderedJson::parse(R"({"type":"object","properties":{
      "typed":{"type":"string"},"any":{"anyOf":[{"type":"string"},{"type":"integer"}]}}})")}};
  const auto grammar = CompileReplyGrammar(options);
  const std::string open(1, MarkerByte(TextFamily::kQwen36, Marker::kCallOpen));
  const std::string close(1, MarkerByte(TextFamily::kQwen36, Marker::kCallClose));
  const auto accepts = [&](const std::string& parameters) {
    return Accepts(*grammar, open + "\n<function=t>\n" + parameters + "</function>\n" + close);
  };
  EXPECT_TRUE(accepts(""));
  EXPECT_TRUE(accepts("<parameter=typed>\n{\"a\": 1}\n</parameter>\n"));
  EXPECT_TRUE(accepts("<parameter=typed>\ntrue\n\n</param\n</parameter>\n"));
  EXPECT_FALSE(accepts("<parameter=typed>\na</parameter>b\n</parameter>\n"));
  EXPECT_TRUE(accepts("<parameter=any>\nplain\n</parameter>\n"));
  EXPECT_TRUE(accepts("<parameter=any>\n-12\n</parameter>\n"));
  EXPECT_FALSE(accepts("<parameter=any>\ntrue\n</parameter>\n"));
  EXPECT_FALSE(accepts("<parameter=any>\n[1]\n</parameter>\n"));
  EXPECT_FALSE(accepts("<parameter=any>\n1\n</parameter>\n<parameter=typed>\nx\n</parameter>\n"));
}

TEST(Calls, RefusesWhatCannotBeCalled) {
  ReplyGrammarOptions options;
  options.calls = Calls::kRequired;
  EXPECT_THROW(CompileReplyGrammar(options), Error);  // no tools
  options.tools = ValidTools();
  options.only_tool = "other";
  EXPECT_THROW(CompileReplyGrammar(options), Error);
  options.only_tool = "";
  options.tools.push_back({"no name", OrderedJson::parse("{}")});
  EXPECT_THROW(CompileReplyGrammar(options), Error);
  options.tools = Tools();  // "$defs2" is no keyword
  try {
    CompileReplyGrammar(options);
    FAIL();
  } catch (const SchemaError& error) {
    EXPECT_EQ(error.pointer(), "#/$defs2");
    EXPECT_NE(std::string(error.what()).find("tool tree"), std::string::npos) << error.what();
  }
  options.tools = {{"t", OrderedJson::parse(R"({"type":"string"})")}};
  EXPECT_THROW(CompileReplyGrammar(options), SchemaError);
  options.tools = {{"t", OrderedJson::parse(R"({"properties":{"a<b":{"type":"string"}}})")}};
  EXPECT_NO_THROW(CompileReplyGrammar(options));  // Gemma quotes the key
  options.family = TextFamily::kQwen36;
  EXPECT_THROW(CompileReplyGrammar(options), SchemaError);
}

TEST(Calls, NeedTheFamilysControlTokens) {
  ReplyGrammarOptions options;
  options.calls = Calls::kRequired;
  options.tools = ValidTools();
  const auto trie = std::make_shared<const TokenTrie>(MixedVocabulary());
  try {
    GrammarConstraint(CompileReplyGrammar(options), trie, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTokenizerInvalid);
    EXPECT_NE(std::string(error.what()).find("tool_call"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace mference
