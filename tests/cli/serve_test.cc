// `mference serve` as a process: the ready line, signals, refusals, and life after a kill.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "cli/program_runner.h"
#include "server/http_client.h"

namespace mference {
namespace {

using testing_support::DemoHome;
using testing_support::FormatPost;
using testing_support::HttpClient;
using testing_support::HttpReply;
using testing_support::Post;
using testing_support::ProgramResult;
using testing_support::RunMference;
using testing_support::RunningProgram;
using testing_support::SseEvents;

class ServeTest : public testing::Test {
 protected:
  ServeTest() { DemoHome(); }

  // Starts a server with more arguments and waits until it is ready.
  void Serve(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"serve",    "demo", "--port",    "0",
                                          "--memory", "1GiB", "--context", "1024"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    program_ = std::make_unique<RunningProgram>(arguments);
    ASSERT_TRUE(program_->WaitForOutput("ready at http://127.0.0.1:"));
    ASSERT_TRUE(program_->WaitForOutput("\n"));
    const std::string& out = program_->output();
    const size_t at = out.rfind("127.0.0.1:") + std::string("127.0.0.1:").size();
    port_ = static_cast<uint16_t>(std::stoi(out.substr(at)));
  }
  static Json Body(const std::string& text, int max_tokens) {
    return {{"model", "demo"},
            {"temperature", 0},
            {"max_tokens", max_tokens},
            {"messages", {{{"role", "user"}, {"content", text}}}}};
  }

  std::unique_ptr<RunningProgram> program_;
  uint16_t port_ = 0;
};

TEST_F(ServeTest, SaysWhenItIsReadyAndEndsWithZero) {
  Serve();
  EXPECT_NE(program_->output().find(" model=demo context=1024 prompt_cache=memory\n"),
            std::string::npos)
      << program_->output();
  EXPECT_EQ(Post(port_, "/v1/chat/completions", Body("Hi.", 2)).status, 200);
  program_->Signal(SIGINT);
  EXPECT_EQ(program_->WaitForExit().exit_code, 0);
}

TEST_F(ServeTest, ASignalEndsStreamsInBand) {
  Serve();
  Json body = Body("Tell me a long story.", 900);
  body["stream"] = true;
  for (const char* id : {"1", "50", "106"}) body["logit_bias"][id] = -100;
  body["temperature"] = 1;
  HttpClient client(port_);
  client.Send(FormatPost("/v1/chat/completions", body.dump()));
  client.ReadUntil("\"content\":\"");
  program_->Signal(SIGTERM);
  const HttpReply reply = client.Read();
  EXPECT_TRUE(reply.complete);
  // The reply may have been faster than the signal.
  EXPECT_EQ(SseEvents(reply.body).back(), "[DONE]");
  EXPECT_EQ(program_->WaitForExit().exit_code, 0);
}

TEST_F(ServeTest, RefusesBadArgumentsBeforeItLoads) {
  const std::vector<std::vector<std::string>> cases = {
      {"--port", "65536"},     {"--port", "x"},        {"--bind", "0.0.0.0"},
      {"--queue-limit", "0"},  {"--cors-origin", "*"}, {"--max-body-bytes", "1"},
      {"--log-level", "loud"}, {"--thinking", "hard"}, {"--context", "many"},
      {"--unknown"},           {"--model-id", ""},     {"--prompt-cache-mode", "maybe"},
  };
  for (const std::vector<std::string>& bad : cases) {
    std::vector<std::string> arguments = {"serve", "demo"};
    arguments.insert(arguments.end(), bad.begin(), bad.end());
    EXPECT_EQ(RunMference(arguments).exit_code, 2) << bad[0];
  }
  EXPECT_EQ(RunMference({"serve", "missing-model"}).exit_code, 1);
  EXPECT_EQ(RunMference({"serve", "demo", "--api-key-file", "/nonexistent"}).exit_code, 1);
}

TEST_F(ServeTest, TwoServersCannotShareAPort) {
  Serve();
  const ProgramResult second =
      RunMference({"serve", "demo", "--memory", "1GiB", "--port", std::to_string(port_)});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_NE(second.err.find("cannot listen on 127.0.0.1"), std::string::npos) << second.err;
  // Which shows before a model is loaded.
  const ProgramResult early =
      RunMference({"serve", "missing-model", "--port", std::to_string(port_)});
  EXPECT_NE(early.err.find("cannot listen on 127.0.0.1"), std::string::npos) << early.err;
}

// Whether a whole prompt appears in `cache`; gives up after a minute.
bool WaitForSavedPrompt(const std::filesystem::path& cache) {
  for (int tries = 0; tries < 600; ++tries) {
    for (const auto& entry : std::filesystem::directory_iterator(cache)) {
      if (entry.path().extension() == ".prefix") return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

TEST_F(ServeTest, APromptCacheOutlivesAKill) {
  const std::filesystem::path cache = DemoHome() / "prompt-cache";
  std::string text = "Tell me a story about a cat.";
  for (int i = 0; i < 60; ++i) text += " The cat ran to the dog.";
  const Json body = Body(text, 8);
  Serve({"--prompt-cache", cache.string()});
  const HttpReply first = Post(port_, "/v1/chat/completions", body);
  ASSERT_EQ(first.status, 200);
  ASSERT_TRUE(WaitForSavedPrompt(cache));  // written after the reply, while nobody waits
  EXPECT_EQ(Post(port_, "/v1/chat/completions", Body("Hi.", 1)).status, 200);
  program_->Signal(SIGKILL);
  program_->WaitForExit();

  Serve({"--prompt-cache", cache.string()});
  const Json usage = Post(port_, "/v1/chat/completions", body).json().at("usage");
  EXPECT_GE(usage.at("prompt_tokens_details").at("cached_tokens").get<int>(),
            usage.at("prompt_tokens").get<int>() / 2);
  program_->Signal(SIGTERM);
  EXPECT_EQ(program_->WaitForExit().exit_code, 0);

  Serve({"--prompt-cache", cache.string(), "--prompt-cache-clear"});
  EXPECT_EQ(Post(port_, "/v1/chat/completions", body)
                .json()
                .at("usage")
                .at("prompt_tokens_details")
                .at("cached_tokens"),
            0);
  program_->Signal(SIGTERM);
  EXPECT_EQ(program_->WaitForExit().exit_code, 0);
}

}  // namespace
}  // namespace mference
