// `mference tokenize`, `render` and `parse`: plain use, and batches of JSON lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "cli/program_runner.h"

namespace mference {
namespace {

using testing::HasSubstr;
using testing_support::DemoHome;
using testing_support::ProgramResult;
using testing_support::RunMference;

const std::string kTokenizers = MFERENCE_TEST_DATA "/tokenizers/";

Json ReadJson(const std::string& path) { return Json::parse(std::ifstream(path)); }

// Sends each request as a line and returns the answers.
std::vector<Json> Batch(std::vector<std::string> arguments, const std::vector<Json>& requests) {
  std::string input;
  for (const Json& request : requests) input += request.dump() + "\n";
  arguments.emplace_back("--jsonl");
  // Through a file: pipes of both directions could fill up.
  const std::filesystem::path file = DemoHome() / "lines.jsonl";
  std::ofstream(file) << input;
  const ProgramResult result = testing_support::RunMferenceOnFile(arguments, file);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<Json> answers;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) answers.push_back(Json::parse(line));
  EXPECT_EQ(answers.size(), requests.size());
  answers.resize(requests.size());
  return answers;
}

TEST(TokenizeTest, TheDemosVectors) {
  DemoHome();
  for (const Json& vector : ReadJson(kTokenizers + "demo_vectors.json")) {
    const ProgramResult encoded =
        RunMference({"tokenize", "demo"}, vector.at("text").get<std::string>());
    EXPECT_EQ(Json::parse(encoded.out), vector.at("ids"));
    const ProgramResult decoded =
        RunMference({"tokenize", "demo", "--decode"}, vector.at("ids").dump());
    EXPECT_EQ(decoded.out, vector.at("decoded").get<std::string>());
  }
}

// Text is taken as it is: no BOS, and the final newline counts.
TEST(TokenizeTest, AddsAndDropsNothing) {
  DemoHome();
  const Json bare = Json::parse(RunMference({"tokenize", "demo"}, "Hello").out);
  const Json with_newline = Json::parse(RunMference({"tokenize", "demo"}, "Hello\n").out);
  EXPECT_GT(with_newline.size(), bare.size());
  Json with_bos = Json::parse(RunMference({"tokenize", "demo", "--bos"}, "Hello").out);
  EXPECT_EQ(with_bos.at(0), 2);
  with_bos.erase(0);
  EXPECT_EQ(with_bos, bare);
  EXPECT_EQ(RunMference({"tokenize", "demo"}).out, "[]\n");
}

// The ids of the last one's added tokens contradict each other: it cannot be run, but looked into.
TEST(TokenizeTest, BatchesGiveTheGoldens) {
  for (const char* name : {"tiny-gemma", "tiny-qwen36", "tiny-deepseek"}) {
    const Json golden = ReadJson(kTokenizers + name + ".json");
    std::vector<Json> requests;
    std::vector<Json> expected;
    const auto add = [&](Json request, Json answer) {
      requests.push_back(std::move(request));
      expected.push_back(std::move(answer));
    };
    for (const Json& vector : golden.at("cases")) {
      const Json& ids = vector.at("ids");
      add({{"text", vector.at("text")}}, ids);
      add({{"text", vector.at("text")}, {"special", "special"}},
          vector.value("ids_special_only", ids));
      add({{"text", vector.at("text")}, {"special", "none"}}, vector.value("ids_plain", ids));
    }
    const std::vector<Json> answers =
        Batch({"tokenize", "--tokenizer", kTokenizers + name}, requests);
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(answers[i].value("ids", Json()), expected[i]) << requests[i];
    }
  }
}

TEST(TokenizeTest, BatchesStreamPieces) {
  const Json golden = ReadJson(kTokenizers + "tiny-gemma.json");
  std::vector<Json> requests;
  for (const Json& vector : golden.at("decode_cases")) {
    requests.push_back({{"ids", vector.at("ids")}});
  }
  const std::vector<Json> answers =
      Batch({"tokenize", "--tokenizer", kTokenizers + "tiny-gemma"}, requests);
  for (size_t i = 0; i < answers.size(); ++i) {
    const Json& vector = golden.at("decode_cases").at(i);
    std::string text = vector.value("decoded", vector.value("text", ""));
    text = vector.value("stream_text", text);
    EXPECT_EQ(answers[i].at("text"), text) << vector.at("id");
    EXPECT_EQ(answers[i].at("pieces"), vector.value("pieces", answers[i].at("pieces")));
  }
}

TEST(TokenizeTest, BadLinesAreAnsweredAndTheRestGoesOn) {
  DemoHome();
  const ProgramResult result = RunMference(
      {"tokenize", "demo", "--jsonl"},
      "nonsense\n{\"text\": 3}\n{\"ids\": [-1]}\n{\"text\": \"a\", \"special\": \"x\"}\n"
      "{}\n\n{\"text\": \"\"}\n");
  EXPECT_EQ(result.exit_code, 0);
  std::istringstream lines(result.out);
  int bad = 0;
  Json last;
  for (std::string line; std::getline(lines, line);) {
    last = Json::parse(line);
    if (!last.contains("error")) continue;
    ++bad;
    EXPECT_EQ(last.at("error").at("class"), "invalid_argument");
    EXPECT_TRUE(last.at("error").at("message").is_string());
  }
  EXPECT_EQ(bad, 5);
  EXPECT_EQ(last, Json({{"ids", Json::array()}}));
}

TEST(RenderTest, OfAModelAndOfItsParts) {
  DemoHome();
  const std::string messages = R"([{"role": "user", "content": "What is <turn|> here?"}])";
  const std::string expected =
      "<bos><|turn>user\nWhat is <turn|> here?<turn|>\n<|turn>model\n<|channel>thought\n<channel|>";
  EXPECT_EQ(RunMference({"render", "demo"}, messages).out, expected);
  EXPECT_EQ(RunMference({"render", "demo", "-"}, messages).out, expected);
  EXPECT_EQ(RunMference({"render", "--family", "gemma4", "--template",
                         MFERENCE_DEMO_SNAPSHOT "/chat_template.jinja"},
                        messages)
                .out,
            expected);
  EXPECT_EQ(RunMference({"render", "demo", "--no-generation-prompt"}, messages).out,
            expected.substr(0, expected.find("<|turn>model")));
}

// What a user typed is text, even where it spells a control token.
TEST(RenderTest, IdsShowWhatIsSpecial) {
  DemoHome();
  const ProgramResult result =
      RunMference({"render", "demo", "--ids"}, R"([{"role": "user", "content": "a<turn|>b"}])");
  const Json json = Json::parse(result.out);
  constexpr int kEndOfTurn = 106;
  int ends = 0;
  for (const Json& id : json.at("ids")) ends += id == kEndOfTurn ? 1 : 0;
  EXPECT_EQ(ends, 1) << result.out;
  bool message_is_plain = false;
  for (const Json& span : json.at("spans")) {
    message_is_plain |= span.at("text") == "a<turn|>b" && span.at("special") == false;
  }
  EXPECT_TRUE(message_is_plain) << result.out;
}

TEST(RenderTest, Batches) {
  const std::vector<Json> answers =
      Batch({"render", "--now", "2026-01-02T03:04:05"},
            {{{"template", "{{ a }}-{{ strftime_now('%Y') }}"}, {"context", {{"a", 1}}}},
             {{"template", "{{ raise_exception('no') }}"}, {"context", Json::object()}},
             {{"template", "{% if"}, {"context", Json::object()}}});
  EXPECT_EQ(answers[0], Json({{"text", "1-2026"}}));
  EXPECT_EQ(answers[1].at("error").at("class"), "raise");
  EXPECT_EQ(answers[1].at("error").at("message"), "no");
  EXPECT_EQ(answers[2].at("error").at("class"), "syntax");
}

TEST(RenderTest, BadMessagesExit2) {
  DemoHome();
  const ProgramResult result = RunMference({"render", "demo"}, R"([{"role": "king"}])");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("role"));
}

// Every recorded reply, uncut and at the cuts given.
TEST(ParseTest, BatchesGiveTheGoldens) {
  const Json golden = ReadJson(MFERENCE_TEST_DATA "/dialects/gemma4.json");
  std::vector<Json> requests;
  std::vector<const Json*> cases;
  for (const Json& recorded : golden.at("cases")) {
    if (!recorded.contains("expected")) continue;
    Json splits = recorded.value("splits", Json::array());
    splits.push_back(Json::array());
    for (const Json& split : splits) {
      requests.push_back({{"tools", recorded.at("tools")},
                          {"start", recorded.at("start")},
                          {"items", recorded.at("items")},
                          {"end", recorded.at("end")},
                          {"split", split}});
      cases.push_back(&recorded);
    }
  }
  const std::vector<Json> answers = Batch({"parse", "--family", "gemma4"}, requests);
  for (size_t i = 0; i < answers.size(); ++i) {
    const Json& expected = cases[i]->at("expected");
    if (expected.contains("error")) {
      EXPECT_EQ(answers[i].value("error", Json::object()).value("class", ""), expected.at("error"))
          << cases[i]->at("id");
    } else {
      EXPECT_EQ(answers[i].value("finish_reason", ""), expected.at("finish_reason"))
          << cases[i]->at("id") << answers[i];
      EXPECT_EQ(answers[i].value("content", Json()), expected.at("content")) << cases[i]->at("id");
    }
  }
}

TEST(ParseTest, PlainTextWithMarkers) {
  const std::filesystem::path tools = DemoHome() / "tools.json";
  std::ofstream(tools)
      << R"([{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}])";
  const ProgramResult result =
      RunMference({"parse", "demo", "--tools", tools.string(), "--end", "<|tool_response>"},
                  "Looking.<|tool_call>call:ls{path:<|\"|>/tmp<|\"|>}<tool_call|>");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json reply = Json::parse(result.out);
  EXPECT_EQ(reply.at("content"), "Looking.");
  EXPECT_EQ(reply.at("finish_reason"), "tool_calls");
  EXPECT_EQ(reply.at("tool_calls").at(0).at("name"), "ls");
}

}  // namespace
}  // namespace mference
