// Clients that ask for all kinds of things at once, while others leave at any moment, on a model
// most of whose experts are on disk. Whoever stays is told what an idle server would have said.
//
// A run is a counted number of requests, drawn by a seed. Repetitions (--gtest_repeat) draw others
// and go on with the model as the last one left it; CONTRIBUTING.md has the command for half an
// hour.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "base/units.h"
#include "engine/golden_model.h"
#include "server/server_fixture.h"

namespace mference {
namespace {

using std::chrono::milliseconds;
using testing_support::FormatPost;
using testing_support::Get;
using testing_support::HttpClient;
using testing_support::HttpReply;
using testing_support::kChatPath;
using testing_support::SseChunks;

constexpr const char* kCompletionPath = "/v1/completions";
constexpr int kClients = 5;
constexpr int kLongAnswer = 150;  // tokens
#ifdef MFERENCE_SANITIZED
constexpr int kRequestsPerClient = 12;
#else
constexpr int kRequestsPerClient = 40;
#endif

// What a reply says, however it was sent.
struct Answer {
  std::string text;
  std::string calls;  // names and arguments
  std::string finish;

  bool operator==(const Answer&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Answer& answer) {
  return out << "text '" << answer.text << "', calls '" << answer.calls << "', finish '"
             << answer.finish << "'";
}

void Add(const Json& choice, Answer& answer) {
  if (choice.contains("text")) answer.text += choice.at("text").get<std::string>();
  for (const char* part : {"message", "delta"}) {
    if (!choice.contains(part)) continue;
    const Json& message = choice.at(part);
    const auto content = message.find("content");
    if (content != message.end() && content->is_string()) {
      answer.text += content->get<std::string>();
    }
    if (!message.contains("tool_calls")) continue;
    for (const Json& call : message.at("tool_calls")) {
      answer.calls += call.at("function").value("name", "");
      answer.calls += call.at("function").value("arguments", "");
    }
  }
  if (choice.at("finish_reason").is_string()) answer.finish = choice.at("finish_reason");
}

Answer AnswerOf(const HttpReply& reply, bool stream) {
  Answer answer;
  for (const Json& part : stream ? SseChunks(reply.body) : std::vector<Json>{reply.json()}) {
    for (const Json& choice : part.at("choices")) Add(choice, answer);
  }
  return answer;
}

struct Question {
  std::string path;
  Json body;
  Answer expected;
};

class MixedLoadTest : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int64_t kContext = 512;

  // Loaded once per process: repetitions go on with what earlier ones left.
  struct Model {
    std::atomic<int> layers_begun = 0;
    std::unique_ptr<LoadedModel> loaded;
  };
  static Model& ModelOf(const std::string& name) {
    static std::map<std::string, Model> models;
    Model& model = models[name];
    if (model.loaded != nullptr) return model;
    LoadOptions load;
    load.path = testing_support::InstalledSnapshot(
        name == "demo" ? std::filesystem::path(MFERENCE_DEMO_SNAPSHOT)
                       : testing_support::GoldenPath(name) / "snapshot");
    // So little that conversations push each other out of the prompt cache.
    load.memory_budget_bytes = (name == "demo" ? 118 : 70) * kMiB;
    load.context = kContext;
    load.chunk_rows = 64;
    load.threads = 2;
    // An eighth of the experts at most: every token reads some.
    load.slots = {.kind = SlotRequest::Kind::kPerLayer, .per_layer = 2};
    load.prompt_cache.memory = PromptCacheOptions::Memory::kAuto;
    load.on_open = [&model](int, std::span<const int32_t>) { ++model.layers_begun; };
    model.loaded = LoadedModel::Load(load);
    return model;
  }

  void SetUp() override {
    static std::map<std::string, unsigned> runs;
    seed_ = runs[GetParam()]++;
    model_ = &ModelOf(GetParam());
    Start();
  }
  void TearDown() override { server_.reset(); }

  void Start() {
    server_.reset();
    server::ServerOptions options;
    options.port = 0;
    options.model_id = "model";
    options.queue_limit = kClients - 2;
    options.log = [](std::string_view) {};
    server_ = std::make_unique<server::Server>(*model_->loaded, options);
  }

  // Whoever finds the queue full tries again.
  HttpReply Ask(const std::string& path, const Json& body) const {
    while (true) {
      HttpClient client(server_->port());
      client.Send(FormatPost(path, body.dump()));
      // Long, as a soak may share its machine with others.
      HttpReply reply = client.Read(std::chrono::minutes(10));
      if (reply.status != 429) return reply;
      std::this_thread::sleep_for(milliseconds(3));
    }
  }

  void AskAndCompare(const Question& question, bool stream) const {
    Json body = question.body;
    body["stream"] = stream;
    const HttpReply reply = Ask(question.path, body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    ASSERT_TRUE(reply.complete) << body;
    EXPECT_EQ(AnswerOf(reply, stream), question.expected) << "seed " << seed_ << ", " << body;
  }

  // ---- What is asked.

  static Json Body(int max_tokens) {
    return {{"model", "model"},
            {"temperature", 0},
            {"repetition_penalty", 1},
            {"max_tokens", max_tokens}};
  }
  static Json ChatBody(const Json& messages, int max_tokens = 12) {
    Json body = Body(max_tokens);
    body["messages"] = messages;
    return body;
  }
  static Json User(const std::string& text) { return {{"role", "user"}, {"content", text}}; }
  static Json Say(const std::string& text) { return Json::array({User(text)}); }

  // Asks the idle server. A prompt that is partly reused is computed in other steps, which round
  // otherwise, so free text is asked for only as far as no token was nearly another.
  void AddFree(const std::string& path, Json body) {
    constexpr double kClear = 0.2;  // log-probabilities differ by some hundredths
    const bool chat = path == kChatPath;
    body["logprobs"] = chat ? Json(true) : Json(2);
    if (chat) body["top_logprobs"] = 2;
    const HttpReply reply = Ask(path, body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json logprobs = reply.json().at("choices")[0].at("logprobs");
    int clear = 0;
    for (const Json& token : logprobs.at(chat ? "content" : "top_logprobs")) {
      std::vector<double> values;
      for (const Json& value : chat ? token.at("top_logprobs") : token) {
        values.push_back(chat ? value.at("logprob").get<double>() : value.get<double>());
      }
      // Completions list alternatives by their text, which two tokens may share.
      if (values.size() < 2 || std::abs(values[0] - values[1]) < kClear) break;
      ++clear;
    }
    if (clear == 0) return;
    body.erase("logprobs");
    body.erase("top_logprobs");
    body["max_tokens"] = clear;
    AddForced(path, body);
  }
  // The same for what can end only one way.
  void AddForced(const std::string& path, const Json& body) {
    const HttpReply reply = Ask(path, body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    questions_.push_back({path, body, AnswerOf(reply, false)});
  }

  // From the middle of `text`, at least 3 bytes and whole characters.
  static std::string Piece(const std::string& text) {
    const auto next_character = [&](size_t at) {
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
      return at;
    };
    const size_t begin = next_character(text.size() / 2);
    return text.substr(begin, next_character(std::min(begin + 3, text.size())) - begin);
  }

  void AddStopped(Json body) {
    const Answer whole = AnswerOf(Ask(kChatPath, body), false);
    ASSERT_GT(whole.text.size(), 4u);
    const std::string piece = Piece(whole.text);
    if (piece.empty()) return;
    body["stop"] = {"never found", piece};
    AddForced(kChatPath, body);
  }

  void MakeQuestions() {
    AddFree(kChatPath, ChatBody(Say("Tell me a story.")));
    AddFree(kChatPath, ChatBody(Say("What is the capital of France?")));
    AddFree(kCompletionPath, [] {
      Json body = Body(12);
      body["prompt"] = "Once upon a time";
      return body;
    }());
    // Conversations that share a long beginning, and one that goes on.
    std::string system = "You know these numbers:";
    for (int i = 0; i < 40; ++i) system += " " + std::to_string(i * 7);
    const Json shared = {{"role", "system"}, {"content", system}};
    for (const char* text : {"Hello there.", "Which of them is the largest?"}) {
      AddFree(kChatPath, ChatBody({shared, User(text)}));
    }
    AddFree(kChatPath, ChatBody({shared,
                                 User("Hello there."),
                                 {{"role", "assistant"}, {"content", "Hello! How are you?"}},
                                 User("And then?")}));
    // More than one chunk, and nothing shared.
    std::string story;
    for (int i = 0; i < 30; ++i) story += "The man walked on. ";
    AddFree(kChatPath, ChatBody(Say(story)));

    // Tools need a chat template, which only the demo model has.
    if (GetParam() == std::string("demo")) AddToolCall();
    AddSchema();
    for (size_t i = 0; i < 2; ++i) {
      if (questions_[i].expected.text.size() > 4) AddStopped(questions_[i].body);
    }
  }

  void AddToolCall() {
    Json tool = ChatBody(Say("Stop it."), 60);
    tool["tools"] = {{{"type", "function"},
                      {"function",
                       {{"name", "stop-now"},
                        {"parameters",
                         {{"type", "object"},
                          {"properties", {{"how", {{"enum", {"at once"}}}}}},
                          {"required", {"how"}},
                          {"additionalProperties", false}}}}}}};
    tool["tool_choice"] = {{"type", "function"}, {"function", {{"name", "stop-now"}}}};
    tool["parallel_tool_calls"] = false;
    AddForced(kChatPath, tool);
  }

  void AddSchema() {
    Json schema = ChatBody(Say("Describe a cat."), 60);
    schema["response_format"] = {
        {"type", "json_schema"},
        {"json_schema",
         {{"name", "cat"},
          {"schema",
           {{"type", "object"},
            {"properties", {{"colour", {{"enum", {"black"}}}}, {"legs", {{"const", 4}}}}},
            {"required", {"colour", "legs"}},
            {"additionalProperties", false}}}}}};
    AddForced(kChatPath, schema);
  }

  // ---- Those who leave. They ask for long answers, and the server to close after them, so that
  // one that is refused for want of room ends too.

  std::unique_ptr<HttpClient> Send(const Question& question, bool stream) const {
    auto client = std::make_unique<HttpClient>(server_->port());
    Json body = question.body;
    body["stream"] = stream;
    body["max_tokens"] = kLongAnswer;
    client->Send(FormatPost(question.path, body.dump(), {"Connection: close"}));
    return client;
  }

  static void Leave(HttpClient& client, std::mt19937& random) {
    switch (random() % 3) {
      case 0:
        return client.Close();
      case 1:
        return client.Abort();
      default:
        client.FinishSending();  // counts as leaving
        client.Read();
    }
  }

  void LeaveBeforeTheEndOfTheRequest(const Question& question, std::mt19937& random) const {
    const std::string request = FormatPost(question.path, question.body.dump());
    HttpClient client(server_->port());
    client.Send(request.substr(0, random() % request.size()));
    if (random() % 2 == 0) {
      client.Close();
    } else {
      client.Abort();
    }
  }

  // After some more layers, of whichever request is being computed.
  void LeaveWhileLayersAreComputed(const Question& question, std::mt19937& random) const {
    const bool stream = random() % 2 == 0;
    const int end = model_->layers_begun + static_cast<int>(random() % 60);
    const auto client = Send(question, stream);
    for (int i = 0; i < 50 && model_->layers_begun < end; ++i) {
      client->ReadUntil("this never comes", milliseconds(2));
    }
    Leave(*client, random);
  }

  void LeaveInAStream(const Question& question, std::mt19937& random) const {
    const auto client = Send(question, true);
    client->ReadBytes(200 + random() % 2500);
    Leave(*client, random);
  }

  void LeaveAtTheEnd(const Question& question, std::mt19937& random) const {
    const bool stream = random() % 2 == 0;
    const auto client = Send(question, stream);
    client->ReadUntil(stream ? "[DONE]" : "\"finish_reason\"");
    Leave(*client, random);
  }

  void BeClient(unsigned number) const {
    std::seed_seq sequence{seed_, number};
    std::mt19937 random(sequence);
    for (int i = 0; i < kRequestsPerClient && !HasFailure(); ++i) {
      const Question& question = questions_[random() % questions_.size()];
      switch (random() % 10) {
        case 0:
          LeaveBeforeTheEndOfTheRequest(question, random);
          break;
        case 1:
        case 2:
          LeaveWhileLayersAreComputed(question, random);
          break;
        case 3:
          LeaveInAStream(question, random);
          break;
        case 4:
          LeaveAtTheEnd(question, random);
          break;
        case 5:
          EXPECT_EQ(Get(server_->port(), random() % 2 == 0 ? "/health" : "/metrics").status, 200);
          break;
        default:
          AskAndCompare(question, random() % 2 == 0);
      }
    }
  }

  unsigned seed_ = 0;
  Model* model_ = nullptr;
  std::unique_ptr<server::Server> server_;
  std::vector<Question> questions_;
};

TEST_P(MixedLoadTest, WhoeverStaysGetsTheAnswerOfAnIdleServer) {
  ASSERT_NO_FATAL_FAILURE(MakeQuestions());
  ASSERT_GE(questions_.size(), 6u);
  std::vector<std::thread> clients;
  for (unsigned i = 0; i < kClients; ++i) clients.emplace_back([this, i] { BeClient(i); });
  for (std::thread& client : clients) client.join();
  // Nothing of those who left remains.
  for (const Question& question : questions_) AskAndCompare(question, false);
  server_.reset();
  EXPECT_GT(model_->loaded->experts().counters().misses, 0u);
  EXPECT_GT(model_->loaded->prefix_cache().counters().parked_resumed, 0);
  EXPECT_GT(model_->loaded->prefix_cache().counters().evictions, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, MixedLoadTest, testing::Values("demo", "qwen3_5_moe"));

}  // namespace
}  // namespace mference
