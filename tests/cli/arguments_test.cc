// What the program says to arguments: help, refusals, exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "cli/program_runner.h"

namespace mference {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing_support::ProgramResult;
using testing_support::RunMference;

TEST(ArgumentsTest, HelpAndVersionGoToStandardOutput) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"--help"}, {"-h"}, {"--version"}, {"run", "--help"}, {"chat", "-h"}}) {
    const ProgramResult result = RunMference(arguments);
    EXPECT_EQ(result.exit_code, 0) << arguments.front();
    EXPECT_NE(result.out, "");
    EXPECT_EQ(result.err, "");
  }
  EXPECT_THAT(RunMference({"--help"}).out, HasSubstr("install"));
  EXPECT_THAT(RunMference({"run", "--help"}).out, HasSubstr("--messages-file"));
}

// Runs a line of the shell; the exit code.
int RunLine(const std::string& line) {
  const int status = std::system(line.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ArgumentsTest, OutputThatFindsNoRoomIsAnError) {
  if (!std::filesystem::is_character_file("/dev/full")) GTEST_SKIP() << "no /dev/full";
  for (const std::string arguments : {"--version", "--help", "run --help"}) {
    EXPECT_EQ(RunLine(MFERENCE_PROGRAM " " + arguments + " > /dev/full 2> /dev/null"), 1);
  }
}

TEST(ArgumentsTest, ClosedStandardStreamsAreErrors) {
  const std::string program =
      "MFERENCE_HOME='" + testing_support::DemoHome().string() + "' " MFERENCE_PROGRAM;
  for (const std::string command : {"chat demo --quiet", "run demo --quiet", "tokenize demo"}) {
    EXPECT_EQ(RunLine(program + " " + command + " <&- > /dev/null 2>&1"), 1) << command;
  }
  EXPECT_EQ(RunLine(program + " tokenize demo >&- 2> /dev/null < /dev/null"), 1);
}

struct Refusal {
  std::vector<std::string> arguments;
  std::string message;
};

// `error: TEXT`, an empty line, the usage of the command; exit 2.
TEST(ArgumentsTest, RefusalsNameWhatIsWrong) {
  const std::vector<Refusal> refusals = {
      {{}, "a command is missing"},
      {{"frobnicate"}, "unknown command: frobnicate"},
      {{"--frobnicate"}, "unknown flag: --frobnicate"},
      {{"run", "--frobnicate"}, "unknown flag: --frobnicate"},
      {{"run", "--frobnicate=3"}, "unknown flag: --frobnicate"},
      {{"list", "extra"}, "unexpected argument: extra"},
      {{"run", "demo", "--top-k"}, "missing value for --top-k"},
      {{"run", "demo", "-p"}, "missing value for --prompt"},
      {{"run", "demo", "--top-k", "257"}, "invalid value for --top-k: 257"},
      {{"run", "demo", "--top-k", "3x"}, "invalid value for --top-k: 3x"},
      {{"run", "demo", "--temperature", "-1"}, "invalid value for --temperature: -1"},
      {{"run", "demo", "--temperature", "nan"}, "invalid value for --temperature: nan"},
      {{"run", "demo", "--temperature=inf"}, "invalid value for --temperature: inf"},
      {{"run", "demo", "--top-p", "0"}, "invalid value for --top-p: 0"},
      {{"run", "demo", "--min-p", "1.5"}, "invalid value for --min-p: 1.5"},
      {{"run", "demo", "--repetition-penalty", "0"}, "invalid value for --repetition-penalty: 0"},
      {{"run", "demo", "--seed", "-1"}, "invalid value for --seed: -1"},
      {{"run", "demo", "--seed", "18446744073709551616"}, "invalid value for --seed"},
      {{"run", "demo", "--max-new", "0"}, "invalid value for --max-new: 0"},
      {{"run", "demo", "--context", "0"}, "invalid value for --context: 0"},
      {{"run", "demo", "--max-context", "x"}, "invalid value for --context: x"},
      {{"run", "demo", "--memory", "lots"}, "invalid value for --memory: lots"},
      {{"run", "demo", "--expert-cache-slots", "7"}, "invalid value for --expert-cache-slots: 7"},
      {{"run", "demo", "--expert-io", "fast"}, "invalid value for --expert-io: fast"},
      {{"run", "demo", "--kernels", "mmx"}, "invalid value for --kernels: mmx"},
      {{"run", "demo", "--kv", "q8"}, "invalid value for --kv: q8"},
      {{"run", "demo", "--verify", "no"}, "invalid value for --verify: no"},
      {{"run", "demo", "--prompt", "a", "--messages-file", "b"},
       "--prompt and --messages-file are mutually exclusive"},
      {{"install"}, "required argument missing: NAME"},
      {{"install", "--from", "x", "y", "--connections", "2"}, "--revision, --base-url, "},
      {{"install", "gemma4", "--trust-snapshot"}, "--trust-snapshot is for --from"},
      {{"install", "gemma4", "--discard", "--revision", "v2"}, "--discard takes NAME or --output"},
      {{"install", "gemma4", "--connections", "17"}, "invalid value for --connections: 17"},
      {{"install", "gemma4", "--rate-limit", "0"}, "invalid value for --rate-limit: 0"},
      {{"install", "gemma4", "--base-url", "ftp://x"}, "invalid value for --base-url: ftp://x"},
      {{"verify", "demo", "--from", "x"}, "--from, --base-url, "},
      {{"verify", "demo", "--repair", "--from", "x", "--rate-limit", "1M"},
       "--base-url, --ca-file"},
      {{"remove"}, "required argument missing: MODEL"},
      {{"logits", "demo", "--tokens", "x"}, "required flag missing: --out"},
      {{"perplexity", "demo"}, "required flag missing: --tokens"},
      {{"tokenize"}, "required argument missing: MODEL"},
      {{"parse", "--family", "gemma5"}, "invalid value for --family: gemma5"},
      {{"render", "--template", "x", "a", "b", "c"}, "unexpected argument: c"},
  };
  for (const Refusal& refusal : refusals) {
    const ProgramResult result = RunMference(refusal.arguments);
    EXPECT_EQ(result.exit_code, 2) << refusal.message;
    EXPECT_EQ(result.out, "") << refusal.message;
    EXPECT_THAT(result.err, StartsWith("error: " + refusal.message));
    EXPECT_THAT(result.err, HasSubstr("\n\n")) << "usage follows an empty line";
    EXPECT_THAT(result.err, HasSubstr("Usage: ")) << refusal.message;
  }
}

TEST(ArgumentsTest, ErrorsAreJsonWithJson) {
  const ProgramResult usage = RunMference({"run", "--top-k", "x", "--json"});
  EXPECT_EQ(usage.exit_code, 2);
  const Json error = Json::parse(usage.err).at("error");
  EXPECT_EQ(error.at("code"), "invalid_argument");
  EXPECT_THAT(error.at("message").get<std::string>(), StartsWith("invalid value for --top-k: x"));

  const ProgramResult both = RunMference({"install", "gemma4", "--audit", "--json"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("--audit prints one JSON document"));

  const ProgramResult missing = RunMference({"run", "nosuch", "--prompt", "a", "--json"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(Json::parse(missing.err).at("error").at("code"), "not_found");
}

TEST(ArgumentsTest, UnknownModelsFailWithAdvice) {
  const ProgramResult unknown = RunMference({"run", "nosuch", "--prompt", "a"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, StartsWith("error: no model named 'nosuch'"));
  const ProgramResult known = RunMference({"run", "qwen36", "--prompt", "a"});
  EXPECT_EQ(known.exit_code, 1);
  EXPECT_THAT(known.err, HasSubstr("mference install qwen36"));
  EXPECT_EQ(RunMference({"run", "./nosuch.gturbo", "--prompt", "a"}).exit_code, 1);
}

// The value is always the next argument, whatever it looks like.
TEST(ArgumentsTest, ValuesMayBeginWithADash) {
  const ProgramResult result =
      RunMference({"run", "nosuch", "--stop", "--", "--prompt", "--help", "--stop", "-x"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, StartsWith("error: no model named 'nosuch'"));
}

}  // namespace
}  // namespace mference
