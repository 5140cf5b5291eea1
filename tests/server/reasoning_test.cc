// How long a model may reason, over HTTP, for a family whose prompt opens the reasoning and one
// whose model does.
#include <gtest/gtest.h>

#include "base/units.h"
#include "engine/golden_model.h"
#include "server/server_fixture.h"

namespace mference {
namespace {

using testing_support::HttpReply;
using testing_support::kChatPath;
using testing_support::Post;
using testing_support::ServerTest;
using testing_support::SseChunks;

int64_t ReasoningTokens(const HttpReply& reply) {
  return reply.json().at("usage").at("completion_tokens_details").at("reasoning_tokens");
}

Json CatSchema() {
  return {{"type", "json_schema"},
          {"json_schema",
           {{"name", "cat"},
            {"schema",
             {{"type", "object"},
              {"properties",
               {{"name", {{"type", "string"}, {"maxLength", 8}}},
                {"age", {{"type", "integer"}, {"minimum", 0}, {"maximum", 20}}}}},
              {"required", {"name", "age"}}}}}}};
}

void ExpectCat(const std::string& text) {
  const Json cat = Json::parse(text);
  EXPECT_EQ(cat.size(), 2u) << text;
  EXPECT_TRUE(cat.at("name").is_string());
  EXPECT_LE(cat.at("age"), 20);
}

// The demo model opens a channel wherever it can, and would never close it.
class OwnReasoningTest : public ServerTest {
 protected:
  void SetUp() override { Start(); }
  static std::string Bias(const char* token) {
    return std::to_string(*DemoModel().text().tokenizer().TokenToId(token));
  }
  static Json Body(int max_tokens = 24) {
    Json body = ChatBody("What is the capital of France?", max_tokens);
    body["reasoning_effort"] = "high";
    body["logit_bias"] = {{Bias("<|channel>"), 100}, {Bias("<channel|>"), -100}};
    return body;
  }
};

TEST_F(OwnReasoningTest, EndsAfterSoManyTokensAndDoesNotBeginAgain) {
  EXPECT_EQ(ReasoningTokens(Chat(Body())), 23);
  for (const int limit : {0, 1, 5}) {
    Json body = Body();
    body["max_reasoning_tokens"] = limit;
    const HttpReply reply = Chat(body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(ReasoningTokens(reply), limit);
    EXPECT_FALSE(Content(reply).empty());
    EXPECT_EQ(Content(reply).find("channel"), std::string::npos);
  }
}

TEST_F(OwnReasoningTest, ALimitThatIsNotReachedChangesNothing) {
  Json body = ChatBody("Tell me a story.", 12);
  const std::string text = Content(Chat(body));
  body["max_reasoning_tokens"] = 1000;
  EXPECT_EQ(Content(Chat(body)), text);
}

TEST_F(OwnReasoningTest, TheFormStillHoldsAfterwards) {
  Json body = Body(200);
  body["max_reasoning_tokens"] = 12;
  body["response_format"] = CatSchema();
  const HttpReply reply = Chat(body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_GE(ReasoningTokens(reply), 12);
  ExpectCat(Content(reply));
}

TEST_F(OwnReasoningTest, ForcedCallsComeAfterIt) {
  Json body = Body(200);
  body["max_reasoning_tokens"] = 6;
  body["tools"] = {{{"type", "function"}, {"function", {{"name", "look"}}}}};
  body["tool_choice"] = "required";
  body["parallel_tool_calls"] = false;
  const HttpReply reply = Chat(body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json choice = reply.json().at("choices")[0];
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_EQ(choice.at("message").at("tool_calls")[0].at("function").at("name"), "look");
}

TEST_F(OwnReasoningTest, LimitsThatAreNoneAreRefusedByName) {
  for (const Json& limit : {Json(-1), Json("12"), Json(1.5), Json(true)}) {
    Json body = Body(4);
    body["max_reasoning_tokens"] = limit;
    const HttpReply reply = Chat(body);
    EXPECT_EQ(reply.status, 400) << limit;
    EXPECT_EQ(reply.json().at("error").at("param"), "max_reasoning_tokens") << limit;
  }
  Json raw = {{"model", "demo"}, {"prompt", "Once"}, {"max_reasoning_tokens", 3}};
  const HttpReply reply = Post(port(), "/v1/completions", raw);
  EXPECT_EQ(reply.code(), "unsupported_value");
  EXPECT_EQ(reply.json().at("error").at("param"), "max_reasoning_tokens");
}

// A tiny random model whose prompt opens a think block.
class OpenedReasoningTest : public testing::Test {
 protected:
  static LoadedModel& TinyModel() {
    static const std::unique_ptr<LoadedModel> model = [] {
      LoadOptions load;
      load.path = testing_support::InstalledSnapshot(testing_support::GoldenPath("qwen3_5_moe") /
                                                     "snapshot");
      load.memory_budget_bytes = kGiB;
      load.context = 512;
      load.threads = 2;
      return LoadedModel::Load(load);
    }();
    return *model;
  }
  void SetUp() override {
    server::ServerOptions options;
    options.port = 0;
    options.model_id = "tiny";
    options.log = [](std::string_view) {};
    server_ = std::make_unique<server::Server>(TinyModel(), options);
  }
  HttpReply Chat(const Json& body) { return Post(server_->port(), kChatPath, body); }
  // Never closes the block by itself.
  static Json Body(int max_tokens = 32) {
    const int32_t close = *TinyModel().text().tokenizer().TokenToId("</think>");
    return {{"model", "tiny"},
            {"temperature", 0},
            {"max_tokens", max_tokens},
            {"logit_bias", {{std::to_string(close), -100}}},
            {"reasoning_effort", "high"},
            {"messages", {{{"role", "user"}, {"content", "Hello there."}}}}};
  }

 private:
  std::unique_ptr<server::Server> server_;
};

TEST_F(OpenedReasoningTest, IsClosedAfterSoManyTokens) {
  const HttpReply unlimited = Chat(Body());
  ASSERT_EQ(unlimited.status, 200) << unlimited.body;
  EXPECT_EQ(ReasoningTokens(unlimited), 32);
  EXPECT_EQ(ServerTest::Content(unlimited), "");
  for (const int limit : {0, 1, 7}) {
    Json body = Body();
    body["max_reasoning_tokens"] = limit;
    const HttpReply reply = Chat(body);
    EXPECT_EQ(ReasoningTokens(reply), limit);
    EXPECT_GT(reply.json().at("usage").at("completion_tokens"), limit + 1);
    EXPECT_FALSE(ServerTest::Content(reply).empty());
  }
  // No reasoning at all is a prompt without an open block.
  Json none = Body();
  none["max_reasoning_tokens"] = 0;
  Json off = Body();
  off["reasoning_effort"] = "none";
  const auto prompt_tokens = [&](const Json& body) {
    return Chat(body).json().at("usage").at("prompt_tokens").get<int64_t>();
  };
  EXPECT_EQ(prompt_tokens(none), prompt_tokens(off));
  Json alias = Body();
  alias.erase("reasoning_effort");
  alias["thinking"] = {{"type", "enabled"}, {"budget_tokens", 3}};
  EXPECT_EQ(ReasoningTokens(Chat(alias)), 3);
}

TEST_F(OpenedReasoningTest, StreamsTheSame) {
  Json body = Body();
  body["max_reasoning_tokens"] = 7;
  const Json message = Chat(body).json().at("choices")[0].at("message");
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  std::string content;
  std::string reasoning;
  const std::vector<Json> chunks = SseChunks(Chat(body).body);
  for (const Json& chunk : chunks) {
    if (chunk.at("choices").empty()) continue;
    const Json& delta = chunk.at("choices")[0].at("delta");
    content += delta.value("content", "");
    reasoning += delta.value("reasoning_content", "");
  }
  EXPECT_EQ(content, message.at("content"));
  EXPECT_EQ(reasoning, message.value("reasoning_content", ""));
  EXPECT_EQ(chunks.back().at("usage").at("completion_tokens_details").at("reasoning_tokens"), 7);
}

TEST_F(OpenedReasoningTest, TheFormStillHoldsAfterwards) {
  Json body = Body(300);
  body["max_reasoning_tokens"] = 9;
  body["response_format"] = CatSchema();
  const HttpReply reply = Chat(body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  // At most the rest of one character more.
  EXPECT_GE(ReasoningTokens(reply), 9);
  EXPECT_LE(ReasoningTokens(reply), 12);
  ExpectCat(ServerTest::Content(reply));
}

}  // namespace
}  // namespace mference
