// `mference install` and `verify --repair` against a hub on this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "base/json.h"
#include "cli/program_runner.h"
#include "install/hub_server.h"
#include "install/installer.h"
#include "install/test_support.h"

namespace mference {
namespace {

using testing::Fault;
using testing::GoldenSnapshot;
using ::testing::HasSubstr;
using testing::HubFault;
using testing::HubRequest;
using testing::HubServer;
using testing::HubStyle;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using testing_support::DemoHome;
using testing_support::Environment;
using testing_support::ProgramResult;
using testing_support::RunMference;
using testing_support::RunningProgram;

// A machine that knows no token and goes through no proxy, unless a test says so.
Environment With(const Environment& changes) {
  Environment environment = {
      {"HF_ENDPOINT", ""}, {"HF_TOKEN", ""},    {"HF_TOKEN_PATH", ""}, {"HF_HOME", "/nonexistent"},
      {"http_proxy", ""},  {"https_proxy", ""}, {"all_proxy", ""},     {"HTTPS_PROXY", ""},
      {"no_proxy", ""},    {"NO_PROXY", ""}};
  for (const auto& [name, value] : changes) environment[name] = value;
  return environment;
}

class DownloadTest : public ::testing::Test {
 protected:
  void SetUp() override { DemoHome(); }
  void TearDown() override { std::filesystem::remove_all(DemoHome() / "models" / kFile); }

  static std::filesystem::path Model() { return DemoHome() / "models" / kFile; }
  // `COMMAND... --base-url URL --ca-file FILE`
  static std::vector<std::string> At(const HubServer& hub, std::vector<std::string> command) {
    for (const std::string& word : {std::string("--base-url"), hub.base_url(),
                                    std::string("--ca-file"), hub.ca_file().string()}) {
      command.push_back(word);
    }
    return command;
  }
  static ProgramResult Run(const std::vector<std::string>& command,
                           const Environment& changes = {}) {
    return RunMference(command, "", With(changes));
  }
  static Json LastLine(const std::string& lines) {
    const size_t end = lines.find_last_not_of('\n');
    const size_t begin = lines.rfind('\n', end);
    return Json::parse(lines.substr(begin == std::string::npos ? 0 : begin, end - begin + 1));
  }

  // An install whose first shard is saved and whose second one does not come.
  class Stalled {
   public:
    explicit Stalled(HubServer& hub) {
      hub.set_misbehave([](const HubRequest& request) {
        const bool payload = request.cdn && request.number >= 2;
        return payload && request.file.starts_with("model-00002") ? HubFault{.fault = Fault::kSlow}
                                                                  : HubFault{};
      });
      program_.emplace(At(hub, {"install", HubServer::kRepository}), "", With({}));
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (SavedBytes() == 0 && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      EXPECT_GT(SavedBytes(), 0u);
    }
    RunningProgram& program() { return *program_; }

   private:
    static uint64_t SavedBytes() {
      const auto saved = FindSavedDownload(Model());
      return saved ? saved->completed_source_bytes : 0;
    }
    std::optional<RunningProgram> program_;
  };

  static constexpr const char* kFile = "model.gturbo";
};

TEST_F(DownloadTest, InstallsWhatALocalInstallGives) {
  const HubServer hub(GoldenSnapshot("gemma4"));
  const ProgramResult result = Run(At(hub, {"install", HubServer::kRepository}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("Installed "));
  EXPECT_THAT(result.out, HasSubstr("Source revision: " + hub.commit() + "\n"));
  EXPECT_THAT(result.out, HasSubstr("Model: " + Model().string() + "\n"));
  EXPECT_THAT(result.err, HasSubstr("warning: tiny/model is not pinned"));
  auto remote = testing::ReadTree(Model());

  ASSERT_EQ(Run({"install", "--from", GoldenSnapshot("gemma4").string(), "model", "--overwrite"})
                .exit_code,
            0);
  auto local = testing::ReadTree(Model());
  remote.erase("verified-install.json");  // says when and from where
  local.erase("verified-install.json");
  EXPECT_TRUE(remote == local);
}

TEST_F(DownloadTest, AnUnknownAuthorityIsRefusedWithAdvice) {
  const HubServer hub(GoldenSnapshot("maple"));
  const std::vector<std::string> install = {"install", HubServer::kRepository, "--base-url",
                                            hub.base_url(), "--dry-run"};
  const ProgramResult refused = Run(install);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("--ca-file"));
  EXPECT_EQ(
      Run(install, {{"CURL_CA_BUNDLE", ""}, {"SSL_CERT_FILE", hub.ca_file().string()}}).exit_code,
      0);
}

TEST_F(DownloadTest, ProxiesAndTheirExceptions) {
  const HubServer mirror(GoldenSnapshot("maple"), HubStyle::kPlainMirror);
  const std::vector<std::string> install = {"install", HubServer::kRepository, "--dry-run"};
  // The mirror plays the proxy: it answers whatever host it is asked for.
  const ProgramResult proxied =
      Run(install, {{"HF_ENDPOINT", "http://hub.invalid"}, {"http_proxy", mirror.base_url()}});
  EXPECT_EQ(proxied.exit_code, 0) << proxied.err;
  EXPECT_THAT(mirror.requests().front().target, StartsWith("http://hub.invalid/tiny/model/"));
  const ProgramResult excepted = Run(install, {{"HF_ENDPOINT", mirror.base_url()},
                                               {"http_proxy", "http://127.0.0.1:9"},
                                               {"NO_PROXY", "localhost"}});
  EXPECT_EQ(excepted.exit_code, 0) << excepted.err;
}

TEST_F(DownloadTest, TokensFromTheEnvironmentAndTheTokenFile) {
  HubServer hub(GoldenSnapshot("maple"));
  hub.set_require_token(true);
  const auto install = At(hub, {"install", HubServer::kRepository, "--dry-run"});
  const ProgramResult refused = Run(install);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("HF_TOKEN"));
  EXPECT_THAT(refused.err, Not(HasSubstr("to go on"))) << "nothing was saved";

  const testing::TempDirectory home;
  testing::WriteAll(home / "token", std::string(HubServer::kToken) + "\n");
  for (const Environment& environment : {Environment{{"HF_TOKEN", HubServer::kToken}},
                                         Environment{{"HF_TOKEN_PATH", (home / "token").string()}},
                                         Environment{{"HF_HOME", home.path().string()}}}) {
    const ProgramResult result = Run(install, environment);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out + result.err, Not(HasSubstr(HubServer::kToken)));
  }
  const ProgramResult wrong = Run(install, {{"HF_TOKEN", "hf_wrong"}});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("the token does not open it"));
}

TEST_F(DownloadTest, ContinuesAfterAKill) {
  HubServer hub(GoldenSnapshot("gemma4"));
  {
    Stalled stalled(hub);
    stalled.program().Signal(SIGKILL);
    EXPECT_EQ(stalled.program().WaitForExit().exit_code, 128 + SIGKILL);
  }
  const ProgramResult list = Run({"list"});
  EXPECT_THAT(list.out, HasSubstr("unfinished"));
  const uint64_t saved = FindSavedDownload(Model())->completed_source_bytes;

  hub.set_misbehave({});
  const auto before = hub.ranges_served();
  const ProgramResult result = Run(At(hub, {"install", HubServer::kRepository, "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json done = LastLine(result.out);
  EXPECT_EQ(done.at("event"), "done");
  EXPECT_EQ(done.at("reused_bytes"), saved);
  // Of the shard that was saved only the header comes again: its length, and itself.
  const auto after = hub.ranges_served();
  int again = 0;
  for (size_t i = before.size(); i < after.size(); ++i) {
    again += after[i].starts_with("model-00001") &&
             std::find(before.begin(), before.end(), after[i]) != before.end();
  }
  EXPECT_EQ(again, 2);
  EXPECT_EQ(Run({"verify", "model"}).exit_code, 0);
}

TEST_F(DownloadTest, AnInterruptPausesAndSaysHowToGoOn) {
  HubServer hub(GoldenSnapshot("gemma4"));
  Stalled stalled(hub);
  const ProgramResult second = Run(At(hub, {"install", HubServer::kRepository}));
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr("another installer holds"));
  EXPECT_THAT(second.err, ::testing::ContainsRegex("process [0-9]+ on .* since 20[0-9-]+T"));

  stalled.program().Signal(SIGINT);
  const ProgramResult paused = stalled.program().WaitForExit();
  EXPECT_EQ(paused.exit_code, 130);
  EXPECT_THAT(paused.err, HasSubstr("\npaused; "));
  EXPECT_THAT(paused.err, HasSubstr(" are saved\n  to go on:    mference install tiny/model "
                                    "--base-url " +
                                    hub.base_url() + " --ca-file " + hub.ca_file().string() +
                                    "\n  to give up:  mference install --discard tiny/model\n"));

  const ProgramResult other = Run(At(hub, {"install", HubServer::kRepository, "--revision", "v2"}));
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("belongs to a different source"));

  const std::vector<std::string> discard = {"install", "--discard", "tiny/model"};
  const ProgramResult discarded = Run(discard);
  EXPECT_EQ(discarded.exit_code, 0) << discarded.err;
  EXPECT_EQ(discarded.out, "Discarded saved download for " + Model().string() + "\n");
  EXPECT_FALSE(std::filesystem::exists(Model().string() + ".partial"));
  EXPECT_EQ(Run(discard).exit_code, 1);
}

TEST_F(DownloadTest, ABrokenDownloadSaysWhatIsSaved) {
  HubServer hub(GoldenSnapshot("gemma4"));
  hub.set_misbehave([](const HubRequest& request) {
    const bool payload = request.cdn && request.number >= 2;
    return payload && request.file.starts_with("model-00002") ? HubFault{Fault::kStatus, 403}
                                                              : HubFault{};
  });
  const auto install = At(hub, {"install", HubServer::kRepository, "--connections", "1"});
  const ProgramResult broken = Run(install);
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_THAT(broken.err, HasSubstr("error: "));
  EXPECT_THAT(broken.err, HasSubstr("answered 403"));
  EXPECT_THAT(broken.err, HasSubstr(" are saved\n  to go on:    mference install tiny/model"));
  EXPECT_THAT(broken.err, Not(HasSubstr("X-Signature"))) << "signed addresses are secret";
  hub.set_misbehave({});
  EXPECT_EQ(Run(install).exit_code, 0);
}

TEST_F(DownloadTest, RetriesAreEvents) {
  HubServer hub(GoldenSnapshot("maple"));
  hub.set_misbehave([](const HubRequest& request) {
    return request.cdn && request.number == 2 ? HubFault{Fault::kStatus, 503} : HubFault{};
  });
  const ProgramResult result = Run(At(hub, {"install", HubServer::kRepository, "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  std::set<std::string> events;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    events.insert(Json::parse(line).at("event").get<std::string>());
  }
  EXPECT_THAT(events, ::testing::IsSupersetOf({"phase", "progress", "retry", "warning", "done"}));
}

TEST_F(DownloadTest, AuditsEveryRange) {
  const HubServer hub(GoldenSnapshot("maple"));
  const auto install = At(hub, {"install", HubServer::kRepository, "--audit", "--quiet",
                                "--connections", "2", "--rate-limit", "50M"});
  const ProgramResult result = Run(install);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json audit = Json::parse(result.out);
  EXPECT_EQ(audit.at("repo_id"), "tiny/model");
  EXPECT_EQ(audit.at("resolved_commit"), hub.commit());
  EXPECT_THAT(audit.at("ranges"), Not(IsEmpty()));
  EXPECT_GT(audit.at("verification_bytes_read"), 0) << "what no range carries is hashed too";

  auto again = install;
  again.insert(again.end(), {"--overwrite", "--skip-source-check"});
  EXPECT_EQ(Json::parse(Run(again).out).at("verification_bytes_read"), 0);
}

TEST_F(DownloadTest, RepairsFromTheHubByRanges) {
  const HubServer hub(GoldenSnapshot("maple"));
  ASSERT_EQ(Run(At(hub, {"install", HubServer::kRepository})).exit_code, 0);
  const std::filesystem::path layer = Model() / "packed_experts/layer_05.bin";
  const std::string good = testing::ReadAll(layer);
  std::string bad = good;
  bad[20'000] ^= 1;
  testing::WriteAll(layer, bad);

  const ProgramResult found = Run({"verify", "model"});
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_THAT(found.err, HasSubstr("`mference verify model --repair`"));
  const ProgramResult repaired = Run(At(hub, {"verify", "model", "--repair"}));
  EXPECT_EQ(repaired.exit_code, 0) << repaired.err;
  EXPECT_THAT(repaired.out,
              StartsWith("Repaired packed_experts/layer_05.bin\nFetched ranges: 1 ("));
  EXPECT_THAT(repaired.out, HasSubstr("\nVerified "));
  EXPECT_TRUE(testing::ReadAll(layer) == good);

  // Intact: nothing is asked of anybody.
  const size_t requests = hub.requests().size();
  const ProgramResult intact = Run(At(hub, {"verify", "model", "--repair", "--json"}));
  EXPECT_EQ(intact.exit_code, 0);
  EXPECT_EQ(Json::parse(intact.out).at("fetched_ranges"), 0);
  EXPECT_EQ(hub.requests().size(), requests);
}

TEST_F(DownloadTest, RepairsALocalInstallFromItsFiles) {
  const std::string snapshot = GoldenSnapshot("maple").string();
  ASSERT_EQ(Run({"install", "--from", snapshot, "model"}).exit_code, 0);
  EXPECT_EQ(Run({"verify", "model", "--repair"}).exit_code, 0) << "nothing to repair";
  std::filesystem::resize_file(Model() / "model_weights.bin", 100);
  std::filesystem::remove(Model() / "tokenizer/tokenizer.json");

  const ProgramResult stuck = Run({"verify", "model", "--repair"});
  EXPECT_EQ(stuck.exit_code, 1);
  EXPECT_THAT(stuck.err, HasSubstr("--repair --from DIR"));
  const ProgramResult other =
      Run({"verify", "model", "--repair", "--from", GoldenSnapshot("gemma4").string()});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("not installed from this source: nothing was changed"));

  const ProgramResult repaired = Run({"verify", "model", "--repair", "--from", snapshot, "--json"});
  ASSERT_EQ(repaired.exit_code, 0) << repaired.err;
  const Json report = Json::parse(repaired.out);
  EXPECT_TRUE(report.at("ok"));
  EXPECT_EQ(report.at("repaired"), Json({"model_weights.bin", "tokenizer/tokenizer.json"}));
  EXPECT_GT(report.at("fetched_bytes"), 0);
  EXPECT_EQ(Run({"verify", "model"}).exit_code, 0);
}

TEST_F(DownloadTest, DirectoriesAreForFrom) {
  for (const char* name : {"./x", "../x", "/tmp", "~/x", "..", "a/b/"}) {
    const ProgramResult result = Run({"install", name});
    EXPECT_EQ(result.exit_code, 2) << name;
    EXPECT_THAT(result.err, HasSubstr(std::string("mference install --from ") + name + " NAME"));
  }
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(DemoHome());
  std::filesystem::create_directories("some/where");
  const ProgramResult result = Run({"install", "some/where"});
  const ProgramResult named =
      Run({"install", "some/where", "--base-url", "http://localhost:9", "--discard"});
  std::filesystem::current_path(before);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--from some/where NAME"));
  EXPECT_THAT(result.err, HasSubstr("--revision main"));
  EXPECT_THAT(named.err, HasSubstr("--discard takes NAME or --output only"));
}

}  // namespace
}  // namespace mference
