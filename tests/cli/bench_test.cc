// `mference bench` and `replay` on the demo model, through the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/json.h"
#include "cli/program_runner.h"

namespace mference {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing_support::DemoHome;
using testing_support::ProgramResult;
using testing_support::RunMference;

std::string InHome(const std::string& name) { return (DemoHome() / name).string(); }

class DemoTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { DemoHome(); }  // installs it
};
class Bench : public DemoTest {};
class Replay : public DemoTest {};

TEST_F(Bench, ReportsSpeedAndMemoryOfTheDemo) {
  const ProgramResult result =
      RunMference({"bench", "demo", "--memory", "96M", "--prefill", "16,99999", "--decode", "4",
                   "--decode-prompt", "8", "--runs", "2", "--no-measure", "--quiet", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = Json::parse(result.out);
  ASSERT_EQ(report["phases"].size(), 2u);  // 99,999 tokens do not fit the context
  EXPECT_EQ(report["phases"][0]["name"], "prefill 16");
  EXPECT_EQ(report["phases"][1]["name"], "decode 4 after 8");
  EXPECT_GT(report["phases"][1]["tokens_per_s"].get<double>(), 0);
  EXPECT_EQ(report["phases"][1]["runs"].size(), 2u);
  EXPECT_LE(report["memory"]["ledger_bytes"], report["memory"]["budget_bytes"]);
  EXPECT_GT(report["start"]["first_token_s"].get<double>(), 0);
  std::ofstream(InHome("a.json")) << result.out;
  const ProgramResult same =
      RunMference({"bench", "--compare", InHome("a.json"), InHome("a.json")});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_THAT(same.out, HasSubstr("1.000"));
}

TEST_F(Bench, TablesForPeople) {
  const ProgramResult result = RunMference(
      {"bench", "demo", "--prefill", "none", "--decode", "2", "--runs", "1", "--no-measure"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("decode 2 after 64"));
  EXPECT_THAT(result.out, HasSubstr("expert slots"));
}

TEST_F(Bench, RefusesWhatItCannotCompare) {
  EXPECT_EQ(RunMference({"bench", "--compare", "a.json"}).exit_code, 2);
  EXPECT_EQ(RunMference({"bench", "demo", "--prefill", "12,x"}).exit_code, 2);
}

// Before anything is generated.
TEST_F(Replay, ATraceReplacesFilesOnly) {
  const std::string pipe = InHome("pipe.trace");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, InHome(""), InHome("missing/run.trace")}) {
    const ProgramResult run =
        RunMference({"run", "demo", "--prompt", "The", "--quiet", "--trace", path});
    EXPECT_EQ(run.exit_code, 2) << path;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err,
                AnyOf(HasSubstr("is not a regular file"), HasSubstr("there is no folder")));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST_F(Replay, OfATraceThatARunHasRecorded) {
  const std::string trace = InHome("run.trace");
  const ProgramResult run = RunMference({"run", "demo", "--prompt", "The old man", "--max-new", "8",
                                         "--seed", "1", "--quiet", "--trace", trace});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const ProgramResult replay = RunMference({"replay", trace, "--slots", "48", "--json"});
  ASSERT_EQ(replay.exit_code, 0) << replay.err;
  const Json report = Json::parse(replay.out);
  EXPECT_EQ(report["layers"], 12);
  EXPECT_EQ(report["top_k"], 4);
  ASSERT_EQ(report["results"].size(), 6u);
  EXPECT_EQ(report["results"][5]["policy"], "optimum");
  for (const Json& line : report["results"]) {
    EXPECT_LE(line["hit_rate"], report["results"][5]["hit_rate"]) << line["policy"];
  }
}

TEST_F(Replay, RefusesWhatIsNoTrace) {
  std::ofstream(InHome("no.trace")) << "nothing of the kind";
  const ProgramResult result = RunMference({"replay", InHome("no.trace"), "--slots", "8"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("is not a routing trace"));
  EXPECT_EQ(RunMference({"replay", InHome("run.trace")}).exit_code, 2);
}

}  // namespace
}  // namespace mference
