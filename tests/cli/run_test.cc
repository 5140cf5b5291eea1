// `mference run` with the demo model: streams, footer, exit codes, signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <regex>

#include "base/json.h"
#include "cli/program_runner.h"

namespace mference {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing_support::DemoHome;
using testing_support::ProgramResult;
using testing_support::RunMference;
using testing_support::RunningProgram;

class RunTest : public testing::Test {
 protected:
  void SetUp() override { DemoHome(); }

  // A file in the scratch folder.
  static std::string WriteFile(const std::string& name, const std::string& text) {
    const std::filesystem::path path = DemoHome() / name;
    std::ofstream(path) << text;
    return path.string();
  }
};

constexpr const char* kFooter =
    R"(\n\[stop=(eos|endOfTurn|maxTokens|stopString|toolCalls|cancelled|contextFull) )"
    R"(prefill=(\d+)tok/\d+\.\d\ds new=(\d+)tok decode=\d+\.\d\ds tok/s=\d+\.\d\d\d )"
    R"(ttft=\d+\.\d\ds hit=\d+\.\d% io=\d+\.\d\dMiB/tok rss=\d+MiB cached=(\d+)tok\]\n$)";

TEST_F(RunTest, TextOnStandardOutputTheRestOnStandardError) {
  const ProgramResult result = RunMference(
      {"run", "demo", "--prompt", "Once upon a time", "--temperature", "0", "--max-new", "12"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out, "");
  EXPECT_THAT(result.out, Not(HasSubstr("stop=")));
  EXPECT_THAT(result.err, HasSubstr("expert slots"));
  std::smatch match;
  ASSERT_TRUE(std::regex_search(result.err, match, std::regex(kFooter))) << result.err;
  EXPECT_EQ(match[1], "maxTokens");
  EXPECT_EQ(match[3], "12");
  EXPECT_EQ(match[4], "0");
}

TEST_F(RunTest, QuietSaysNothing) {
  const ProgramResult result =
      RunMference({"run", "demo", "--prompt", "Hello", "--max-new", "3", "--quiet"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

TEST_F(RunTest, JsonFooterIsTheLastLine) {
  const ProgramResult result = RunMference(
      {"run", "demo", "--prompt", "Hello", "--max-new", "3", "--json", "--temperature", "0"});
  EXPECT_EQ(result.exit_code, 0);
  std::istringstream lines(result.err);
  std::string line;
  Json last;
  while (std::getline(lines, line)) last = Json::parse(line);
  EXPECT_EQ(last.at("stop"), "maxTokens");
  EXPECT_EQ(last.at("new_tokens"), 3);
  EXPECT_GT(last.at("prompt_tokens"), 1);
}

TEST_F(RunTest, PromptsComeFromFlagFileAndPipe) {
  const std::vector<std::string> rest = {"--temperature", "0", "--max-new", "8", "--quiet"};
  const auto run = [&](std::vector<std::string> arguments, std::string_view input) {
    arguments.insert(arguments.begin(), {"run", "demo"});
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    const ProgramResult result = RunMference(arguments, input);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string expected = run({"--prompt", "The river runs"}, "");
  EXPECT_EQ(run({"--prompt-file", WriteFile("prompt.txt", "The river runs")}, ""), expected);
  EXPECT_EQ(run({"--prompt-file", "-"}, "The river runs"), expected);
  EXPECT_EQ(run({}, "The river runs"), expected);
  // What a shell makes of `<(...)`.
  EXPECT_EQ(run({"--prompt-file", "/dev/fd/0"}, "The river runs"), expected);
}

TEST_F(RunTest, WhatHasNoEndIsNoPrompt) {
  for (const char* path : {"/dev/zero", "/"}) {
    const ProgramResult result = RunMference({"run", "demo", "--prompt-file", path});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("is not a regular file"));
  }
}

TEST_F(RunTest, EmptyPromptsAreRefused) {
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{"run", "demo", "--prompt", ""},
                                             {"run", "demo", "--prompt-file", "-"},
                                             {"run", "demo"}}) {
    const ProgramResult result = RunMference(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("the prompt is empty"));
  }
}

TEST_F(RunTest, PromptsThatReachTheContextAreRefused) {
  const ProgramResult result =
      RunMference({"run", "demo", "--context", "16", "--quiet", "--prompt-file", "-"},
                  "one two three four five six seven eight nine ten eleven twelve thirteen");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("context of 16"));
  EXPECT_EQ(result.out, "");
}

TEST_F(RunTest, TheContextEndsAReply) {
  const ProgramResult result = RunMference(
      {"run", "demo", "--context", "24", "--prompt", "Once upon a time", "--temperature", "0"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("[stop=contextFull "));
}

TEST_F(RunTest, AnswersAMessagesFile) {
  const std::string file = WriteFile(
      "messages.json", R"([{"role": "user", "content": "What is the capital of France?"}])");
  const ProgramResult result =
      RunMference({"run", "demo", "--messages-file", file, "--temperature", "0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Paris"));
  EXPECT_THAT(result.out, Not(EndsWith("\n")));
  EXPECT_THAT(result.err, HasSubstr("[stop=endOfTurn "));
}

TEST_F(RunTest, BadMessagesFilesAreExplained) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"([{"role": "user", "content": "x", "colour": "red"}])", "colour"},
      {R"([{"role": "user"}])", "content"},
      {R"([{"role": "user", "content": ["x"]}])", "content"},
      {R"([{"role": "king", "content": "x"}])", "role"},
      {R"([])", "at least one message"},
      {R"({"role": "user", "content": "x"})", "array"},
      {R"([{"role": "user", "content": "x")", "standard input"},
      {std::string(100000, '['), "standard input"}};
  for (const auto& [text, expected] : cases) {
    const ProgramResult result = RunMference({"run", "demo", "--messages-file", "-"}, text);
    EXPECT_EQ(result.exit_code, 2) << text.substr(0, 60);
    EXPECT_THAT(result.err, HasSubstr(expected));
    EXPECT_LT(result.err.size(), 1000u);
  }
}

TEST_F(RunTest, StopStringsEndTheReply) {
  const std::vector<std::string> base = {"run",           "demo", "--prompt",  "Once upon a time",
                                         "--temperature", "0",    "--max-new", "40"};
  const std::string whole = RunMference(base).out;
  ASSERT_GT(whole.size(), 20u);
  const std::string stop = whole.substr(10, 5);
  std::vector<std::string> with_stop = base;
  with_stop.insert(with_stop.end(), {"--stop", "never written", "--stop", stop});
  const ProgramResult result = RunMference(with_stop);
  EXPECT_EQ(result.out, whole.substr(0, whole.find(stop)));
  EXPECT_THAT(result.err, HasSubstr("[stop=stopString "));
}

TEST_F(RunTest, SeedsRepeatAndRandomOnesAreShown) {
  const auto run = [](const std::string& seed) {
    return RunMference({"run", "demo", "--prompt", "Once", "--temperature", "1.5", "--top-k", "0",
                        "--top-p", "1", "--max-new", "24", "--seed", seed});
  };
  const ProgramResult first = run("7");
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.out, run("7").out);
  EXPECT_NE(first.out, run("8").out);
  EXPECT_THAT(first.err, Not(HasSubstr("seed:")));
  const ProgramResult random = RunMference({"run", "demo", "--prompt", "Once", "--max-new", "2"});
  EXPECT_THAT(random.err, HasSubstr("seed: "));
}

TEST_F(RunTest, VerbosePromptShowsTextAndIds) {
  const ProgramResult result =
      RunMference({"run", "demo", "--verbose-prompt", "--messages-file", "-", "--max-new", "1"},
                  R"([{"role": "user", "content": "Hi"}])");
  EXPECT_THAT(result.err, HasSubstr("<|turn>user\nHi<turn|>"));
  EXPECT_TRUE(std::regex_search(result.err, std::regex(R"(\n\[2(,\d+)+\]\n)"))) << result.err;
}

// The first text has been seen, so the signal meets a running generation.
std::vector<std::string> LongRun() {
  return {"run",           "demo", "--prompt",  "Once upon a time",
          "--temperature", "1",    "--top-k",   "0",
          "--seed",        "3",    "--max-new", "3500",
          "--threads",     "1",    "--kernels", "scalar"};
}

TEST_F(RunTest, InterruptsExitWith128PlusSignal) {
  for (const int signal : {SIGINT, SIGTERM}) {
    RunningProgram program(LongRun());
    ASSERT_TRUE(program.WaitForOutput(" "));
    program.Signal(signal);
    const ProgramResult result = program.Finish();
    EXPECT_EQ(result.exit_code, 128 + signal);
    EXPECT_THAT(result.out, EndsWith("\n"));
    EXPECT_THAT(result.err, HasSubstr("[stop=cancelled "));
  }
}

TEST_F(RunTest, AReaderThatGoesAwayEndsItQuietly) {
  RunningProgram program(LongRun());
  ASSERT_TRUE(program.WaitForOutput(" "));
  program.CloseOutput();
  const ProgramResult result = program.Finish();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, Not(HasSubstr("error")));
}

TEST_F(RunTest, BudgetsThatCannotHoldTheModelAreRefused) {
  const ProgramResult result =
      RunMference({"run", "demo", "--prompt", "Hello", "--memory", "8MiB"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("smallest budget that works"));
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace mference
