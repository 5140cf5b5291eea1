// What a stream tells of calls: everything of those that hold, nothing that could be taken for one
// of those that do not.
#include "server/api/chat_sinks.h"

#include <gtest/gtest.h>

#include "server/http_client.h"

namespace mference::server {
namespace {

using Kind = DialectEvent::Kind;

class RecordingExchange final : public Exchange {
 public:
  const std::string& id() const override { return id_; }
  void AddHeader(HttpHeader) override {}
  void Send(HttpResponse) override { ADD_FAILURE() << "a stream is written"; }
  void BeginStream(std::function<std::string()>) override {}
  void Write(std::string bytes) override { body += bytes; }
  void EndStream() override { ended = true; }
  void OnClosed(std::function<void()>) override {}

  std::string body;
  bool ended = false;

 private:
  const std::string id_ = "req";
};

class ChatStreamSinkTest : public testing::Test {
 protected:
  void Add(Kind kind, const std::string& text, size_t call = 0) {
    sink_->Add({{.kind = kind, .call = call, .text = text}}, {});
  }
  std::vector<std::string> Fragments(size_t call = 0) const {
    std::vector<std::string> out;
    for (const Json& chunk : testing_support::SseChunks(exchange_->body)) {
      if (!chunk.contains("choices")) continue;
      const Json& delta = chunk.at("choices")[0].at("delta");
      if (!delta.contains("tool_calls") || delta.at("tool_calls")[0].at("index") != call) continue;
      out.push_back(delta.at("tool_calls")[0].at("function").at("arguments"));
    }
    return out;
  }
  static std::string Joined(const std::vector<std::string>& parts) {
    std::string all;
    for (const std::string& part : parts) all += part;
    return all;
  }

  CallIds ids_;
  const std::shared_ptr<RecordingExchange> exchange_ = std::make_shared<RecordingExchange>();
  const std::unique_ptr<ReplySink> sink_ =
      MakeChatStreamSink(exchange_, {.head = {"chatcmpl-1", 0, "m", "mf-0"},
                                     .include_usage = false,
                                     .logprobs = false,
                                     .tokenizer = nullptr,
                                     .call_ids = &ids_,
                                     .heartbeat = {}});
};

TEST_F(ChatStreamSinkTest, TheLastBraceWaitsForTheCall) {
  sink_->Begin();
  Add(Kind::kCallStarted, "f");
  Add(Kind::kCallArguments, R"({"a":{"b":1})");
  EXPECT_EQ(Joined(Fragments()), R"({"a":{"b":1)");
  Add(Kind::kCallArguments, "}");
  EXPECT_EQ(Joined(Fragments()), R"({"a":{"b":1})");
  Add(Kind::kCallCompleted, R"({"a":{"b":1}})");
  EXPECT_EQ(Joined(Fragments()), R"({"a":{"b":1}})");
  // One more, with nothing in it.
  Add(Kind::kCallStarted, "g", 1);
  Add(Kind::kCallArguments, "{}", 1);
  Add(Kind::kCallCompleted, "{}", 1);
  EXPECT_EQ(Fragments(1), (std::vector<std::string>{"", "{", "}"}));
  sink_->Finish(FinishReason::kToolCalls, {});
  EXPECT_TRUE(exchange_->ended);
}

TEST_F(ChatStreamSinkTest, ACallThatFailsIsNoJsonAndAnErrorFollows) {
  sink_->Begin();
  Add(Kind::kCallStarted, "f");
  Add(Kind::kCallArguments, R"({"a":1})");
  sink_->Fail({500, "malformed_tool_call", "text follows the arguments"});
  EXPECT_FALSE(Json::accept(Joined(Fragments())));
  const std::vector<std::string> events = testing_support::SseEvents(exchange_->body);
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(Json::parse(events[events.size() - 2]).at("error").at("code"), "malformed_tool_call");
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_TRUE(exchange_->ended);
}

TEST_F(ChatStreamSinkTest, LongArgumentsComeInPiecesOfWholeCharacters) {
  std::string text = "{\"a\":\"";
  for (int i = 0; i < 1500; ++i) text += "世";
  sink_->Begin();
  Add(Kind::kCallStarted, "f");
  Add(Kind::kCallArguments, text);
  const std::vector<std::string> fragments = Fragments();
  EXPECT_EQ(Joined(fragments), text);
  ASSERT_GT(fragments.size(), 4u);
  for (const std::string& fragment : fragments) EXPECT_LE(fragment.size(), 1024u);
}

}  // namespace
}  // namespace mference::server
