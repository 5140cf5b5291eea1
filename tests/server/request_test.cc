// Bodies of chat requests: every refusal, what is accepted, and which check comes first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/chat_request.h"
#include "server/api/completion_request.h"
#include "server/http_client.h"

namespace mference::server {
namespace {

ServedModel Model() {
  ServedModel model;
  model.id = "m";
  model.family = TextFamily::kQwen36;
  model.context = 4096;
  model.vocab_size = 1000;
  return model;
}

ChatRequest Parse(const std::string& text) { return ParseChatRequest(ParseBody(text), Model()); }

// A minimal body with more members.
std::string With(const std::string& members) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" +
         (members.empty() ? "" : "," + members) + "}";
}
std::string WithMessages(const std::string& messages) {
  return R"({"model":"m","messages":[)" + messages + "]}";
}

struct Refusal {
  std::string text;
  int status = 400;
  std::string code;
  std::string param;
};

void ExpectRefused(const Refusal& expected) {
  try {
    Parse(expected.text);
    ADD_FAILURE() << "accepted: " << expected.text;
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), expected.status) << expected.text << "\n" << error.what();
    EXPECT_EQ(error.code(), expected.code) << expected.text << "\n" << error.what();
    EXPECT_EQ(error.param(), expected.param) << expected.text << "\n" << error.what();
  }
}

TEST(ChatRequestTest, RefusesWhatIsNoRequest) {
  for (const char* text : {"", "{", "[]", "1", "null", "\"x\"", "{\"model\":}", "{'model':'m'}",
                           "{\"model\":\"m\"}x", "{\"model\":NaN}", "\xff\xfe{}", "{\"a\":1,}"}) {
    ExpectRefused({text, 400, "invalid_json", ""});
  }
  ExpectRefused({"{}", 400, "invalid_json", "model"});
  ExpectRefused({R"({"model":"m"})", 400, "invalid_json", "messages"});
  ExpectRefused({R"({"model":3})", 400, "invalid_json", "model"});
  ExpectRefused({R"({"model":"m","messages":{}})", 400, "invalid_json", "messages"});
  ExpectRefused({R"({"model":"m","messages":[]})", 400, "invalid_message", "messages"});
  ExpectRefused({R"({"model":"other","messages":[]})", 404, "model_not_found", "model"});
}

TEST(ChatRequestTest, RefusesWrongTypesAndValuesByName) {
  const std::vector<std::tuple<const char*, const char*, const char*>> cases = {
      {"temperature", "\"hot\"", "invalid_json"},
      {"temperature", "-0.1", "invalid_value"},
      {"temperature", "2.1", "invalid_value"},
      {"temperature", "1e999", "invalid_json"},
      {"top_p", "0", "invalid_value"},
      {"top_p", "1.01", "invalid_value"},
      {"top_k", "257", "invalid_value"},
      {"top_k", "-2", "invalid_value"},
      {"top_k", "1.5", "invalid_json"},
      {"top_k", "99999999999999999999", "invalid_json"},
      {"min_p", "1.5", "invalid_value"},
      {"repetition_penalty", "0", "invalid_value"},
      {"repeat_last_n", "-1", "invalid_value"},
      {"presence_penalty", "2.5", "invalid_value"},
      {"frequency_penalty", "-2.5", "invalid_value"},
      {"seed", "1.5", "invalid_json"},
      {"seed", "18446744073709551616", "invalid_json"},
      {"seed", "\"1\"", "invalid_json"},
      {"stop", "3", "invalid_json"},
      {"stop", "[3]", "invalid_json"},
      {"stop", R"(["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])",
       "invalid_value"},
      {"max_tokens", "0", "invalid_value"},
      {"max_tokens", "-2", "invalid_value"},
      {"max_completion_tokens", "0", "invalid_value"},
      {"max_completion_tokens", "\"9\"", "invalid_json"},
      {"n", "2", "unsupported_value"},
      {"n", "0", "unsupported_value"},
      {"logprobs", "1", "invalid_json"},
      {"top_logprobs", "21", "invalid_value"},
      {"top_logprobs", "2", "invalid_value"},  // without logprobs
      {"logit_bias", "[]", "invalid_json"},
      {"logit_bias", R"({"cat":1})", "invalid_value"},
      {"logit_bias", R"({"1000":1})", "invalid_value"},
      {"logit_bias", R"({"5":101})", "invalid_value"},
      {"logit_bias", R"({"5":"x"})", "invalid_json"},
      {"stream", "\"yes\"", "invalid_json"},
      {"parallel_tool_calls", "1", "invalid_json"},
      {"tool_choice", "7", "invalid_json"},
      {"tool_choice", "\"maybe\"", "invalid_value"},
      {"tool_choice", "\"required\"", "invalid_value"},
      {"tools", "{}", "invalid_tool_schema"},
      {"response_format", "\"json\"", "invalid_json"},
      {"reasoning_effort", "\"huge\"", "invalid_value"},
      {"max_reasoning_tokens", "-1", "invalid_value"},
      {"max_reasoning_tokens", "2.5", "invalid_json"},
      {"functions", "[{}]", "unsupported_value"},
      {"function_call", "\"auto\"", "unsupported_value"},
      {"audio", R"({"voice":"x"})", "unsupported_value"},
      {"modalities", R"(["text","audio"])", "unsupported_value"},
      {"prediction", R"({"type":"content"})", "unsupported_value"},
      {"web_search_options", R"({"a":1})", "unsupported_value"},
      {"grammar", "\"root ::= x\"", "unsupported_value"},
      {"mirostat", "2", "unsupported_value"},
      {"min_tokens", "5", "unsupported_value"},
      {"best_of", "2", "unsupported_value"},
      {"structured_outputs", R"({"regex":"a+"})", "unsupported_value"},
      {"guided_json", "{\"type\":\"object\"}", "unsupported_value"},
      {"guided_regex", "\"a+\"", "unsupported_value"},
      {"guided_choice", R"(["a","b"])", "unsupported_value"},
      {"guided_grammar", "\"root ::= x\"", "unsupported_value"},
      {"continue_final_message", "true", "unsupported_value"},
      {"add_generation_prompt", "false", "unsupported_value"},
      {"chat_template", "\"{{ messages }}\"", "unsupported_value"},
      {"enable_thinking", "true", "unsupported_value"},
      {"enable_thinking", "false", "unsupported_value"},
  };
  for (const auto& [name, value, code] : cases) {
    ExpectRefused({With(fmt::format("\"{}\":{}", name, value)), 400, code, name});
  }
  ExpectRefused({With(R"("stream_options":{"include_usage":1})"), 400, "invalid_json",
                 "stream_options.include_usage"});
  ExpectRefused(
      {With("\"stop\":\"" + std::string(1025, 'x') + "\""), 400, "invalid_value", "stop"});
  ExpectRefused({With(R"("thinking":{"type":"perhaps"})"), 400, "invalid_value", "thinking.type"});
  ExpectRefused({With(R"("thinking":{"type":"enabled","budget_tokens":-3})"), 400, "invalid_value",
                 "thinking.budget_tokens"});
  ExpectRefused(
      {With(R"("reasoning":{"effort":"huge"})"), 400, "invalid_value", "reasoning.effort"});
  for (const auto& [name, value] : std::vector<std::pair<const char*, const char*>>{
           {"max_tokens", "100"}, {"exclude", "true"}, {"enabled", "true"}}) {
    ExpectRefused({With(fmt::format(R"("reasoning":{{"{}":{}}})", name, value)), 400,
                   "unsupported_value", fmt::format("reasoning.{}", name)});
  }
}

TEST(CompletionRequestTest, RefusesWhatOnlyChatsHave) {
  const auto parse = [](const std::string& member) {
    return ParseCompletionRequest(ParseBody(R"({"model":"m","prompt":"Once")" + member + "}"),
                                  Model());
  };
  for (const auto& [name, value] : std::vector<std::pair<const char*, const char*>>{
           {"messages", R"([{"role":"user","content":"hi"}])"},
           {"response_format", R"({"type":"json_object"})"},
           {"tools", R"([{"type":"function","function":{"name":"f"}}])"},
           {"tool_choice", "\"auto\""},
           {"reasoning_effort", "\"low\""},
           {"reasoning", R"({"effort":"low"})"},
           {"thinking", R"({"type":"enabled"})"},
           {"max_reasoning_tokens", "3"},
           {"chat_template_kwargs", R"({"tone":"kind"})"},
           {"enable_thinking", "true"},
           {"best_of", "2"}}) {
    try {
      parse(fmt::format(R"(,"{}":{})", name, value));
      ADD_FAILURE() << "accepted: " << name;
    } catch (const ApiError& error) {
      EXPECT_STREQ(error.code().c_str(), "unsupported_value") << name;
      EXPECT_EQ(error.param(), name);
    }
  }
  EXPECT_EQ(parse(R"(,"tools":[],"response_format":null,"best_of":1,"x":1)").generation.ignored,
            std::vector<std::string>{"x"});
}

TEST(ChatRequestTest, ChecksInTheOrderOfTheContract) {
  // Each body has all the faults from its own on.
  const std::vector<std::pair<std::string, std::string>> faults = {
      {R"("model":"other")", "model"},
      {R"("n":2)", "n"},
      {R"("top_logprobs":99)", "top_logprobs"},
      {R"("presence_penalty":9)", "presence_penalty"},
      {R"("frequency_penalty":9)", "frequency_penalty"},
      {R"("parallel_tool_calls":3)", "parallel_tool_calls"},
      {R"("temperature":9)", "temperature"},
      {R"("top_p":9)", "top_p"},
      {R"("top_k":999)", "top_k"},
      {R"("repetition_penalty":-1)", "repetition_penalty"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("tool_choice":"x")", "tool_choice"},
      {R"("tools":[{"type":"x"}])", "tools[0].type"},
      {R"("messages":[])", "messages"},
  };
  for (size_t first = 0; first < faults.size(); ++first) {
    std::string body = "{";
    if (first > 0) body += R"("model":"m",)";
    for (size_t i = first; i < faults.size(); ++i) {
      body += faults[i].first + (i + 1 < faults.size() ? "," : "}");
    }
    try {
      Parse(body);
      ADD_FAILURE() << body;
    } catch (const ApiError& error) {
      EXPECT_EQ(error.param(), faults[first].second) << body;
    }
  }
}

TEST(ChatRequestTest, RefusesBadMessages) {
  const std::vector<Refusal> cases = {
      {R"({"role":"function","content":"x"})", 400, "invalid_message", "messages[0].role"},
      {R"({"content":"x"})", 400, "invalid_message", "messages[0]"},
      {R"({"role":"user"})", 400, "invalid_message", "messages[0].content"},
      {R"({"role":"user","content":7})", 400, "invalid_message", "messages[0].content"},
      {R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]})", 400,
       "unsupported_content", "messages[0].content[0]"},
      {R"({"role":"assistant","content":null})", 400, "invalid_message", "messages[0].content"},
      {R"({"role":"user","content":"x"},{"role":"tool","tool_call_id":"a","content":"x"})", 400,
       "invalid_tool_result", "messages[1].tool_call_id"},
      {R"({"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"[1]"}}]})",
       400, "invalid_tool_arguments", "messages[0].tool_calls[0].function.arguments"},
      {R"({"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{"}}]})",
       400, "invalid_tool_arguments", "messages[0].tool_calls[0].function.arguments"},
      {R"({"role":"assistant","tool_calls":[{"id":"","type":"function","function":{"name":"f","arguments":"{}"}}]})",
       400, "invalid_tool_call", "messages[0].tool_calls[0].id"},
      {R"("just text")", 400, "invalid_message", "messages[0]"},
  };
  for (Refusal refusal : cases) {
    refusal.text = WithMessages(refusal.text);
    ExpectRefused(refusal);
  }
}

TEST(ChatRequestTest, RefusesBadTools) {
  const auto tool = [](const std::string& function) {
    return With(R"("tools":[{"type":"function","function":)" + function + "}]");
  };
  ExpectRefused(
      {With(R"("tools":[{"type":"retrieval"}])"), 400, "unsupported_tool", "tools[0].type"});
  ExpectRefused({tool(R"({"name":"a b"})"), 400, "invalid_tool_name", "tools[0].function.name"});
  ExpectRefused({tool(R"({"name":""})"), 400, "invalid_tool_name", "tools[0].function.name"});
  ExpectRefused({tool(R"({"name":"f","parameters":[]})"), 400, "invalid_tool_schema",
                 "tools[0].function.parameters"});
  ExpectRefused({tool(R"({"name":"f","parameters":{"properties":[]}})"), 400, "invalid_tool_schema",
                 "tools[0].function.parameters.properties"});
  std::string many = R"("tools":[)";
  for (int i = 0; i < 257; ++i) {
    many +=
        fmt::format(R"({}{{"type":"function","function":{{"name":"f{}"}}}})", i > 0 ? "," : "", i);
  }
  ExpectRefused({With(many + "]"), 400, "invalid_value", "tools"});
}

TEST(ChatRequestTest, BoundsDepthAndValuesBeforeParsing) {
  ExpectRefused({std::string(100'000, '['), 400, "invalid_json", ""});
  std::string deep = "1";
  for (int i = 0; i < 64; ++i) deep = "{\"a\":" + deep + "}";
  ExpectRefused({With("\"x\":" + deep), 400, "invalid_json", ""});
  std::string wide = "[0";
  for (int i = 0; i < 500'000; ++i) wide += ",0";
  ExpectRefused({With("\"x\":" + wide + "]"), 400, "invalid_json", ""});
  // Brackets in strings are text.
  EXPECT_NO_THROW(Parse(With("\"user\":\"" + std::string(1000, '[') + "\"")));
}

TEST(ChatRequestTest, NullMeansAbsent) {
  std::string members;
  for (const char* name : {"temperature",
                           "top_p",
                           "top_k",
                           "min_p",
                           "seed",
                           "stop",
                           "max_tokens",
                           "n",
                           "logprobs",
                           "top_logprobs",
                           "logit_bias",
                           "stream",
                           "stream_options",
                           "tools",
                           "tool_choice",
                           "response_format",
                           "presence_penalty",
                           "frequency_penalty",
                           "parallel_tool_calls",
                           "reasoning_effort",
                           "functions",
                           "function_call",
                           "chat_template_kwargs"}) {
    members += fmt::format("{}\"{}\":null", members.empty() ? "" : ",", name);
  }
  const ChatRequest request = Parse(With(members));
  EXPECT_FALSE(request.generation.stream);
  EXPECT_EQ(request.generation.max_tokens, 4096);
  EXPECT_TRUE(request.parallel_tool_calls);
  EXPECT_TRUE(request.generation.ignored.empty());
}

TEST(ChatRequestTest, ReadsEveryField) {
  const ChatRequest request = Parse(With(
      R"("temperature":0.5,"top_p":0.75,"top_k":-1,"min_p":0.25,"repetition_penalty":1.5,
         "presence_penalty":-1,"frequency_penalty":2,"seed":-1,"stop":["a","","b"],
         "max_tokens":5,"max_completion_tokens":7,"stream":true,
         "stream_options":{"include_usage":true,"include_obfuscation":false},
         "logprobs":true,"top_logprobs":20,"logit_bias":{"7":-100},
         "reasoning_effort":"high","response_format":{"type":"text"})"));
  const SamplingParams& sampling = request.generation.sampling;
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_p, 0.75f);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.min_p, 0.25f);
  EXPECT_EQ(sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(sampling.presence_penalty, -1);
  EXPECT_EQ(sampling.frequency_penalty, 2);
  EXPECT_EQ(sampling.seed, UINT64_MAX);
  ASSERT_EQ(sampling.logit_bias.size(), 1u);
  EXPECT_EQ(sampling.logit_bias[0].id, 7);
  EXPECT_EQ(sampling.logit_bias[0].bias, -100);
  EXPECT_EQ(request.generation.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.generation.max_tokens, 7);
  EXPECT_TRUE(request.generation.stream);
  EXPECT_TRUE(request.generation.include_usage);
  EXPECT_TRUE(request.generation.logprobs);
  EXPECT_EQ(request.generation.top_logprobs, 20);
  EXPECT_TRUE(request.thinking);
  EXPECT_EQ(request.reasoning_effort, "high");
}

TEST(ChatRequestTest, ThereAreManyWaysToSwitchReasoning) {
  EXPECT_FALSE(Parse(With("")).thinking);
  for (const char* on :
       {R"("reasoning_effort":"low")", R"("reasoning":{"effort":"medium"})",
        R"("thinking":{"type":"enabled"})", R"("chat_template_kwargs":{"enable_thinking":true})"}) {
    EXPECT_TRUE(Parse(With(on)).thinking) << on;
  }
  for (const char* off : {R"("reasoning_effort":"none")", R"("thinking":{"type":"disabled"})",
                          R"("chat_template_kwargs":{"enable_thinking":false})",
                          R"("thinking":{"type":"enabled"},"reasoning_effort":"none")"}) {
    EXPECT_FALSE(Parse(With(off)).thinking) << off;
  }
  for (const char* none : {R"("reasoning_effort":"high","max_reasoning_tokens":0)",
                           R"("thinking":{"type":"enabled","budget_tokens":0})"}) {
    EXPECT_FALSE(Parse(With(none)).thinking) << none;
    EXPECT_EQ(Parse(With(none)).reasoning_effort, "none") << none;
  }
  const ChatRequest extra = Parse(With(R"("chat_template_kwargs":{"tone":"kind"})"));
  ASSERT_EQ(extra.template_variables.size(), 1u);
  EXPECT_EQ(extra.template_variables[0].first, "tone");
}

TEST(ChatRequestTest, NeutralValuesOfUnsupportedMembersPass) {
  EXPECT_NO_THROW(Parse(
      With(R"("functions":[],"mirostat":0,"ignore_eos":false,"suffix":"","modalities":["text"])")));
}

TEST(ChatRequestTest, KeepsIntegersExactAndKeysInOrder) {
  const ChatRequest request = Parse(
      R"({"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"a","type":"function",
          "function":{"name":"f","arguments":"{\"z\":9007199254740993,\"a\":-9223372036854775808}"}}]}],
          "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object",
          "properties":{"z":{"type":"integer","maximum":9007199254740993},"a":{}}}}}]})");
  const OrderedJson arguments = ToJson(request.messages[0].tool_calls[0].arguments);
  EXPECT_EQ(arguments.dump(), R"({"z":9007199254740993,"a":-9223372036854775808})");
  EXPECT_EQ(
      ToJson(request.tools[0].parameters).dump(),
      R"({"type":"object","properties":{"z":{"type":"integer","maximum":9007199254740993},"a":{}}})");
}

TEST(ChatRequestTest, NumbersBeyondAllTypesAreNumbers) {
  const std::string huge(500, '9');
  ExpectRefused({With("\"max_tokens\":" + huge), 400, "invalid_json", "max_tokens"});
  ExpectRefused({With("\"temperature\":-" + huge), 400, "invalid_json", "temperature"});
  const ChatRequest request =
      Parse(With(R"("tools":[{"type":"function","function":{"name":"f","parameters":{"maximum":)" +
                 huge + R"(,"minimum":-)" + huge + "}}}]"));
  const OrderedJson schema = ToJson(request.tools[0].parameters);
  EXPECT_EQ(schema.at("maximum"), std::numeric_limits<double>::max());
  EXPECT_EQ(schema.at("minimum"), std::numeric_limits<double>::lowest());
}

TEST(ChatRequestTest, ListsWhatItIgnores) {
  const ChatRequest request = Parse(With(
      R"("user":"u","metadata":{},"b":1,"stream_options":{"include_obfuscation":true,"every":2},
         "response_format":{"type":"json_schema","more":1,
                            "json_schema":{"name":"x","schema":true,"lax":1}},
         "reasoning":{"effort":"low","summary":"auto"},"thinking":{"type":"enabled","deep":true},
         "a":2)"));
  EXPECT_THAT(request.generation.ignored,
              testing::UnorderedElementsAre(
                  "b", "a", "stream_options.every", "response_format.more",
                  "response_format.json_schema.lax", "reasoning.summary", "thinking.deep"));
}

}  // namespace
}  // namespace mference::server
