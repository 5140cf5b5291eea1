// Chat completions of the demo model: whole, streamed, and both the same.
#include <gtest/gtest.h>

#include "base/units.h"
#include "engine/golden_model.h"
#include "server/server_fixture.h"

namespace mference {
namespace {

using testing_support::HttpClient;
using testing_support::HttpReply;
using testing_support::Post;
using testing_support::ServerTest;
using testing_support::SseChunks;
using testing_support::SseEvents;

class ChatTest : public ServerTest {
 protected:
  void SetUp() override { Start(); }

  HttpReply Stream(Json body) {
    body["stream"] = true;
    return Chat(body);
  }
  // The deltas of one member, joined.
  static std::string Joined(const HttpReply& reply, const char* member = "content") {
    std::string text;
    for (const Json& chunk : SseChunks(reply.body)) {
      for (const Json& choice : chunk.at("choices")) {
        const Json& delta = choice.at("delta");
        if (delta.contains(member) && delta[member].is_string()) {
          text += delta[member].get<std::string>();
        }
      }
    }
    return text;
  }
};

TEST_F(ChatTest, AnswersAsAWhole) {
  const HttpReply reply = Chat(ChatBody("Tell me a story.", 24));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.headers.at("content-type"), "application/json");
  EXPECT_TRUE(reply.headers.at("x-request-id").starts_with("req_"));
  const Json body = reply.json();
  EXPECT_TRUE(body.at("id").get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_EQ(body.at("model"), "demo");
  const Json& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("role"), "assistant");
  EXPECT_FALSE(choice.at("message").at("content").get<std::string>().empty());
  EXPECT_TRUE(choice.at("logprobs").is_null());
  const Json& usage = body.at("usage");
  EXPECT_GT(usage.at("prompt_tokens"), 5);
  EXPECT_LE(usage.at("completion_tokens"), 24);
  EXPECT_EQ(usage.at("total_tokens"),
            usage.at("prompt_tokens").get<int>() + usage.at("completion_tokens").get<int>());
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens"), 0);
}

TEST_F(ChatTest, StreamsTheSameTextInOrder) {
  const HttpReply whole = Chat(ChatBody("Tell me a story.", 24));
  Json body = ChatBody("Tell me a story.", 24);
  body["stream_options"] = {{"include_usage", true}};
  const HttpReply stream = Stream(body);
  ASSERT_EQ(stream.status, 200);
  EXPECT_TRUE(stream.complete);
  EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(stream.headers.at("cache-control"), "no-cache");
  EXPECT_EQ(stream.headers.at("x-accel-buffering"), "no");
  EXPECT_EQ(Joined(stream), Content(whole));

  const std::vector<std::string> events = SseEvents(stream.body);
  EXPECT_EQ(events.back(), "[DONE]");
  const std::vector<Json> chunks = SseChunks(stream.body);
  ASSERT_GE(chunks.size(), 4u);
  EXPECT_EQ(chunks[0].at("choices")[0].at("delta").at("role"), "assistant");
  for (const Json& chunk : chunks) {
    EXPECT_EQ(chunk.at("id"), chunks[0].at("id"));
    EXPECT_EQ(chunk.at("created"), chunks[0].at("created"));
    EXPECT_EQ(chunk.at("object"), "chat.completion.chunk");
  }
  const Json& finish = chunks[chunks.size() - 2];
  EXPECT_EQ(finish.at("choices")[0].at("delta"), Json::object());
  EXPECT_EQ(finish.at("choices")[0].at("finish_reason"), "length");
  EXPECT_TRUE(finish.at("usage").is_null());
  EXPECT_EQ(chunks.back().at("choices"), Json::array());
  EXPECT_EQ(chunks.back().at("usage").at("completion_tokens"), 24);
  for (size_t i = 1; i + 2 < chunks.size(); ++i) {
    EXPECT_TRUE(chunks[i].at("choices")[0].at("finish_reason").is_null());
    EXPECT_FALSE(chunks[i].at("choices")[0].at("delta").at("content").get<std::string>().empty());
  }
}

TEST_F(ChatTest, KeepsAConnectionForPipelinedRequests) {
  HttpClient client(port());
  const std::string request =
      testing_support::FormatPost(testing_support::kChatPath, ChatBody("Hi.", 4).dump());
  client.Send(request + testing_support::FormatRequest("GET", "/health") + request);
  EXPECT_EQ(client.Read().status, 200);
  EXPECT_EQ(client.Read().json().at("status"), "ok");
  EXPECT_EQ(client.Read().status, 200);
}

TEST_F(ChatTest, TheSecondTurnComputesOnlyWhatIsNew) {
  Json body = ChatBody("Tell me a story about a cat.", 20);
  const HttpReply first = Chat(body);
  const Json usage = first.json().at("usage");
  const int held = usage.at("prompt_tokens").get<int>() + usage.at("completion_tokens").get<int>();
  body["messages"].push_back({{"role", "assistant"}, {"content", Content(first)}});
  body["messages"].push_back({{"role", "user"}, {"content", "And then?"}});
  const Json second = Chat(body).json();
  EXPECT_GE(second.at("usage").at("prompt_tokens_details").at("cached_tokens"), held - 1);
  EXPECT_GT(second.at("usage").at("prompt_tokens"), held);
}

TEST_F(ChatTest, AnotherConversationInBetweenDisturbsNothing) {
  Json body = ChatBody("Tell me a story about a dog.", 16);
  const std::string alone = Content(Chat(body));
  body["messages"].push_back({{"role", "assistant"}, {"content", alone}});
  body["messages"].push_back({{"role", "user"}, {"content", "Go on."}});
  const std::string expected = Content(Chat(body));

  Start();  // forgets
  Json again = ChatBody("Tell me a story about a dog.", 16);
  EXPECT_EQ(Content(Chat(again)), alone);
  EXPECT_EQ(Chat(ChatBody("What is the capital of France?", 16)).status, 200);
  EXPECT_EQ(Content(Chat(body)), expected);
}

TEST_F(ChatTest, StopStringsEndTheReplyUnseen) {
  const std::string whole = Content(Chat(ChatBody("Tell me a story.", 40)));
  ASSERT_GT(whole.size(), 40u);
  const std::string stop = whole.substr(whole.size() / 2, 7);
  Json body = ChatBody("Tell me a story.", 40);
  body["stop"] = {"never found", stop};
  const HttpReply stopped = Chat(body);
  EXPECT_EQ(Content(stopped), whole.substr(0, whole.find(stop)));
  EXPECT_EQ(stopped.json().at("choices")[0].at("finish_reason"), "stop");
  EXPECT_EQ(Joined(Stream(body)), Content(stopped));
}

TEST_F(ChatTest, SeedsDecide) {
  Json body = ChatBody("Tell me a story.", 24);
  body["temperature"] = 1.5;
  body["top_p"] = 1;
  body["top_k"] = 0;
  body["seed"] = 1;
  // The first reply's prompt may be computed at once, that of later ones is in the prompt cache but
  // for its last token: computed in other steps, which round otherwise.
  Chat(body);
  const std::string one = Content(Chat(body));
  EXPECT_EQ(Content(Chat(body)), one);
  body["seed"] = 2;
  EXPECT_NE(Content(Chat(body)), one);
  body["seed"] = -1;  // its two's complement
  const std::string negative = Content(Chat(body));
  body["seed"] = 18446744073709551615u;
  EXPECT_EQ(Content(Chat(body)), negative);
}

TEST_F(ChatTest, BiasesForceAndBanTokens) {
  Json body = ChatBody("Tell me a story.", 5);
  body["logprobs"] = true;
  const Json first = Chat(body).json().at("choices")[0].at("logprobs").at("content")[0];
  const auto ids = DemoModel().text().tokenizer().Encode("cat", SpecialParsing::kNone);
  body["logit_bias"] = {{std::to_string(ids[0]), 100}};
  const Json forced = Chat(body).json().at("choices")[0].at("logprobs").at("content");
  for (const Json& token : forced) EXPECT_EQ(token.at("token"), forced[0].at("token"));
  // A bias does not show in log-probabilities.
  EXPECT_LT(forced[0].at("logprob"), 0);
  EXPECT_NE(forced[0].at("token"), first.at("token"));
}

TEST_F(ChatTest, LogprobsDescribeEveryShownToken) {
  Json body = ChatBody("Tell me a story.", 12);
  body["repetition_penalty"] = 1;
  body["logprobs"] = true;
  body["top_logprobs"] = 3;
  const HttpReply whole = Chat(body);
  const Json content = whole.json().at("choices")[0].at("logprobs").at("content");
  EXPECT_EQ(content.size(), whole.json().at("usage").at("completion_tokens"));
  std::string bytes;
  for (const Json& token : content) {
    EXPECT_LE(token.at("logprob"), 0);
    ASSERT_EQ(token.at("top_logprobs").size(), 3u);
    // Greedy: the chosen one is the likeliest.
    EXPECT_EQ(token.at("top_logprobs")[0].at("token"), token.at("token"));
    EXPECT_GE(token.at("top_logprobs")[0].at("logprob"), token.at("top_logprobs")[1].at("logprob"));
    for (const Json& byte : token.at("bytes")) bytes += static_cast<char>(byte.get<int>());
  }
  EXPECT_EQ(bytes, Content(whole));

  Json streamed = Json::array();
  for (const Json& chunk : SseChunks(Stream(body).body)) {
    const Json& logprobs = chunk.at("choices")[0].at("logprobs");
    if (logprobs.is_null()) continue;
    for (const Json& token : logprobs.at("content")) streamed.push_back(token);
  }
  // A prompt that is reused is computed in other steps, which round otherwise.
  ASSERT_EQ(streamed.size(), content.size());
  for (size_t i = 0; i < content.size(); ++i) {
    EXPECT_EQ(streamed[i].at("bytes"), content[i].at("bytes"));
    EXPECT_NEAR(streamed[i].at("logprob"), content[i].at("logprob"), 0.05);
    EXPECT_EQ(streamed[i].at("top_logprobs").size(), 3u);
  }
}

TEST_F(ChatTest, IgnoredMembersAreListed) {
  Json body = ChatBody("Hi.", 2);
  body["colour"] = "blue";
  body["user"] = "me";
  body["messages"][0]["mood"] = "good";
  body["chat_template_kwargs"] = {{"tone", "kind"}, {"enable_thinking", false}};
  const HttpReply reply = Chat(body);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("x-mference-ignored"),
            "colour, messages[].mood, chat_template_kwargs.tone");
  EXPECT_TRUE(WaitForLog("ignores the member colour"));
  EXPECT_EQ(Chat(ChatBody("Hi.", 2)).headers.count("x-mference-ignored"), 0u);
}

TEST_F(ChatTest, PromptsThatDoNotFitSayByHowMuch) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "word ";
  for (const bool stream : {false, true}) {
    Json body = ChatBody(text);
    body["stream"] = stream;
    const HttpReply reply = Chat(body);
    EXPECT_EQ(reply.status, 400);
    const Json error = reply.json().at("error");
    EXPECT_EQ(error.at("code"), "context_length_exceeded");
    EXPECT_EQ(error.at("param"), "messages");
    EXPECT_EQ(error.at("n_ctx"), kContext);
    EXPECT_GE(error.at("n_prompt_tokens"), 3000);
    EXPECT_TRUE(error.at("message").get<std::string>().starts_with(
        "This model's maximum context length is 1024 tokens. However, your messages resulted in "));
    EXPECT_EQ(reply.headers.at("x-should-retry"), "false");
  }
}

TEST_F(ChatTest, TheEndOfTheContextIsALength) {
  Json body = ChatBody("Tell me a story.", 100000);
  body["logit_bias"] = Json::object();
  for (const int32_t id : DemoModel().text().stops().end_of_turn) {
    body["logit_bias"][std::to_string(id)] = -100;
  }
  for (const int32_t id : DemoModel().text().stops().end_of_sequence) {
    body["logit_bias"][std::to_string(id)] = -100;
  }
  for (const int32_t id : DemoModel().text().stops().tool_response) {
    body["logit_bias"][std::to_string(id)] = -100;
  }
  const Json reply = Chat(body).json();
  EXPECT_EQ(reply.at("choices")[0].at("finish_reason"), "length");
  EXPECT_EQ(reply.at("usage").at("total_tokens"), kContext);
}

// The tiny random model of another family, whose recurrent state cannot be rewound.
TEST(OtherFamilyTest, TheSecondTurnComputesOnlyWhatIsNew) {
  LoadOptions load;
  load.path =
      testing_support::InstalledSnapshot(testing_support::GoldenPath("qwen3_5_moe") / "snapshot");
  load.memory_budget_bytes = kGiB;
  load.context = 512;
  load.threads = 2;
  const std::unique_ptr<LoadedModel> model = LoadedModel::Load(load);
  server::ServerOptions options;
  options.port = 0;
  options.model_id = "tiny";
  options.log = [](std::string_view) {};
  server::Server server(*model, options);
  Json body = {{"model", "tiny"},
               {"temperature", 0},
               {"max_tokens", 12},
               {"messages", {{{"role", "user"}, {"content", "Hello there."}}}}};
  int held = 0;
  for (int turn = 0; turn < 3; ++turn) {
    const HttpReply reply = Post(server.port(), testing_support::kChatPath, body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json usage = reply.json().at("usage");
    EXPECT_GE(usage.at("prompt_tokens_details").at("cached_tokens"), held) << turn;
    held = usage.at("total_tokens").get<int>() - 1;
    const Json message = reply.json().at("choices")[0].at("message");
    ASSERT_FALSE(message.at("content").get<std::string>().empty());
    body["messages"].push_back({{"role", "assistant"}, {"content", message.at("content")}});
    body["messages"].push_back({{"role", "user"}, {"content", "And then?"}});
  }
}

// ---- text completions

class CompletionTest : public ServerTest {
 protected:
  void SetUp() override { Start(); }
  HttpReply Complete(const Json& body) { return Post(port(), "/v1/completions", body); }
  static Json Body(const Json& prompt, int max_tokens = 12) {
    return {{"model", "demo"}, {"prompt", prompt}, {"temperature", 0}, {"max_tokens", max_tokens}};
  }
  static std::string Text(const HttpReply& reply) {
    return reply.json().at("choices").at(0).at("text");
  }
};

TEST_F(CompletionTest, ContinuesTextAsItIs) {
  const HttpReply reply = Complete(Body("Once upon a time"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json().at("object"), "text_completion");
  EXPECT_TRUE(reply.json().at("id").get<std::string>().starts_with("cmpl-"));
  EXPECT_FALSE(Text(reply).empty());
  EXPECT_EQ(Text(Complete(Body(Json::array({"Once upon a time"})))), Text(reply));
  const auto ids = DemoModel().text().EncodeRaw("Once upon a time");
  EXPECT_EQ(Text(Complete(Body(Json(ids)))), Text(reply));
  // Two dozen tokens unless the request says more.
  Json unlimited = Body("Once upon a time");
  unlimited.erase("max_tokens");
  EXPECT_LE(Complete(unlimited).json().at("usage").at("completion_tokens"), 16);
}

TEST_F(CompletionTest, StreamsTheSameText) {
  Json body = Body("Once upon a time");
  const std::string whole = Text(Complete(body));
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const HttpReply stream = Complete(body);
  std::string text;
  const std::vector<Json> chunks = SseChunks(stream.body);
  for (size_t i = 0; i + 1 < chunks.size(); ++i) {
    text += chunks[i].at("choices")[0].at("text").get<std::string>();
  }
  EXPECT_EQ(text, whole);
  EXPECT_EQ(chunks[chunks.size() - 2].at("choices")[0].at("finish_reason"), "length");
  EXPECT_EQ(chunks.back().at("usage").at("completion_tokens"), 12);
  EXPECT_EQ(SseEvents(stream.body).back(), "[DONE]");
}

TEST_F(CompletionTest, HasItsOwnFormOfLogprobs) {
  Json body = Body("Once upon a time", 6);
  body["logprobs"] = 2;
  const HttpReply reply = Complete(body);
  const Json logprobs = reply.json().at("choices")[0].at("logprobs");
  EXPECT_EQ(logprobs.at("tokens").size(), 6u);
  EXPECT_EQ(logprobs.at("token_logprobs").size(), 6u);
  EXPECT_EQ(logprobs.at("top_logprobs")[0].size(), 2u);
  EXPECT_EQ(logprobs.at("text_offset")[0], 0);
  std::string text;
  for (const Json& token : logprobs.at("tokens")) text += token.get<std::string>();
  EXPECT_EQ(text, Text(reply));
}

TEST_F(CompletionTest, RefusesWhatItCannotDo) {
  const auto code = [this](const char* name, const Json& value) {
    Json body = Body("x");
    body[name] = value;
    return Complete(body).code();
  };
  EXPECT_EQ(code("prompt", {"a", "b"}), "unsupported_value");
  EXPECT_EQ(code("prompt", nullptr), "invalid_json");
  EXPECT_EQ(code("prompt", 7), "invalid_json");
  EXPECT_EQ(code("prompt", {1, 99999999}), "invalid_value");
  EXPECT_EQ(code("prompt", Json::array()), "invalid_value");
  EXPECT_EQ(code("suffix", "end"), "unsupported_value");
  EXPECT_EQ(code("echo", true), "unsupported_value");
  EXPECT_EQ(code("best_of", 3), "unsupported_value");
  EXPECT_EQ(code("logprobs", 6), "invalid_value");
}

}  // namespace
}  // namespace mference
