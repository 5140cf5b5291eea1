// Tools and structured output, made certain by constraints: the demo model has never seen any.
#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace mference {
namespace {

using testing_support::HttpReply;
using testing_support::ServerTest;
using testing_support::SseChunks;

class ToolsTest : public ServerTest {
 protected:
  void SetUp() override { Start(); }

  static Json Tool(const std::string& name, const Json& parameters) {
    return {{"type", "function"},
            {"function",
             {{"name", name}, {"description", "A test tool."}, {"parameters", parameters}}}};
  }
  static Json WeatherBody(const Json& choice) {
    Json body = ChatBody("What is the weather in Paris?", 200);
    body["tools"] = {Tool("get_weather", {{"type", "object"},
                                          {"properties",
                                           {{"city", {{"type", "string"}, {"maxLength", 12}}},
                                            {"days", {{"type", "integer"}, {"maximum", 9}}}}},
                                          {"required", {"city", "days"}}}),
                     Tool("stop-now", {{"type", "object"}, {"properties", Json::object()}})};
    body["tool_choice"] = choice;
    return body;
  }
  static Json Named(const char* name) {
    return {{"type", "function"}, {"function", {{"name", name}}}};
  }
};

TEST_F(ToolsTest, ANamedToolIsCalled) {
  const HttpReply reply = Chat(WeatherBody(Named("get_weather")));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json choice = reply.json().at("choices")[0];
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_TRUE(choice.at("message").at("content").is_null());
  const Json& calls = choice.at("message").at("tool_calls");
  ASSERT_GE(calls.size(), 1u);
  EXPECT_EQ(calls[0].at("type"), "function");
  EXPECT_TRUE(calls[0].at("id").get<std::string>().starts_with("call_"));
  EXPECT_EQ(calls[0].at("id").get<std::string>().size(), 29u);
  EXPECT_EQ(calls[0].at("function").at("name"), "get_weather");
  const Json arguments = Json::parse(calls[0].at("function").at("arguments").get<std::string>());
  EXPECT_TRUE(arguments.at("city").is_string());
  EXPECT_TRUE(arguments.at("days").is_number_integer());
  EXPECT_LE(arguments.at("days"), 9);
}

TEST_F(ToolsTest, RequiredCallsOneOfTheTools) {
  Json body = WeatherBody("required");
  body["parallel_tool_calls"] = false;
  const HttpReply reply = Chat(body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json message = reply.json().at("choices")[0].at("message");
  ASSERT_EQ(message.at("tool_calls").size(), 1u);
  const std::string name = message.at("tool_calls")[0].at("function").at("name");
  EXPECT_TRUE(name == "get_weather" || name == "stop-now") << name;
}

// The calls of a stream as a client puts them together.
struct StreamedCalls {
  struct Call {
    std::string name;
    std::string arguments;
    int fragments = 0;
    bool parsed_early = false;  // before the last fragment
  };
  std::vector<Call> calls;
  std::string finish;
};

StreamedCalls Assemble(const HttpReply& stream) {
  StreamedCalls out;
  for (const Json& chunk : SseChunks(stream.body)) {
    const Json& choice = chunk.at("choices")[0];
    if (choice.at("finish_reason").is_string()) out.finish = choice.at("finish_reason");
    if (!choice.at("delta").contains("tool_calls")) continue;
    for (const Json& part : choice.at("delta").at("tool_calls")) {
      const size_t index = part.at("index");
      if (index == out.calls.size()) {
        EXPECT_EQ(part.at("type"), "function");
        EXPECT_TRUE(part.at("id").get<std::string>().starts_with("call_"));
        out.calls.emplace_back().name = part.at("function").at("name");
      } else {
        EXPECT_FALSE(part.contains("id"));
      }
      StreamedCalls::Call& call = out.calls.at(index);
      call.parsed_early = call.parsed_early || Json::accept(call.arguments);
      call.arguments += part.at("function").at("arguments").get<std::string>();
      ++call.fragments;
    }
  }
  return out;
}

TEST_F(ToolsTest, StreamedCallsArriveAsTheyAreWritten) {
  Json body = WeatherBody(Named("get_weather"));
  const Json whole = Chat(body).json().at("choices")[0].at("message").at("tool_calls");
  body["stream"] = true;
  const StreamedCalls streamed = Assemble(Chat(body));
  EXPECT_EQ(streamed.finish, "tool_calls");
  ASSERT_EQ(streamed.calls.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    const StreamedCalls::Call& call = streamed.calls[i];
    EXPECT_EQ(call.name, whole[i].at("function").at("name"));
    EXPECT_EQ(call.arguments, whole[i].at("function").at("arguments"));
    EXPECT_FALSE(call.parsed_early) << call.arguments;
    EXPECT_GT(call.fragments, 4);  // the name, two keys, their values, the last brace
  }
}

TEST_F(ToolsTest, AStreamedCallThatIsCutOffIsNoJson) {
  Json body = WeatherBody(Named("get_weather"));
  body["stream"] = true;
  int begun = 0;
  for (int limit = 1; limit < 24; limit += 2) {
    body["max_tokens"] = limit;
    const StreamedCalls streamed = Assemble(Chat(body));
    if (streamed.finish == "tool_calls") continue;
    EXPECT_EQ(streamed.finish, "length") << limit;
    for (const StreamedCalls::Call& call : streamed.calls) {
      ++begun;
      EXPECT_FALSE(Json::accept(call.arguments)) << call.arguments;
    }
  }
  EXPECT_GT(begun, 0);
}

// Rounds of call and result: what has been computed is never computed again.
TEST_F(ToolsTest, ALoopOfCallsAndResultsKeepsItsPrefix) {
  Json body = WeatherBody(Named("stop-now"));
  body["max_tokens"] = 40;
  body["parallel_tool_calls"] = false;
  int64_t held = 0;  // tokens whose state the last round left
  for (int round = 0; round < 8; ++round) {
    const HttpReply reply = Chat(body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json usage = reply.json().at("usage");
    EXPECT_GE(usage.at("prompt_tokens_details").at("cached_tokens"), held) << round;
    held = usage.at("total_tokens").get<int64_t>() - 1;
    const Json message = reply.json().at("choices")[0].at("message");
    body["messages"].push_back({{"role", "assistant"},
                                {"content", message.at("content")},
                                {"tool_calls", message.at("tool_calls")}});
    for (const Json& call : message.at("tool_calls")) {
      body["messages"].push_back(
          {{"role", "tool"}, {"tool_call_id", call.at("id")}, {"content", "done"}});
    }
  }
}

TEST_F(ToolsTest, ChoicesThatMakeNoSenseAreRefused) {
  EXPECT_EQ(Chat(WeatherBody(Named("missing"))).code(), "invalid_value");
  EXPECT_EQ(Chat(WeatherBody("sometimes")).code(), "invalid_value");
  EXPECT_EQ(Chat(WeatherBody({{"type", "allowed_tools"}})).code(), "unsupported_value");
  Json body = ChatBody("Hi.");
  body["tool_choice"] = "required";
  EXPECT_EQ(Chat(body).code(), "invalid_value");
}

TEST_F(ToolsTest, WithoutToolsCallSyntaxIsText) {
  Json body = WeatherBody("none");
  body["max_tokens"] = 10;
  const Json reply = Chat(body).json();
  EXPECT_FALSE(reply.at("choices")[0].at("message").contains("tool_calls"));
  // The declarations are not in the prompt either.
  Json plain = ChatBody("What is the weather in Paris?", 10);
  EXPECT_EQ(Chat(plain).json().at("usage").at("prompt_tokens"),
            reply.at("usage").at("prompt_tokens"));
}

TEST_F(ToolsTest, JsonObjectsAndSchemas) {
  Json body = ChatBody("Describe a cat.", 120);
  body["response_format"] = {{"type", "json_object"}};
  const HttpReply any = Chat(body);
  ASSERT_EQ(any.status, 200) << any.body;
  EXPECT_TRUE(Json::parse(Content(any)).is_object()) << Content(any);

  body["response_format"] = {
      {"type", "json_schema"},
      {"json_schema",
       {{"name", "cat"},
        {"strict", true},
        {"schema",
         {{"type", "object"},
          {"properties",
           {{"name", {{"type", "string"}, {"maxLength", 8}}},
            {"colour", {{"enum", {"black", "white"}}}},
            {"age", {{"type", "integer"}, {"minimum", 0}, {"maximum", 20}}}}},
          {"required", {"name", "colour", "age"}},
          {"additionalProperties", false}}}}}};
  for (const bool stream : {false, true}) {
    body["stream"] = stream;
    const HttpReply reply = Chat(body);
    std::string text;
    if (stream) {
      for (const Json& chunk : SseChunks(reply.body)) {
        text += chunk.at("choices")[0].at("delta").value("content", "");
      }
    } else {
      text = Content(reply);
    }
    const Json cat = Json::parse(text);
    EXPECT_EQ(cat.size(), 3u) << text;
    EXPECT_TRUE(cat.at("colour") == "black" || cat.at("colour") == "white");
    EXPECT_GE(cat.at("age"), 0);
    EXPECT_LE(cat.at("age"), 20);
  }
}

TEST_F(ToolsTest, SchemasOutsideTheSubsetAreRefusedByName) {
  Json body = ChatBody("Hi.");
  body["response_format"] = {
      {"type", "json_schema"},
      {"json_schema", {{"name", "x"}, {"schema", {{"not", {{"type", "null"}}}}}}}};
  const HttpReply reply = Chat(body);
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.code(), "unsupported_value");
  EXPECT_EQ(reply.json().at("error").at("param"), "response_format.json_schema.schema");
  EXPECT_NE(reply.json().at("error").at("message").get<std::string>().find("not"),
            std::string::npos);
  body["response_format"] = {{"type", "xml"}};
  EXPECT_EQ(Chat(body).code(), "invalid_value");
  body["response_format"] = {{"type", "json_schema"}};
  EXPECT_EQ(Chat(body).code(), "invalid_json");
}

}  // namespace
}  // namespace mference
