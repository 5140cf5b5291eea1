// What a client's messages and tools may be, and what is said about the rest (server contract
// A.3.2, A.5.1).
#include "text/framing/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace mference {
namespace {

using jinja::Value;

Value Parse(const std::string& json) {
  return jinja::ParseJsonValue(json, "request", ErrorCode::kMessagesInvalid,
                               jinja::NumberStyle::kAsWritten, jinja::Origin::kData);
}

std::vector<ChatMessage> Messages(const std::string& json) { return ParseMessages(Parse(json)); }

std::vector<ToolDeclaration> Tools(const std::string& json,
                                   TextFamily family = TextFamily::kQwen36) {
  return ParseTools(Parse(json), family);
}

void ExpectRefused(const std::string& json, const std::string& reason, const std::string& param) {
  SCOPED_TRACE(json);
  try {
    Messages(json);
    ADD_FAILURE() << "accepted";
  } catch (const MessagesError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMessagesInvalid);
    EXPECT_EQ(error.reason(), reason) << error.what();
    EXPECT_EQ(error.param(), param) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr(param));
  }
}

void ExpectToolRefused(const std::string& json, const std::string& reason, TextFamily family) {
  SCOPED_TRACE(json);
  try {
    Tools(json, family);
    ADD_FAILURE() << "accepted";
  } catch (const MessagesError& error) {
    EXPECT_EQ(error.reason(), reason) << error.what();
  }
}

const char* const kCall =
    R"({"role": "assistant", "tool_calls": [{"id": "c1", "type": "function",
        "function": {"name": "f", "arguments": "{}"}}]})";

TEST(ParseMessages, AcceptsWhatClientsSend) {
  const auto messages = Messages(R"([
    {"role": "developer", "content": "d"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
     "name": "kim", "cache_control": {}},
    {"role": "assistant", "content": null, "reasoning": "why", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "a.b-c", "arguments": "{\"n\": 1.50}"}},
      {"id": "2", "type": "function", "function": {"name": "g", "arguments": ""}}]},
    {"role": "tool", "tool_call_id": "2", "content": "r2"},
    {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "r1"}]},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}])");
  ASSERT_EQ(messages.size(), 6U);
  EXPECT_EQ(messages[1].content, "ab");
  EXPECT_EQ(messages[1].name, "kim");
  EXPECT_EQ(messages[2].reasoning, "why");
  EXPECT_EQ(messages[2].content, "");
  ASSERT_EQ(messages[2].tool_calls.size(), 2U);
  EXPECT_EQ(messages[2].tool_calls[0].name, "a.b-c");
  EXPECT_EQ(*messages[2].tool_calls[0].arguments.dict().Find("n")->number().literal, "1.50");
  EXPECT_TRUE(messages[2].tool_calls[1].arguments.dict().empty());
  EXPECT_EQ(messages[3].name, "g");  // the function that the result is of
  EXPECT_EQ(messages[4].content, "r1");
  EXPECT_EQ(messages[5].content, "no");
}

TEST(ParseMessages, NamesIgnoredMembers) {
  std::set<std::string> ignored;
  ParseMessages(Parse(R"([{"role": "user", "content": "x", "annotations": [], "zzz": 1}])"), {},
                &ignored);
  EXPECT_THAT(ignored, testing::ElementsAre("annotations", "zzz"));
}

TEST(ParseMessages, AnIdMayReturnOnceItIsAnswered) {
  const std::string call(kCall);
  const std::string result = R"({"role": "tool", "tool_call_id": "c1", "content": "r"})";
  EXPECT_EQ(Messages("[" + call + "," + result + "," + call + "," + result + "]").size(), 4U);
  ExpectRefused("[" + call + "," + call + "]", "invalid_tool_call", "messages[1].tool_calls[0].id");
}

TEST(ParseMessages, RefusesNamingTheMember) {
  ExpectRefused("{}", "invalid_message", "messages");
  ExpectRefused("[]", "invalid_message", "messages");
  ExpectRefused("[1]", "invalid_message", "messages[0]");
  ExpectRefused(R"([{"content": "x"}])", "invalid_message", "messages[0]");
  ExpectRefused(R"([{"role": "critic", "content": "x"}])", "invalid_message", "messages[0].role");
  ExpectRefused(R"([{"role": "function", "content": "x"}])", "invalid_message", "messages[0].role");
  ExpectRefused(R"([{"role": 1, "content": "x"}])", "invalid_message", "messages[0].role");
  ExpectRefused(R"([{"role": "user"}])", "invalid_message", "messages[0].content");
  ExpectRefused(R"([{"role": "user", "content": 5}])", "invalid_message", "messages[0].content");
  ExpectRefused(R"([{"role": "assistant", "content": null}])", "invalid_message",
                "messages[0].content");
  ExpectRefused(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])",
                "unsupported_content", "messages[0].content[0]");
  ExpectRefused(R"([{"role": "user", "content": [{"type": "text", "text": 1}]}])",
                "invalid_message", "messages[0].content[0].text");
  ExpectRefused(R"([{"role": "user", "content": "x", "name": []}])", "invalid_message",
                "messages[0].name");
  ExpectRefused(R"([{"role": "assistant", "content": "", "function_call": {}}])", "invalid_message",
                "messages[0].function_call");
}

TEST(ParseMessages, RefusesMalformedCallsAndResults) {
  const auto call = [](const std::string& body) {
    return R"([{"role": "assistant", "tool_calls": [)" + body + "]}]";
  };
  const std::string at = "messages[0].tool_calls[0]";
  ExpectRefused(call("1"), "invalid_tool_call", at);
  ExpectRefused(call("{}"), "invalid_tool_call", at + ".type");
  ExpectRefused(call(R"({"type": "function"})"), "invalid_tool_call", at + ".id");
  ExpectRefused(call(R"({"type": "function", "id": "1"})"), "invalid_tool_call", at + ".function");
  ExpectRefused(call(R"({"type": "function", "id": "1", "function": {"name": "a b"}})"),
                "invalid_tool_call", at + ".function.name");
  ExpectRefused(call(R"({"type": "function", "id": "1", "function": {"name": "a"}})"),
                "invalid_tool_call", at + ".function.arguments");
  for (const char* arguments : {"[]", "1", "{", "nope"}) {
    ExpectRefused(
        call(R"({"type": "function", "id": "1", "function": {"name": "a", "arguments": ")" +
             std::string(arguments) + "\"}}"),
        "invalid_tool_arguments", at + ".function.arguments");
  }
  ExpectRefused(R"([{"role": "user", "content": "x", "tool_calls": [1]}])", "invalid_tool_call",
                "messages[0].tool_calls");
  ExpectRefused(R"([{"role": "tool", "content": "x", "tool_call_id": "z"}])", "invalid_tool_result",
                "messages[0].tool_call_id");
  ExpectRefused("[" + std::string(kCall) + R"(,{"role": "tool", "tool_call_id": "c1"}])",
                "invalid_tool_result", "messages[1].content");
}

TEST(ParseMessages, IsBounded) {
  ConversationLimits limits;
  limits.max_messages = 1;
  const Value two =
      Parse(R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])");
  EXPECT_THROW(ParseMessages(two, limits), MessagesError);
  const std::string deep = std::string(70, '[') + std::string(70, ']');
  ExpectRefused(R"([{"role": "assistant", "tool_calls": [{"type": "function", "id": "1", "function":
                   {"name": "a", "arguments": "{\"x\": )" +
                    deep + "}\"}}]}]",
                "invalid_tool_arguments", "messages[0].tool_calls[0].function.arguments");
}

TEST(ParseTools, AcceptsDeclarations) {
  const auto tools = Tools(R"([{"type": "function", "function": {"name": "a.b-c", "strict": true}},
    {"type": "function", "function": {"name": "g", "description": "G", "parameters":
      {"type": "object", "properties": {"properties": {"type": "string"}}, "default": {"properties": 1}}}}])");
  ASSERT_EQ(tools.size(), 2U);
  EXPECT_FALSE(tools[0].description);
  EXPECT_EQ(tools[0].parameters.dict().Find("type")->text(), "object");
  EXPECT_TRUE(tools[0].parameters.dict().Find("properties")->dict().empty());
  EXPECT_EQ(*tools[1].description, "G");
  EXPECT_TRUE(Tools("null").empty());
}

TEST(ParseTools, RefusesWhatCannotBeDeclared) {
  const auto function = [](const std::string& body) {
    return R"([{"type": "function", "function": )" + body + "}]";
  };
  const TextFamily qwen = TextFamily::kQwen36;
  ExpectToolRefused("{}", "invalid_tool_schema", qwen);
  ExpectToolRefused("[1]", "unsupported_tool", qwen);
  ExpectToolRefused(R"([{"type": "web_search"}])", "unsupported_tool", qwen);
  ExpectToolRefused(R"([{"type": "function"}])", "unsupported_tool", qwen);
  ExpectToolRefused(function(R"({"name": ""})"), "invalid_tool_name", qwen);
  ExpectToolRefused(function(R"({"name": "a b"})"), "invalid_tool_name", qwen);
  ExpectToolRefused(function("{\"name\": \"" + std::string(65, 'a') + "\"}"), "invalid_tool_name",
                    qwen);
  ExpectToolRefused(function(R"({"name": "a", "parameters": []})"), "invalid_tool_schema", qwen);
  ExpectToolRefused(function(R"({"name": "a", "parameters": {"properties": 1}})"),
                    "invalid_tool_schema", qwen);
  ExpectToolRefused(function(R"({"name": "a", "parameters": {"properties":
                              {"x": {"items": {"properties": []}}}}})"),
                    "invalid_tool_schema", qwen);
  ExpectToolRefused(R"([{"type": "function", "function": {"name": "a"}},
                        {"type": "function", "function": {"name": "a"}}])",
                    "invalid_tool_name", qwen);
  const std::string odd_key =
      function(R"({"name": "a", "parameters": {"properties": {"@t": {}}}})");
  ExpectToolRefused(odd_key, "invalid_tool_schema", TextFamily::kGemma4);
  EXPECT_EQ(Tools(odd_key).size(), 1U);
}

TEST(ParseTools, IsBounded) {
  std::string many = "[";
  for (int i = 0; i < 257; ++i) {
    many += fmt::format(R"({}{{"type": "function", "function": {{"name": "f{}"}}}})",
                        i == 0 ? "" : ",", i);
  }
  ExpectToolRefused(many + "]", "invalid_value", TextFamily::kQwen36);
}

}  // namespace
}  // namespace mference
