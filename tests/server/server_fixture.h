// A server in this process over the demo model, and ways to hold the model still.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/loaded_model.h"
#include "server/http_client.h"
#include "server/server.h"

namespace mference::testing_support {

inline constexpr const char* kChatPath = "/v1/chat/completions";

// Stops the model at its next request for experts.
class Gate {
 public:
  void Shut();
  void Open();
  // Waits until the model stands at the shut gate.
  void WaitUntilHeld();
  // The model passes here.
  void Pass();
  // How often it has.
  int passes();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool shut_ = false;
  bool held_ = false;
  int passes_ = 0;
};

class ServerTest : public testing::Test {
 protected:
  static constexpr int64_t kContext = 1024;

  void TearDown() override;

  // Starts, or starts again, with these options; address, port and model id are set here.
  void Start(server::ServerOptions options = {});
  uint16_t port() const { return server_->port(); }
  server::Server& server() { return *server_; }

  // The demo model, shared by all tests of the process.
  static LoadedModel& DemoModel();
  static Gate& gate();

  std::vector<std::string> log() const;
  // Waits until a log line holds `text`; false if none does for long.
  bool WaitForLog(const std::string& text) const;

  // A greedy request for up to `max_tokens` tokens.
  static Json ChatBody(const std::string& text, int max_tokens = 16);
  HttpReply Chat(const Json& body) { return Post(port(), kChatPath, body); }

 public:
  static std::string Content(const HttpReply& reply);

 private:
  mutable std::mutex log_mutex_;
  std::vector<std::string> log_;
  std::unique_ptr<server::Server> server_;
};

}  // namespace mference::testing_support
