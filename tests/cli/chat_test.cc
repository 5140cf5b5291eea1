// `mference chat` with the demo model, scripted through a pipe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <regex>
#include <sstream>

#include "base/json.h"
#include "cli/program_runner.h"

namespace mference {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::DemoHome;
using testing_support::ProgramResult;
using testing_support::RunMference;
using testing_support::RunningProgram;

struct Footer {
  std::string stop;
  int prompt = 0;
  int fresh = 0;
  int cached = 0;
};

std::vector<Footer> FootersOf(const std::string& text) {
  static const std::regex pattern(
      R"(\[stop=(\w+) prefill=(\d+)tok/[^\]]* new=(\d+)tok [^\]]* cached=(\d+)tok\])");
  std::vector<Footer> footers;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    footers.push_back({(*it)[1], std::stoi((*it)[2]), std::stoi((*it)[3]), std::stoi((*it)[4])});
  }
  return footers;
}

class ChatTest : public testing::Test {
 protected:
  void SetUp() override { DemoHome(); }

  static ProgramResult Chat(const std::string& script, std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), {"chat", "demo", "--temperature", "0", "--max-new", "40"});
    return RunMference(flags, script);
  }
};

TEST_F(ChatTest, AScriptLearnsThatAMessageGotNoAnswer) {
  std::string too_long;
  for (int i = 0; i < 2000; ++i) too_long += "word ";
  for (const char* last : {"", "/quit\n"}) {
    const ProgramResult result =
        Chat(too_long + "\nWhat is the capital of France?\n" + last, {"--context", "256"});
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("the context holds 256"));
    EXPECT_THAT(result.out, HasSubstr("Paris"));
  }
}

TEST_F(ChatTest, KnowsTheCapitalOfFrance) {
  const ProgramResult result = Chat("What is the capital of France?\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Paris"));
  EXPECT_EQ(result.out.back(), '\n');
  EXPECT_THAT(result.err, HasSubstr("Interactive chat. Commands: /clear, /history, /quit."));
  EXPECT_THAT(result.err, HasSubstr("\nyou> "));
  const std::vector<Footer> footers = FootersOf(result.err);
  ASSERT_EQ(footers.size(), 1u);
  EXPECT_EQ(footers[0].stop, "endOfTurn");
}

// The second turn keeps the first prompt and everything sampled but the end token, which is the
// first token of the bridge.
TEST_F(ChatTest, ATurnComputesOnlyWhatIsNew) {
  const ProgramResult result =
      Chat("What is the capital of France?\nWhat is the capital of Italy?\n");
  const std::vector<Footer> footers = FootersOf(result.err);
  ASSERT_EQ(footers.size(), 2u) << result.err;
  ASSERT_EQ(footers[0].stop, "endOfTurn");
  EXPECT_EQ(footers[1].cached, footers[0].prompt + footers[0].fresh - 1);
  EXPECT_GT(footers[1].prompt, footers[1].cached);
}

// A reply cut by its limit leaves its last token to be computed with the bridge.
TEST_F(ChatTest, ACutReplyIsContinuedToo) {
  const ProgramResult result = Chat("Tell me a story.\nGo on.\n", {"--max-new", "6"});
  const std::vector<Footer> footers = FootersOf(result.err);
  ASSERT_EQ(footers.size(), 2u) << result.err;
  ASSERT_EQ(footers[0].stop, "maxTokens");
  EXPECT_EQ(footers[1].cached, footers[0].prompt + footers[0].fresh - 1);
}

// Recurrent state cannot be rewound: a turn continues from the live state, and a message that is
// answered again from a snapshot taken before the reply.
TEST_F(ChatTest, ARecurrentModelComputesOnlyWhatIsNew) {
  static const bool installed =
      RunMference({"install", "--from", MFERENCE_TEST_DATA "/goldens/qwen3_5_moe/snapshot",
                   "tiny-qwen", "--quiet"})
          .exit_code == 0;
  ASSERT_TRUE(installed);
  const ProgramResult result = RunMference(
      {"chat", "tiny-qwen", "--temperature", "0", "--max-new", "9", "--system",
       "You answer every question in one short sentence and never explain what you have said."},
      "Tell me something long and interesting about the sea, please.\nGo on.\n/retry\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("prompt cache"));
  const std::vector<Footer> footers = FootersOf(result.err);
  ASSERT_EQ(footers.size(), 3u) << result.err;
  EXPECT_EQ(footers[1].cached, footers[0].prompt + footers[0].fresh - 1);
  EXPECT_GE(footers[2].cached, footers[0].prompt / 2) << result.err;
}

// What a conversation needed to compute is there after a restart.
TEST_F(ChatTest, ARestartGoesOnFromThePromptCache) {
  const std::string directory = (DemoHome() / "prompts").string();
  const std::vector<std::string> flags = {"--prompt-cache", directory, "--prompt-cache-verify"};
  const std::string script = "What is the capital of France?\n";
  const std::vector<Footer> first = FootersOf(Chat(script, flags).err);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].cached, 0);
  const ProgramResult again = Chat(script, flags);
  const std::vector<Footer> second = FootersOf(again.err);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].cached, first[0].prompt - 1);
  EXPECT_THAT(again.err, HasSubstr("prompt cache check passed"));
  EXPECT_THAT(again.out, HasSubstr("Paris"));
  std::vector<std::string> clear = flags;
  clear.push_back("--prompt-cache-clear");
  EXPECT_EQ(FootersOf(Chat(script, clear).err).at(0).cached, 0);
  EXPECT_NE(Chat("", {"--prompt-cache-clear"}).exit_code, 0) << "of no directory";
}

TEST_F(ChatTest, UndoGoesBackToTheStateBefore) {
  const ProgramResult result = Chat(
      "What is the capital of France?\nWhat is the capital of Italy?\n/undo\n"
      "What is the capital of Italy?\n");
  const std::vector<Footer> footers = FootersOf(result.err);
  ASSERT_EQ(footers.size(), 3u) << result.err;
  EXPECT_EQ(footers[2].prompt, footers[1].prompt);
}

TEST_F(ChatTest, WhatIsSaidIsJsonLinesWhenAskedFor) {
  const ProgramResult result =
      Chat("/nonsense\n/set parameter temperature cold\n/history\nHello.\n/undo\n/show\n",
           {"--json", "--max-new", "4"});
  EXPECT_EQ(result.exit_code, 0);
  std::istringstream lines(result.err);
  std::vector<std::string> errors;
  std::vector<std::string> notes;
  for (std::string line; std::getline(lines, line);) {
    const Json said = Json::parse(line);
    if (said.contains("error")) errors.push_back(said.at("error").at("message"));
    if (said.contains("note")) notes.push_back(said.at("note"));
  }
  EXPECT_THAT(errors, ElementsAre(HasSubstr("unknown command /nonsense"),
                                  HasSubstr("temperature: expected a number")));
  EXPECT_THAT(notes, Contains("took back the last turn"));
  EXPECT_THAT(notes, Contains(HasSubstr("max_new 4")));
}

TEST_F(ChatTest, StopStringsCanBeRemoved) {
  const ProgramResult result = Chat(
      "/set parameter stop one\n/set parameter stop two words\n/show\n/set parameter "
      "stop\n/show\n");
  const std::string& err = result.err;
  const size_t removed = err.find("stop strings removed\n");
  ASSERT_NE(removed, std::string::npos) << err;
  EXPECT_THAT(err.substr(0, removed), HasSubstr("\nstop one\nstop two words\n"));
  EXPECT_THAT(err.substr(removed), Not(HasSubstr("stop one")));
}

TEST_F(ChatTest, CommandsAnswerOnStandardError) {
  const ProgramResult result = Chat(
      "/history\nWhat is the capital of France?\n/history\n/clear\n/history\n/nonsense\n/?\n"
      "/set parameter temperature 0.5\n/set parameter temperature -1\n/set x y\n/show\n/stats\n"
      "/undo\n/retry\n/system Be brief.\n/history\n/think\n/nothink\n/read /nosuch\n/bye\n"
      "never read\n",
      {"--system", "You are kind.", "--system", "And short."});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("[system] You are kind.\nAnd short.\n"));
  EXPECT_THAT(result.err, HasSubstr("[user] What is the capital of France?\n[assistant] "));
  EXPECT_THAT(result.err, HasSubstr("history cleared\n"));
  EXPECT_THAT(result.err, HasSubstr("unknown command /nonsense; try /clear, /history, or /quit"));
  EXPECT_THAT(result.err, HasSubstr("/retry"));
  EXPECT_THAT(result.err, HasSubstr("temperature = 0.5\n"));
  EXPECT_THAT(result.err, HasSubstr("error: temperature: expected a number of at least 0\n"));
  EXPECT_THAT(result.err, HasSubstr("error: expected /set parameter"));
  EXPECT_THAT(result.err, HasSubstr("temperature 0.5 top_k"));
  EXPECT_THAT(result.err, HasSubstr("1 turns, "));
  EXPECT_THAT(result.err, HasSubstr("nothing to take back"));
  EXPECT_THAT(result.err, HasSubstr("nothing to answer again"));
  EXPECT_THAT(result.err, HasSubstr("[system] Be brief.\n"));
  EXPECT_THAT(result.err, HasSubstr("/nosuch"));
  EXPECT_EQ(FootersOf(result.err).size(), 1u) << "one message was sent";
}

TEST_F(ChatTest, LongMessages) {
  const ProgramResult result = Chat("\"\"\"one\n/two\n\"\"\"\nthree\\\nfour\n   \n/history\n",
                                    {"--max-new", "1", "--quiet"});
  EXPECT_THAT(result.err, HasSubstr("[user] one\n/two\n[assistant]"));
  EXPECT_THAT(result.err, HasSubstr("[user] three\nfour\n[assistant]"));
}

TEST_F(ChatTest, RetryAnswersTheSameMessageWithAnotherSeed) {
  const ProgramResult result = RunMference({"chat", "demo", "--seed", "5", "--temperature", "1.5",
                                            "--top-k", "0", "--top-p", "1", "--max-new", "20"},
                                           "Tell me a story.\n/retry\n/history\n");
  const std::vector<Footer> footers = FootersOf(result.err);
  ASSERT_EQ(footers.size(), 2u);
  EXPECT_EQ(footers[0].prompt, footers[1].prompt);
  const size_t first = result.err.find("[user] ");
  EXPECT_EQ(result.err.find("[user] ", first + 1), std::string::npos) << "one turn is left";
}

TEST_F(ChatTest, OldMessagesMakeRoom) {
  std::string script;
  for (int i = 0; i < 6; ++i) script += "Tell me about the sea and the ships that sail on it.\n";
  const ProgramResult result =
      Chat(script + "/history\n", {"--context", "96", "--max-new", "16", "--system", "Be kind."});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("oldest message(s) to fit the context"));
  EXPECT_EQ(FootersOf(result.err).size(), 6u);
  EXPECT_THAT(result.err, HasSubstr("[system] Be kind.\n[user] "));
}

TEST_F(ChatTest, AMessageThatCannotFitIsRefusedAlone) {
  std::string words;
  for (int i = 0; i < 80; ++i) words += "ships ";
  const ProgramResult result =
      Chat("Hello.\n" + words + "\n/history\n", {"--context", "64", "--max-new", "4"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("the context holds 64"));
  EXPECT_THAT(result.err, HasSubstr("[user] Hello.\n[assistant]"));
  EXPECT_THAT(result.err, Not(HasSubstr("[user] ships")));
}

TEST_F(ChatTest, AnInterruptEndsTheReplyOnly) {
  RunningProgram program({"chat", "demo", "--temperature", "1", "--top-k", "0", "--top-p", "1",
                          "--seed", "1", "--max-new", "4000", "--threads", "1", "--kernels",
                          "scalar", "--repetition-penalty", "1"});
  ASSERT_TRUE(program.WaitForError("you> "));
  program.Write("Tell me a very long story about everything.\n");
  ASSERT_TRUE(program.WaitForOutput(" "));
  program.Signal(SIGINT);
  ASSERT_TRUE(program.WaitForError("[stop="));
  ASSERT_TRUE(program.WaitForError("you> "));
  program.Write("/history\n");
  ASSERT_TRUE(program.WaitForError("[assistant] "));
  ASSERT_TRUE(program.WaitForError("you> "));
  program.Signal(SIGINT);
  ASSERT_TRUE(program.WaitForError("Ctrl-C again"));
  program.Signal(SIGINT);
  EXPECT_EQ(program.WaitForExit().exit_code, 130);
}

TEST_F(ChatTest, ATerminationRequestEndsIt) {
  RunningProgram program({"chat", "demo"});
  ASSERT_TRUE(program.WaitForError("you> "));
  program.Signal(SIGTERM);
  EXPECT_EQ(program.WaitForExit().exit_code, 143);
}

}  // namespace
}  // namespace mference
