// Routes, methods, origins, keys: what is answered before any body is looked at.
#include <gtest/gtest.h>

#include "server/http/origin.h"
#include "server/server_fixture.h"

namespace mference {
namespace {

using testing_support::FormatPost;
using testing_support::FormatRequest;
using testing_support::Get;
using testing_support::HttpClient;
using testing_support::HttpReply;
using testing_support::kChatPath;
using testing_support::Post;
using testing_support::ServerTest;

class RoutesTest : public ServerTest {
 protected:
  void SetUp() override { Start(); }

  HttpReply Ask(const std::string& method, const std::string& path,
                const std::vector<std::string>& headers = {}, const std::string& body = "") {
    HttpClient client(port());
    client.Send(FormatRequest(method, path, headers, body));
    return client.Read();
  }
};

TEST_F(RoutesTest, HealthSaysHowBusyTheServerIs) {
  const HttpReply reply = Get(port(), "/health?x=1");
  ASSERT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.body.starts_with(R"({"status":"ok")")) << reply.body;
  EXPECT_EQ(reply.json().at("model"), "demo");
  EXPECT_EQ(reply.json().at("queue"), (Json{{"active", 0}, {"waiting", 0}, {"limit", 4}}));
}

TEST_F(RoutesTest, ModelsListTheOneModel) {
  for (const char* path : {"/v1/models", "/models"}) {
    const Json list = Get(port(), path).json();
    EXPECT_EQ(list.at("object"), "list");
    ASSERT_EQ(list.at("data").size(), 1u);
    EXPECT_EQ(list.at("data")[0].at("id"), "demo");
    EXPECT_EQ(list.at("data")[0].at("owned_by"), "mference");
    EXPECT_EQ(list.at("data")[0].at("context_length"), kContext);
    EXPECT_EQ(list.at("data")[0].at("max_output_tokens"), kContext - 1);
  }
  EXPECT_EQ(Get(port(), "/v1/models/demo").json().at("id"), "demo");
  const HttpReply missing = Get(port(), "/v1/models/other");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.code(), "model_not_found");
}

TEST_F(RoutesTest, UnknownPathsAndMethods) {
  for (const char* path : {"/", "/nope", "/v1", "/v1/responses", "/v1/messages", "/v1/embeddings",
                           "/v1/models/", "/healthy", "/v1/chat/completions/x", "/v2/models"}) {
    const HttpReply reply = Get(port(), path);
    EXPECT_EQ(reply.status, 404) << path;
    EXPECT_EQ(reply.code(), "not_found") << path;
  }
  const HttpReply post = Ask("POST", "/health", {"Content-Type: application/json"}, "{}");
  EXPECT_EQ(post.status, 405);
  EXPECT_EQ(post.code(), "method_not_allowed");
  EXPECT_EQ(post.headers.at("allow"), "GET, HEAD");
  const HttpReply get = Get(port(), kChatPath);
  EXPECT_EQ(get.status, 405);
  EXPECT_EQ(get.headers.at("allow"), "POST");
  EXPECT_EQ(Ask("DELETE", "/v1/models").status, 405);
  EXPECT_EQ(Ask("OPTIONS", kChatPath).status, 405);
  EXPECT_EQ(Ask("BREW", "/health").status, 405);
}

TEST_F(RoutesTest, HeadIsGetWithoutABody) {
  HttpClient client(port());
  client.Send(FormatRequest("HEAD", "/v1/models") + FormatRequest("GET", "/health"));
  const std::string both = client.ReadUntil("\"uptime_s\"");
  EXPECT_TRUE(both.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_NE(both.find("\r\n\r\nHTTP/1.1 200 OK\r\n"), std::string::npos) << both;
}

TEST_F(RoutesTest, BodiesMustBeJson) {
  EXPECT_EQ(Ask("POST", kChatPath, {"Content-Type: text/plain"}, "{}").code(),
            "unsupported_media_type");
  EXPECT_EQ(Ask("POST", kChatPath, {}, "{}").status, 415);
  EXPECT_EQ(Ask("POST", kChatPath, {"Content-Type: Application/JSON; charset=utf-8"}, "{}").code(),
            "invalid_json");
}

TEST_F(RoutesTest, ErrorsHaveAllFourMembers) {
  const Json error = Get(port(), "/nope").json().at("error");
  EXPECT_TRUE(error.at("message").is_string());
  EXPECT_EQ(error.at("type"), "invalid_request_error");
  EXPECT_TRUE(error.at("param").is_null());
  EXPECT_EQ(error.at("code"), "not_found");
}

TEST_F(RoutesTest, RefusesForeignHosts) {
  const auto status = [this](const std::string& host) {
    return Ask("GET", "/health", {"Host: " + host}).status;
  };
  for (const char* host :
       {"127.0.0.1", "127.0.0.1:8080", "localhost", "LocalHost:99", "[::1]", "[::1]:8080"}) {
    EXPECT_EQ(status(host), 200) << host;
  }
  for (const char* host : {"evil.example", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1",
                           "localhost:8080x", "[::1", "127.0.0.1@evil"}) {
    EXPECT_EQ(status(host), 403) << host;
  }
}

TEST_F(RoutesTest, RefusesForeignOrigins) {
  const auto reply = [this](const std::string& origin) {
    return Ask("GET", "/v1/models", {"Host: 127.0.0.1:8080", "Origin: " + origin});
  };
  EXPECT_EQ(reply("http://127.0.0.1:8080").status, 200);
  for (const char* origin : {"http://evil.example", "null", "http://127.0.0.1:9999",
                             "https://127.0.0.1:8080", "http://localhost:8080"}) {
    EXPECT_EQ(reply(origin).status, 403) << origin;
    EXPECT_EQ(reply(origin).code(), "forbidden_origin") << origin;
  }
  EXPECT_EQ(reply("http://127.0.0.1:8080").headers.count("access-control-allow-origin"), 0u);
}

TEST_F(RoutesTest, AllowsTheOriginsItWasTold) {
  server::ServerOptions options;
  options.cors_origins = {"https://app.example"};
  Start(options);
  const std::string origin = "Origin: https://app.example";
  const HttpReply preflight =
      Ask("OPTIONS", kChatPath,
          {origin, "Access-Control-Request-Method: POST",
           "Access-Control-Request-Headers: authorization, x-stainless-os"});
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization, x-stainless-os");
  EXPECT_EQ(preflight.headers.at("access-control-max-age"), "600");
  EXPECT_EQ(preflight.headers.at("vary"), "Origin");
  for (const char* path : {"/health", "/nope"}) {
    EXPECT_EQ(Ask("GET", path, {origin}).headers.at("access-control-allow-origin"),
              "https://app.example");
  }
  EXPECT_EQ(Ask("GET", "/health", {"Origin: https://app.example.evil"}).status, 403);
  EXPECT_EQ(Ask("OPTIONS", kChatPath, {"Origin: https://other.example"}).status, 403);
  Json body = ChatBody("Hi.", 2);
  body["stream"] = true;
  const HttpReply stream = Post(port(), kChatPath, body, {origin});
  EXPECT_EQ(stream.headers.at("access-control-allow-origin"), "https://app.example");
}

TEST_F(RoutesTest, AsksForTheKey) {
  server::ServerOptions options;
  options.api_key = "sesame";
  Start(options);
  EXPECT_EQ(Get(port(), "/health").status, 200);
  const HttpReply missing = Get(port(), "/v1/models");
  EXPECT_EQ(missing.status, 401);
  EXPECT_EQ(missing.code(), "invalid_api_key");
  for (const char* value :
       {"Bearer sesam", "Bearer sesame2", "Basic sesame", "sesame", "Bearer "}) {
    EXPECT_EQ(Get(port(), "/v1/models", {std::string("Authorization: ") + value}).status, 401)
        << value;
  }
  EXPECT_EQ(Get(port(), "/v1/models", {"Authorization: Bearer sesame"}).status, 200);
  EXPECT_EQ(Get(port(), "/v1/models", {"authorization: bearer sesame"}).status, 200);
  EXPECT_EQ(Get(port(), "/metrics").status, 401);
  // Nobody without the key learns which paths there are.
  EXPECT_EQ(Get(port(), "/nope").status, 401);
}

TEST_F(RoutesTest, IgnoresKeysWhereNoneIsAskedFor) {
  EXPECT_EQ(Get(port(), "/v1/models", {"Authorization: Bearer sk-whatever"}).status, 200);
}

TEST_F(RoutesTest, MetricsAreInPrometheusForm) {
  ASSERT_EQ(Chat(ChatBody("Hi.", 4)).status, 200);
  const HttpReply reply = Get(port(), "/metrics");
  ASSERT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.headers.at("content-type").starts_with("text/plain; version=0.0.4"));
  for (const char* line :
       {"mference_http_requests_total{route=\"/v1/chat/completions\",status=\"200\"} 1\n",
        "mference_completion_tokens_total 4\n", "mference_queue_limit 4\n",
        "mference_time_to_first_token_seconds_count 1\n",
        "# TYPE mference_expert_hits_total counter", "mference_memory_bytes{part=\"weights\"}",
        "mference_memory_budget_bytes 1073741824\n", "process_resident_memory_bytes "}) {
    EXPECT_NE(reply.body.find(line), std::string::npos) << line << "\n" << reply.body;
  }
}

TEST(CorsOriginTest, MustBeExact) {
  for (const char* good : {"http://a", "https://app.example:8443", "tauri://localhost"}) {
    EXPECT_NO_THROW(server::CheckCorsOrigin(good)) << good;
  }
  for (const char* bad : {"*", "", "app.example", "https://", "https://*.example",
                          "https://app.example/", "https://app.example/path"}) {
    EXPECT_THROW(server::CheckCorsOrigin(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace mference
