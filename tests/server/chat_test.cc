// Chat completions of the demo model: whole, streamed, and both the same.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace mference
