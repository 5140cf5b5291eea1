// Who waits, who is refused, who is given up, and what a shutdown leaves behind.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "server/server_fixture.h"

namespace mference {
namespace {

using std::chrono::milliseconds;
using testing_support::FormatPost;
using testing_support::Get;
using testing_support::HttpClient;
using testing_support::HttpReply;
using testing_support::kChatPath;
using testing_support::ServerTest;
using testing_support::SseChunks;
using testing_support::SseEvents;

class QueueTest : public ServerTest {
 protected:
  void SetUp() override {
    server::ServerOptions options;
    options.queue_limit = 1;
    Start(options);
  }

  std::unique_ptr<HttpClient> Ask(const std::string& text, bool stream = false,
                                  int max_tokens = 8) {
    auto client = std::make_unique<HttpClient>(port());
    Json body = ChatBody(text, max_tokens);
    body["stream"] = stream;
    client->Send(FormatPost(kChatPath, body.dump()));
    return client;
  }
  // One request that runs until the gate opens.
  std::unique_ptr<HttpClient> Occupy(bool stream = false, int max_tokens = 8) {
    gate().Shut();
    auto client = Ask("Hello there.", stream, max_tokens);
    gate().WaitUntilHeld();
    return client;
  }
  Json Queue() { return Get(port(), "/health").json().at("queue"); }
  void WaitForWaiting(int waiting) {
    for (int i = 0; i < 30000 && Queue().at("waiting") != waiting; ++i) {
      std::this_thread::sleep_for(milliseconds(2));
    }
    EXPECT_EQ(Queue().at("waiting"), waiting);
  }
};

TEST_F(QueueTest, RefusesWhatDoesNotFitAndAdmitsAgain) {
  const auto running = Occupy();
  auto waiting = Ask("Second.");
  WaitForWaiting(1);
  EXPECT_EQ(Queue(), (Json{{"active", 1}, {"waiting", 1}, {"limit", 1}}));
  const HttpReply refused = Ask("Third.")->Read();
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.code(), "queue_full");
  EXPECT_EQ(refused.json().at("error").at("type"), "rate_limit_error");
  EXPECT_EQ(refused.headers.at("retry-after"), "5");
  // The one that waits leaves: there is room again.
  waiting->Close();
  WaitForWaiting(0);
  const auto fourth = Ask("Fourth.");
  WaitForWaiting(1);
  gate().Open();
  EXPECT_EQ(running->Read().status, 200);
  EXPECT_EQ(fourth->Read().status, 200);
}

TEST_F(QueueTest, BadRequestsTakeNoPlace) {
  const auto running = Occupy();
  const auto waiting = Ask("Second.");
  WaitForWaiting(1);
  Json body = ChatBody("x");
  body["temperature"] = 9;
  EXPECT_EQ(Chat(body).status, 400);
  gate().Open();
  EXPECT_EQ(running->Read().status, 200);
  EXPECT_EQ(waiting->Read().status, 200);
}

TEST_F(QueueTest, FirstComeFirstServed) {
  server::ServerOptions options;
  options.queue_limit = 8;
  Start(options);
  const auto running = Occupy();
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(Ask("Question " + std::to_string(i)));
    WaitForWaiting(i + 1);
  }
  gate().Open();
  std::vector<std::string> ids;
  for (const auto& client : clients) ids.push_back(client->Read().headers.at("x-request-id"));
  std::vector<std::string> started;
  for (const std::string& line : log()) {
    const size_t at = line.find(" started ");
    if (at != std::string::npos) started.push_back(line.substr(line.find("req_"), 20));
  }
  started.erase(started.begin());  // the one that occupied
  EXPECT_EQ(started, ids);
}

TEST_F(QueueTest, AStreamThatWaitsHasItsHeadAndHeartbeats) {
  server::ServerOptions options;
  options.http.heartbeat = milliseconds(10);
  Start(options);
  const auto running = Occupy(true);
  const auto waiting = Ask("Second.", true);
  const std::string early = waiting->ReadUntil(": prefill 0/");
  EXPECT_NE(early.find("HTTP/1.1 200 OK"), std::string::npos);
  EXPECT_NE(early.find("\"role\":\"assistant\""), std::string::npos);
  gate().Open();
  const HttpReply reply = waiting->Read();
  EXPECT_EQ(SseEvents(reply.body).back(), "[DONE]");
}

TEST_F(QueueTest, HealthAnswersWhileTheModelIsBusy) {
  const auto running = Occupy();
  EXPECT_EQ(Get(port(), "/health").status, 200);
  EXPECT_EQ(Get(port(), "/metrics").status, 200);
  gate().Open();
  EXPECT_EQ(running->Read().status, 200);
}

TEST_F(QueueTest, AClientThatLeavesIsNotComputedFor) {
  for (const bool stream : {false, true}) {
    for (const bool reset : {false, true}) {
      const auto running = Occupy(stream, 900);
      if (reset) {
        running->Abort();
      } else {
        running->Close();
      }
      const auto next = Ask("Next.");
      WaitForWaiting(1);
      gate().Open();
      EXPECT_EQ(next->Read().status, 200);
    }
  }
  EXPECT_TRUE(WaitForLog("cancelled in"));
  for (const std::string& line : log()) {
    EXPECT_EQ(line.find("completion=900"), std::string::npos) << line;
  }
}

TEST_F(QueueTest, AClientThatLeavesIsNotComputedForToTheEndOfItsPrompt) {
  std::string story;
  for (int i = 0; i < 60; ++i) story += "Number " + std::to_string(i) + " is a number. ";
  const std::string expected = Content(Ask("Hello there.")->Read());
  gate().Shut();
  const auto leaving = Ask(story);
  gate().WaitUntilHeld();
  leaving->Close();
  EXPECT_TRUE(WaitForLog("its client left"));
  const int before = gate().passes();
  gate().Open();
  EXPECT_TRUE(WaitForLog("cancelled in"));
  // The layer that was being computed was the last, and what was kept is right.
  EXPECT_EQ(gate().passes(), before);
  EXPECT_EQ(Content(Ask("Hello there.")->Read()), expected);
}

TEST_F(QueueTest, PipelinedBytesAreNoDisconnect) {
  const auto running = Occupy();
  running->Send(testing_support::FormatRequest("GET", "/health"));
  running->Send(std::string(200 * 1024, '\r'));  // more than the server takes in
  EXPECT_EQ(Get(port(), "/health").status, 200);
  gate().Open();
  EXPECT_EQ(running->Read().status, 200);
  EXPECT_EQ(running->Read().status, 200);
}

TEST_F(QueueTest, ALeavingClientIsNoticedBehindPipelinedBytes) {
  const auto running = Occupy(false, 900);
  running->Send(std::string(100 * 1024, '\r'));
  running->Close();
  const auto next = Ask("Next.");
  EXPECT_TRUE(WaitForLog("queued position=1"));
  std::this_thread::sleep_for(milliseconds(600));  // it is looked at four times a second
  gate().Open();
  EXPECT_EQ(next->Read().status, 200);
  EXPECT_TRUE(WaitForLog("cancelled in"));
}

TEST_F(QueueTest, ShutdownTellsEverybody) {
  const auto running = Occupy(true, 900);
  const auto waiting = Ask("Second.");
  WaitForWaiting(1);
  std::thread stop([this] { server().Stop(); });
  const HttpReply failed = waiting->Read();
  gate().Open();
  const HttpReply stream = running->Read();
  stop.join();
  EXPECT_EQ(failed.status, 503);
  EXPECT_EQ(failed.code(), "shutting_down");
  EXPECT_TRUE(stream.complete);
  const std::vector<Json> chunks = SseChunks(stream.body);
  ASSERT_FALSE(chunks.empty());
  EXPECT_EQ(chunks.back().at("error").at("code"), "shutting_down");
  EXPECT_EQ(SseEvents(stream.body).back(), "[DONE]");
  EXPECT_THROW(HttpClient refused(port()), std::runtime_error);
  server().Stop();  // once more is harmless
}

TEST_F(QueueTest, ShutdownDoesNotWaitForIdleClients) {
  HttpClient idle(port());
  HttpClient half(port());
  half.Send("GET /hea");
  const auto start = std::chrono::steady_clock::now();
  server().Stop(std::chrono::seconds(60));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_F(QueueTest, LogsHoldNoText) {
  EXPECT_EQ(Ask("The xylophone is secret.")->Read().status, 200);
  EXPECT_TRUE(WaitForLog("completed in"));
  for (const std::string& line : log()) {
    EXPECT_EQ(line.find("xylophone"), std::string::npos) << line;
    EXPECT_TRUE(line.starts_with("[20") && line.ends_with("\n")) << line;
  }
}

}  // namespace
}  // namespace mference
