// `mference install`, `list`, `info`, `plan`, `verify` and `remove`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/json.h"
#include "cli/program_runner.h"

namespace mference {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing_support::DemoHome;
using testing_support::ProgramResult;
using testing_support::RunMference;

class LibraryTest : public testing::Test {
 protected:
  void SetUp() override { DemoHome(); }
  static std::filesystem::path ModelPath(const std::string& name) {
    return DemoHome() / "models" / (name + ".gturbo");
  }
};

TEST_F(LibraryTest, InstallsVerifiesAndRemoves) {
  const ProgramResult installed =
      RunMference({"install", "pupil", "--from", MFERENCE_DEMO_SNAPSHOT});
  ASSERT_EQ(installed.exit_code, 0) << installed.err;
  EXPECT_THAT(installed.out, StartsWith("Installed "));
  EXPECT_THAT(installed.out, HasSubstr("Model: " + ModelPath("pupil").string() + "\n"));
  EXPECT_THAT(installed.err, HasSubstr("copying\n"));

  const ProgramResult again = RunMference({"install", "pupil", "--from", MFERENCE_DEMO_SNAPSHOT});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("--overwrite"));
  EXPECT_EQ(
      RunMference({"install", "pupil", "--from", MFERENCE_DEMO_SNAPSHOT, "--overwrite", "--quiet"})
          .exit_code,
      0);

  const ProgramResult verified = RunMference({"verify", "pupil"});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_THAT(verified.out, testing::MatchesRegex("Verified [0-9]+ files \\([0-9]+ bytes\\)\n"
                                                  "Receipt: .*verified-install.json\n"));

  const ProgramResult asked = RunMference({"remove", "pupil"});
  EXPECT_EQ(asked.exit_code, 2);
  EXPECT_THAT(asked.err, HasSubstr("--yes"));
  EXPECT_TRUE(std::filesystem::exists(ModelPath("pupil")));
  EXPECT_EQ(RunMference({"remove", "pupil", "--yes"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(ModelPath("pupil")));
  EXPECT_EQ(RunMference({"remove", "pupil", "--yes"}).exit_code, 1);
}

TEST_F(LibraryTest, NamesDoNotCarryTheDirectorysSuffix) {
  const ProgramResult result =
      RunMference({"install", "ghost.gturbo", "--from", MFERENCE_DEMO_SNAPSHOT});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("without .gturbo"));
  EXPECT_THAT(result.err, HasSubstr("'ghost'"));
  EXPECT_FALSE(std::filesystem::exists(ModelPath("ghost.gturbo")));
}

// The demo model is what the dry run is of.
TEST_F(LibraryTest, TheSmallestBudgetWorksWhoeverNamesIt) {
  const auto budget_in = [](const std::string& text, const std::string& before) {
    const size_t at = text.find(before);
    return at == std::string::npos ? 0 : std::stoll(text.substr(at + before.size()));
  };
  const ProgramResult dry =
      RunMference({"install", "ghost", "--from", MFERENCE_DEMO_SNAPSHOT, "--dry-run"});
  const int64_t told_bytes = budget_in(dry.out, "Smallest memory budget: ");
  const ProgramResult plan = RunMference({"plan", "demo", "--no-measure", "--memory", "1GiB"});
  const int64_t told_mib = budget_in(plan.out, "smallest budget that works: ");
  const ProgramResult refusal =
      RunMference({"run", "demo", "--prompt", "Hello", "--memory", "40M"});
  EXPECT_EQ(budget_in(refusal.err, "is --memory "), told_mib) << refusal.err;
  EXPECT_GE(told_bytes, told_mib << 20);
  for (const std::string& enough : {std::to_string(told_bytes), fmt::format("{}MiB", told_mib)}) {
    const ProgramResult run =
        RunMference({"run", "demo", "--prompt", "Hello", "--max-new", "1", "--memory", enough});
    EXPECT_EQ(run.exit_code, 0) << run.err;
  }
}

TEST_F(LibraryTest, ADryRunWritesNothing) {
  const ProgramResult result =
      RunMference({"install", "ghost", "--from", MFERENCE_DEMO_SNAPSHOT, "--dry-run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Expert layers: 12\n"));
  EXPECT_THAT(result.out, HasSubstr("Range requests: "));
  EXPECT_THAT(result.out, HasSubstr("Disk needed: "));
  EXPECT_THAT(result.out, HasSubstr("Smallest memory budget: "));
  EXPECT_FALSE(std::filesystem::exists(ModelPath("ghost")));
}

TEST_F(LibraryTest, EventsAreJsonLines) {
  const ProgramResult result =
      RunMference({"install", "events", "--from", MFERENCE_DEMO_SNAPSHOT, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  std::istringstream lines(result.out);
  Json last;
  for (std::string line; std::getline(lines, line);) {
    last = Json::parse(line);
    EXPECT_TRUE(last.contains("event"));
  }
  EXPECT_EQ(last.at("event"), "done");
  EXPECT_EQ(last.at("model"), ModelPath("events").string());
  EXPECT_EQ(RunMference({"remove", "events", "-y"}).exit_code, 0);
}

TEST_F(LibraryTest, InstallRefusals) {
  EXPECT_EQ(RunMference({"install", "x", "--from", "/nosuch"}).exit_code, 1);
  const ProgramResult pinned = RunMference({"install", "gemma4", "--from", MFERENCE_DEMO_SNAPSHOT});
  EXPECT_EQ(pinned.exit_code, 1) << "under a pinned name the snapshot must be the pinned one";
  EXPECT_FALSE(std::filesystem::exists(ModelPath("gemma4")));
  const ProgramResult nothing = RunMference({"install", "x", "--discard"});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_THAT(nothing.err, HasSubstr("no saved download"));
  const ProgramResult bad_name = RunMference({"install", "../x", "--from", MFERENCE_DEMO_SNAPSHOT});
  EXPECT_EQ(bad_name.exit_code, 2);
  EXPECT_THAT(bad_name.err, HasSubstr("not a model name"));
}

TEST_F(LibraryTest, Lists) {
  const ProgramResult table = RunMference({"list"});
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, StartsWith("NAME"));
  EXPECT_THAT(table.out, HasSubstr("\ndemo "));
  EXPECT_THAT(table.out, Not(HasSubstr("\x1b")));

  bool found = false;
  for (const Json& model : Json::parse(RunMference({"list", "--json"}).out)) {
    if (model.at("name") != "demo") continue;
    found = true;
    EXPECT_EQ(model.at("family"), "gemma4");
    EXPECT_EQ(model.at("status"), "ready");
    EXPECT_FALSE(model.at("pinned"));
    EXPECT_GT(model.at("bytes"), 20'000'000);
  }
  EXPECT_TRUE(found);

  const ProgramResult offers = RunMference({"list", "--available"});
  EXPECT_THAT(offers.out, testing::MatchesRegex("NAME +MODEL +DOWNLOAD +ON DISK +MEMORY +LICENCE\n"
                                                "(.*\n)*gemma4 +Gemma 4 .*GiB.*Apache-2.0\n"
                                                "(.*\n)*"));
  const Json available = Json::parse(RunMference({"list", "--available", "--json"}).out);
  ASSERT_EQ(available.size(), 5u);
  for (const Json& model : available) {
    EXPECT_GT(model.at("installed_bytes"), 1'000'000'000);
    EXPECT_GT(model.at("memory_bytes"), 0);
    EXPECT_NE(model.at("licence"), "");
    EXPECT_FALSE(model.at("installed"));
  }
}

TEST_F(LibraryTest, ADamagedFileIsNamed) {
  ASSERT_EQ(
      RunMference({"install", "broken", "--from", MFERENCE_DEMO_SNAPSHOT, "--quiet"}).exit_code, 0);
  {
    std::fstream file(ModelPath("broken") / "packed_experts/layer_03.bin",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1000);
    file.put('x').put('y');
  }
  const ProgramResult result = RunMference({"verify", "broken"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("layer_03.bin"));
  const ProgramResult json = RunMference({"verify", "broken", "--json"});
  EXPECT_EQ(json.exit_code, 1);
  EXPECT_EQ(Json::parse(json.out).at("problems").at(0).at("code"), "checksum_mismatch");
  EXPECT_EQ(RunMference({"remove", "broken", "-y"}).exit_code, 0);
}

TEST_F(LibraryTest, InfoShowsHowItWouldRun) {
  const ProgramResult text = RunMference({"info", "demo", "--memory", "512MiB"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* part : {"family           gemma4", "kernels ", "expert reads", "expert slots",
                           "of a budget of 512", "unpinned"}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
  const Json json = Json::parse(RunMference({"info", "demo", "--json", "--context", "512"}).out);
  EXPECT_EQ(json.at("context"), 512);
  EXPECT_EQ(json.at("layers"), 12);
  EXPECT_GT(json.at("memory_plan").at("slots"), 0);
  const Json tight = Json::parse(RunMference({"info", "demo", "--json", "--memory", "8M"}).out);
  EXPECT_THAT(tight.at("cannot_run").get<std::string>(), HasSubstr("smallest budget"));
}

TEST_F(LibraryTest, AContextTheModelDoesNotHaveIsRefused) {
  for (const char* command : {"info", "plan"}) {
    const ProgramResult refused = RunMference({command, "demo", "--quiet", "--context", "999999"});
    EXPECT_EQ(refused.exit_code, 2) << command;
    EXPECT_THAT(refused.err, HasSubstr("at most 4096 tokens")) << command;
  }
}

TEST_F(LibraryTest, PlansForModelsHereAndNotHere) {
  const Json here = Json::parse(
      RunMference({"plan", "demo", "--memory", "512M", "--json", "--context", "1024"}).out);
  EXPECT_FALSE(here.at("estimated"));
  EXPECT_EQ(here.at("memory_plan").at("budget_bytes"), 512u << 20);
  EXPECT_GT(here.at("memory_bytes_per_s"), 1e8);
  EXPECT_GT(here.at("disk_reads").at("reads"), 0);
  EXPECT_EQ(here.at("disk_reads").at("read_bytes").get<int64_t>() % 16384, 0);
  EXPECT_LE(here.at("hit_rate").at(0), here.at("hit_rate").at(1));

  const Json there =
      Json::parse(RunMference({"plan", "gemma4", "--memory", "6G", "--json", "--no-measure"}).out);
  EXPECT_TRUE(there.at("estimated"));
  EXPECT_FALSE(there.at("installed"));
  EXPECT_LE(there.at("memory_plan").at("planned_bytes"), uint64_t{6} << 30);
  EXPECT_LT(there.at("memory_plan").at("slots"), there.at("memory_plan").at("experts"));
  EXPECT_FALSE(std::filesystem::exists(ModelPath("gemma4")));

  const ProgramResult tight = RunMference({"plan", "gemma4", "--memory", "1G", "--no-measure"});
  EXPECT_EQ(tight.exit_code, 1);
  EXPECT_THAT(tight.err, HasSubstr("smallest budget"));
}

}  // namespace
}  // namespace mference
