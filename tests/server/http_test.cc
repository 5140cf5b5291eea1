// HTTP as bytes: framing, limits while reading, timeouts, connections.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "server/server_fixture.h"

namespace mference {
namespace {

using namespace std::string_literals;

using std::chrono::milliseconds;
using testing_support::FormatPost;
using testing_support::FormatRequest;
using testing_support::Get;
using testing_support::HttpClient;
using testing_support::HttpReply;
using testing_support::kChatPath;
using testing_support::ServerTest;

class HttpTest : public ServerTest {
 protected:
  void SetUp() override { Start(); }

  HttpReply Raw(const std::string& bytes) {
    HttpClient client(port());
    client.Send(bytes);
    return client.Read();
  }
  void ExpectAlive() { EXPECT_EQ(Get(port(), "/health").status, 200); }
};

TEST_F(HttpTest, RefusesWhatIsNoHttp) {
  for (const std::string& bytes : {
           std::string("GET / HTTP/1.1\nHost: localhost\n\n"),
           std::string("GET /health HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n"),
           "GET /health HTTP/1.1\r\nHost: local\0host\r\n\r\n"s,  // a NUL in it
           std::string("GET /health\r\n\r\n"),
           "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"s,
           std::string("GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
           std::string("GET /health HTTP/3.0\r\nHost: localhost\r\n\r\n"),
           std::string("GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n"),
           std::string("GET health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
           std::string("GET /health HTTP/1.1\r\n\r\n"),
           std::string("GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"),
       }) {
    const HttpReply reply = Raw(bytes);
    EXPECT_EQ(reply.status, 400) << bytes;
    EXPECT_EQ(reply.code(), "invalid_http") << bytes;
    EXPECT_EQ(reply.headers.at("connection"), "close");
  }
  ExpectAlive();
}

TEST_F(HttpTest, RefusesBodiesOfDoubtfulLength) {
  const std::string head =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Type: application/json\r\n";
  for (const char* lengths : {
           "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
           "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
           "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
           "Content-Length: 2, 2\r\n\r\n{}",
           "Content-Length: -1\r\n\r\n{}",
           "Content-Length: 2x\r\n\r\n{}",
           "Content-Length: 99999999999999999999999\r\n\r\n{}",
           "Transfer-Encoding: gzip\r\n\r\n{}",
           "Transfer-Encoding: gzip, chunked\r\n\r\n{}",
           "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
           "Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx\r\n0\r\n\r\n",
       }) {
    const HttpReply reply = Raw(head + lengths);
    EXPECT_EQ(reply.status, 400) << lengths;
    EXPECT_EQ(reply.code(), "invalid_http") << lengths;
  }
  ExpectAlive();
}

TEST_F(HttpTest, RefusesWhatOthersCouldReadOtherwise) {
  const std::string old = "POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\n";
  EXPECT_EQ(Raw(old + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n").code(), "invalid_http");
  const HttpReply packed =
      Raw(FormatPost(kChatPath, ChatBody("Hi.", 2).dump(), {"Content-Encoding: gzip"}));
  EXPECT_EQ(packed.status, 415);
  EXPECT_EQ(packed.code(), "unsupported_media_type");
  const auto whole = [this](const std::string& url) {
    return Raw("GET " + url + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  };
  EXPECT_EQ(whole("http://localhost/health").status, 200);
  EXPECT_EQ(whole("http://evil.example/health").code(), "invalid_http");
  EXPECT_EQ(whole("http://localhost:1/health").code(), "invalid_http");
}

TEST_F(HttpTest, TakesChunkedBodiesByteByByte) {
  HttpClient client(port());
  const std::string body = ChatBody("Hi.", 2).dump();
  std::string request =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char c : body) request += "1\r\n" + std::string(1, c) + "\r\n";
  request += "0\r\n\r\n";
  for (const char c : request) ASSERT_TRUE(client.Send(std::string_view(&c, 1)));
  EXPECT_EQ(client.Read().status, 200);
}

TEST_F(HttpTest, SaysContinueToThoseWhoAsk) {
  HttpClient client(port());
  const std::string body = ChatBody("Hi.", 2).dump();
  client.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
      "Content-Type: application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_TRUE(client.ReadUntil("\r\n\r\n").starts_with("HTTP/1.1 100 Continue\r\n\r\n"));
  client.Send(body);
  EXPECT_EQ(client.Read().status, 200);
}

TEST_F(HttpTest, BoundsLinesHeadersAndTheirNumber) {
  const HttpReply line =
      Raw("GET /" + std::string(9000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(line.status, 414);
  EXPECT_EQ(line.code(), "uri_too_long");
  // Known before its end has come.
  EXPECT_EQ(Raw("GET /" + std::string(9000, 'a')).status, 414);
  const HttpReply large =
      Raw("GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(50000, 'a') + "\r\n\r\n");
  EXPECT_EQ(large.status, 431);
  EXPECT_EQ(large.code(), "headers_too_large");
  std::string many = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 100; ++i) many += "X-" + std::to_string(i) + ": y\r\n";
  EXPECT_EQ(Raw(many + "\r\n").status, 431);
  EXPECT_EQ(
      Raw("GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(30000, 'a') + "\r\n\r\n")
          .status,
      200);
}

TEST_F(HttpTest, BoundsBodiesBeforeTheyCome) {
  server::ServerOptions options;
  options.http.body_bytes = 1000;
  Start(options);
  const HttpReply stated = Raw(FormatPost(kChatPath, std::string(1001, ' ')));
  EXPECT_EQ(stated.status, 413);
  EXPECT_EQ(stated.code(), "request_too_large");
  std::string chunked =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 11; ++i) chunked += "64\r\n" + std::string(100, ' ') + "\r\n";
  EXPECT_EQ(Raw(chunked + "0\r\n\r\n").status, 413);
  EXPECT_EQ(Raw(FormatPost(kChatPath, std::string(1000, ' '))).code(), "invalid_json");
}

TEST_F(HttpTest, AnswersBeforeALargeBodyHasBeenSent) {
  HttpClient client(port());
  client.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Type: application/json\r\nContent-Length: 20000000\r\n\r\n");
  const std::string some(1 << 20, ' ');
  for (int i = 0; i < 19; ++i) client.Send(some);
  EXPECT_EQ(client.Read().status, 413);
}

TEST_F(HttpTest, BoundsAllBodiesTogether) {
  server::ServerOptions options;
  options.http.all_bodies_bytes = 1500;
  Start(options);
  HttpClient first(port());
  first.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n");
  first.ReadUntil("100 Continue");
  const HttpReply second = Raw(FormatPost(kChatPath, std::string(1000, ' ')));
  EXPECT_EQ(second.status, 429);
  EXPECT_EQ(second.headers.at("retry-after"), "5");
  first.Send(std::string(1000, ' '));
  EXPECT_EQ(first.Read().status, 400);
  EXPECT_EQ(Raw(FormatPost(kChatPath, std::string(1000, ' '))).code(), "invalid_json");
}

TEST_F(HttpTest, DropsSlowClients) {
  server::ServerOptions options;
  options.http.head_timeout = milliseconds(100);
  options.http.body_timeout = milliseconds(100);
  options.http.idle_timeout = milliseconds(100);
  options.http.linger_timeout = milliseconds(100);
  Start(options);
  HttpClient silent(port());
  EXPECT_TRUE(silent.WaitForClose());
  HttpClient head(port());
  head.Send("GET /health HTTP/1.1\r\nHost: local");
  EXPECT_EQ(head.Read().status, 408);
  EXPECT_TRUE(head.WaitForClose());
  HttpClient body(port());
  body.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{");
  const HttpReply late = body.Read();
  EXPECT_EQ(late.status, 408);
  EXPECT_EQ(late.code(), "timeout");
  HttpClient idle(port());
  idle.Send(FormatRequest("GET", "/health"));
  EXPECT_EQ(idle.Read().status, 200);
  EXPECT_TRUE(idle.WaitForClose());
  // A drop every now and then does not keep a head alive.
  HttpClient dripping(port());
  bool sent = true;
  for (int i = 0; i < 100 && sent; ++i) {
    sent = dripping.Send("G");
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_FALSE(sent && !dripping.WaitForClose(milliseconds(1)));
}

TEST_F(HttpTest, DropsClientsThatDoNotRead) {
  server::ServerOptions options;
  options.http.write_timeout = milliseconds(200);
  Start(options);
  HttpClient client(port());
  // More answers than socket buffers hold.
  const std::string request = FormatRequest("GET", "/metrics");
  std::string many;
  for (int i = 0; i < 500; ++i) many += request;
  bool open = true;
  for (int i = 0; i < 400 && open; ++i) open = client.Send(many);
  EXPECT_FALSE(open);
  ExpectAlive();
}

TEST_F(HttpTest, BoundsConnections) {
  server::ServerOptions options;
  options.http.connections = 3;
  Start(options);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<HttpClient>(port()));
    clients.back()->Send(FormatRequest("GET", "/health"));
    EXPECT_EQ(clients.back()->Read().status, 200);
  }
  HttpClient one_more(port());
  const HttpReply reply = one_more.Read();
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.headers.at("connection"), "close");
  EXPECT_TRUE(one_more.WaitForClose());
  clients.pop_back();
  int status = 0;
  for (int i = 0; i < 1000 && status != 200; ++i) status = Get(port(), "/health").status;
  EXPECT_EQ(status, 200);
}

TEST_F(HttpTest, SpeaksHttp10) {
  const HttpReply plain = Raw("GET /health HTTP/1.0\r\n\r\n");
  EXPECT_EQ(plain.status, 200);
  EXPECT_EQ(plain.headers.at("connection"), "close");
  Json body = ChatBody("Hi.", 3);
  body["stream"] = true;
  const std::string text = body.dump();
  const HttpReply stream = Raw(
      "POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
      std::to_string(text.size()) + "\r\n\r\n" + text);
  EXPECT_EQ(stream.headers.count("transfer-encoding"), 0u);
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n")) << stream.body;
}

TEST_F(HttpTest, ClosesWhereAskedTo) {
  HttpClient client(port());
  client.Send(FormatRequest("GET", "/health", {"Connection: close"}));
  EXPECT_EQ(client.Read().headers.at("connection"), "close");
  EXPECT_TRUE(client.WaitForClose());
}

TEST_F(HttpTest, AnswersClientsThatHaveFinishedSending) {
  HttpClient client(port());
  client.Send(FormatRequest("GET", "/health"));
  client.FinishSending();
  EXPECT_EQ(client.Read().status, 200);
}

}  // namespace
}  // namespace mference
