// Installs from a hub: the same bytes as a local install, whatever interrupts it, and a token that
// nobody else sees.
#include "install/remote_install.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "install/hub_server.h"
#include "install/remote_support.h"
#include "install/test_support.h"

namespace mference {
namespace {

using testing::ExpectIntact;
using testing::FastOptions;
using testing::Fault;
using testing::GoldenSnapshot;
using ::testing::HasSubstr;
using testing::HubFault;
using testing::HubRequest;
using testing::HubServer;
using testing::HubStyle;
using testing::SmallRanges;
using testing::Target;
using testing::TempDirectory;

constexpr uint64_t kChunk = testing::kRemoteChunk;

TEST(RemoteInstall, GivesTheSameBytesAsALocalOne) {
  for (const std::string& folder : testing::GoldenFolders()) {
    const HubStyle style = folder == "maple"     ? HubStyle::kXet
                           : folder == "inkling" ? HubStyle::kPlainMirror
                                                 : HubStyle::kLinked;
    HubServer hub(GoldenSnapshot(folder), style);
    const TempDirectory temp;
    InstallOptions options = SmallRanges(temp / "m.gturbo");
    options.ranges_in_flight = folder == "gemma4" ? 1 : 4;
    const InstallResult result = InstallRemote(Target(), FastOptions(hub), options);
    ExpectIntact(result.directory, folder);
    EXPECT_EQ(result.audit.source.commit, hub.commit());
    EXPECT_TRUE(result.audit.retries.empty());
    // No range twice.
    const std::vector<std::string> ranges = hub.ranges_served();
    EXPECT_EQ(std::set(ranges.begin(), ranges.end()).size(), ranges.size());
  }
}

TEST(RemoteInstall, ShowsTheTokenToTheHubAlone) {
  HubServer hub(GoldenSnapshot("maple"));
  hub.set_require_token(true);
  const TempDirectory temp;
  RemoteOptions remote = FastOptions(hub);
  try {
    InstallRemote(Target(), remote, SmallRanges(temp / "m.gturbo"));
    FAIL() << "installed without a token";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNetwork);
    EXPECT_THAT(error.what(), HasSubstr("HF_TOKEN"));
  }
  EXPECT_FALSE(std::filesystem::exists(temp / "m.gturbo.partial"));

  remote.token = HubServer::kToken;
  InstallRemote(Target(), remote, SmallRanges(temp / "m.gturbo"));
  int hub_requests = 0;
  for (const HubRequest& request : hub.requests()) {
    if (request.cdn) {
      EXPECT_FALSE(request.authorized) << request.target;
    } else {
      hub_requests += request.authorized;
    }
  }
  EXPECT_GT(hub_requests, 5);
}

TEST(RemoteInstall, ATokenThatWasTakenAwayStaysAway) {
  HubServer hub(GoldenSnapshot("maple"));
  hub.set_misbehave([](const HubRequest& request) {
    return request.cdn ? HubFault{.fault = Fault::kBounce} : HubFault{};
  });
  const TempDirectory temp;
  RemoteOptions remote = FastOptions(hub);
  remote.token = HubServer::kToken;
  EXPECT_THROW(InstallRemote(Target(), remote, SmallRanges(temp / "m.gturbo")), Error);
  // The bounced requests go to a path of their own.
  int bounced = 0;
  for (const HubRequest& request : hub.requests()) {
    if (request.target.find("/resolve/x/") == std::string::npos) continue;
    ++bounced;
    EXPECT_FALSE(request.authorized);
  }
  EXPECT_GT(bounced, 0);
}

TEST(RemoteInstall, ACorruptedShardIsFoundOutAndFetchedAgain) {
  HubServer hub(GoldenSnapshot("gemma4"));
  hub.set_misbehave([](const HubRequest& request) {
    const bool victim =
        request.cdn && request.file == "model-00001-of-00002.safetensors" && request.number == 4;
    return victim ? HubFault{.fault = Fault::kCorruptByte} : HubFault{};
  });
  const TempDirectory temp;
  InstallOptions options = SmallRanges(temp / "m.gturbo");
  try {
    InstallRemote(Target(), FastOptions(hub), options);
    FAIL() << "installed corrupt bytes";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSourceInvalid);
    EXPECT_THAT(error.what(), HasSubstr("another SHA-256"));
  }
  EXPECT_FALSE(std::filesystem::exists(temp / "m.gturbo"));
  EXPECT_EQ(FindSavedDownload(temp / "m.gturbo")->completed_source_bytes, 0u);
  hub.set_misbehave({});
  InstallRemote(Target(), FastOptions(hub), options);
  ExpectIntact(temp / "m.gturbo", "gemma4");
}

// Interrupted after every range: the running hash of the shards goes from process to process.
TEST(RemoteInstall, VerificationSurvivesInterruptions) {
  HubServer hub(GoldenSnapshot("gemma4"));
  const TempDirectory temp;
  InstallOptions options = SmallRanges(temp / "m.gturbo");
  options.ranges_in_flight = 1;
  int runs = 0;
  for (bool done = false; !done; ++runs) {
    ASSERT_LT(runs, 100);
    int ranges = 0;
    hub.set_misbehave([&](const HubRequest& request) {
      // Headers cost two requests per shard in each run; then one range or gap gets through.
      return request.cdn && ++ranges > 4 + 2 ? HubFault{Fault::kStatus, 400} : HubFault{};
    });
    try {
      const InstallResult result = InstallRemote(Target(), FastOptions(hub), options);
      done = true;
      EXPECT_GT(result.audit.reused_source_bytes, 0u);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kNetwork) << error.what();
    }
  }
  EXPECT_GT(runs, 5);
  ExpectIntact(temp / "m.gturbo", "gemma4");
  const Checkpoint seal = ReadCheckpoint(PosixFiles(), temp / "m.gturbo.ranges.json");
  EXPECT_EQ(seal.source_progress.verified_shards.size(), 2u);
}

TEST(RemoteInstall, BreaksContinueWhereTheyHappened) {
  HubServer hub(GoldenSnapshot("maple"));
  // Every range breaks off after 40,000 bytes, forever: each attempt gets that much further.
  hub.set_misbehave([](const HubRequest& request) {
    const bool payload = request.cdn && request.number >= 2;
    return payload ? HubFault{.fault = Fault::kDropMidBody, .after_bytes = 300'000} : HubFault{};
  });
  const TempDirectory temp;
  InstallOptions options = testing::TestOptions(temp / "m.gturbo");
  const InstallResult result = InstallRemote(Target(), FastOptions(hub), options);
  EXPECT_EQ(result.audit.range_count, 1u);  // 1.9 MB in one range
  EXPECT_GE(result.audit.retries.size(), 5u);
  ExpectIntact(result.directory, "maple");
}

TEST(RemoteInstall, PausesAndContinuesWithoutFetchingTwice) {
  HubServer hub(GoldenSnapshot("gemma4"));
  const TempDirectory temp;
  std::atomic<bool> cancelled = false;
  InstallOptions options = SmallRanges(temp / "m.gturbo");
  options.cancelled = &cancelled;
  options.ranges_in_flight = 1;
  options.background = false;
  hub.set_misbehave([&](const HubRequest& request) {
    if (request.cdn && request.number == 8) cancelled = true;
    return HubFault{};
  });
  try {
    InstallRemote(Target(), FastOptions(hub), options);
    FAIL() << "was not stopped";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  }
  const auto saved = FindSavedDownload(temp / "m.gturbo");
  ASSERT_TRUE(saved);
  EXPECT_GT(saved->completed_source_bytes, 4 * kChunk);
  EXPECT_LT(saved->completed_source_bytes, saved->total_source_bytes);

  cancelled = false;
  hub.set_misbehave({});
  const InstallResult result = InstallRemote(Target(), FastOptions(hub), options);
  EXPECT_EQ(result.audit.reused_source_bytes, saved->completed_source_bytes);
  ExpectIntact(result.directory, "gemma4");
  std::map<std::string, int> served;
  for (const std::string& range : hub.ranges_served()) ++served[range];
  for (const InstallAudit::Range& range : result.audit.ranges) {
    if (!range.reused) continue;
    const std::string key =
        fmt::format("{} bytes={}-{}", range.shard, range.offset, range.offset + range.bytes - 1);
    EXPECT_EQ(served[key], 1) << key;
  }
}

TEST(RemoteInstall, AChangedSourceIsNotContinued) {
  HubServer hub(GoldenSnapshot("maple"));
  const TempDirectory temp;
  InstallOptions options = SmallRanges(temp / "m.gturbo");
  hub.set_misbehave([](const HubRequest& request) {
    return request.cdn && request.number >= 6 ? HubFault{Fault::kStatus, 400} : HubFault{};
  });
  EXPECT_THROW(InstallRemote(Target(), FastOptions(hub), options), Error);
  hub.set_misbehave({});
  std::string index = testing::ReadAll(GoldenSnapshot("maple") / "model.safetensors.index.json");
  hub.Replace("model.safetensors.index.json", index + "\n");
  try {
    InstallRemote(Target(), FastOptions(hub), options);
    FAIL() << "continued with another source";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInstallState);
    EXPECT_THAT(error.what(), HasSubstr("discard"));
  }
  DiscardPartialInstall(temp / "m.gturbo");
  InstallRemote(Target(), FastOptions(hub), options);
}

TEST(RemoteInstall, AMissingIndexLeavesNothing) {
  HubServer hub(GoldenSnapshot("maple"));
  hub.Remove("model.safetensors.index.json");
  const TempDirectory temp;
  EXPECT_THROW(InstallRemote(Target(), FastOptions(hub), SmallRanges(temp / "m.gturbo")), Error);
  int asked = 0;
  for (const HubRequest& request : hub.requests()) {
    asked += request.file == "model.safetensors.index.json";
  }
  EXPECT_EQ(asked, 1) << "404 is not worth another attempt";
  EXPECT_FALSE(std::filesystem::exists(temp / "m.gturbo.partial"));
}

TEST(RemoteInstall, ARequiredSidecarIsMissedBeforeThePayload) {
  HubServer hub(GoldenSnapshot("maple"));
  hub.Remove("tokenizer.json");
  const TempDirectory temp;
  try {
    InstallRemote(Target(), FastOptions(hub), SmallRanges(temp / "m.gturbo"));
    FAIL() << "installed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("tokenizer.json"));
  }
  EXPECT_FALSE(std::filesystem::exists(temp / "m.gturbo.partial"));
}

TEST(RemoteInstall, AnUnknownAuthorityIsRefused) {
  HubServer hub(GoldenSnapshot("maple"));
  const TempDirectory temp;
  RemoteOptions remote = FastOptions(hub);
  remote.http.ca_file.clear();
  try {
    InstallRemote(Target(), remote, SmallRanges(temp / "m.gturbo"));
    FAIL() << "trusted a stranger";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNetwork);
  }
}

// Sets an environment variable for a scope.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~ScopedEnvironment() { unsetenv(name_); }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  const char* name_;
};

TEST(RemoteInstall, HonoursProxiesAndTheirExceptions) {
  HubServer hub(GoldenSnapshot("maple"));
  const TempDirectory temp;
  RemoteOptions remote = FastOptions(hub);
  remote.retry.attempts = 1;
  const ScopedEnvironment proxy("https_proxy", "http://127.0.0.1:9");  // nobody there
  EXPECT_THROW(InstallRemote(Target(), remote, SmallRanges(temp / "m.gturbo")), Error);
  const ScopedEnvironment exception("no_proxy", "localhost,127.0.0.1");
  InstallRemote(Target(), remote, SmallRanges(temp / "m.gturbo"));
}

TEST(RemoteInstall, ReadsTheHubsEnvironment) {
  const TempDirectory temp;
  testing::WriteAll(temp / "token", "hf_from_file\n");
  const ScopedEnvironment endpoint("HF_ENDPOINT", "https://mirror.example/");
  const ScopedEnvironment path("HF_TOKEN_PATH", (temp / "token").string());
  EXPECT_EQ(RemoteOptionsFromEnvironment("a/b", "main").base_url, "https://mirror.example/");
  EXPECT_EQ(RemoteOptionsFromEnvironment("a/b", "main").token, "hf_from_file");
  {
    const ScopedEnvironment token("HF_TOKEN", "hf_direct");
    EXPECT_EQ(RemoteOptionsFromEnvironment("a/b", "main").token, "hf_direct");
  }
  const ScopedEnvironment forged("HF_TOKEN", "a\r\nX-Evil: 1");
  EXPECT_THROW(RemoteOptionsFromEnvironment("a/b", "main"), Error);
}

TEST(RemoteInstall, RateLimitHolds) {
  HubServer hub(GoldenSnapshot("maple"));
  const TempDirectory temp;
  RemoteOptions remote = FastOptions(hub);
  remote.rate_limit_bytes_per_s = 4'000'000;
  const InstallResult result = InstallRemote(Target(), remote, SmallRanges(temp / "m.gturbo"));
  // All but what was in flight at the end is accounted for before it is used.
  EXPECT_GT(result.audit.wall_time_s,
            0.8 * static_cast<double>(result.audit.source_bytes) / 4'000'000);
}

TEST(ResolveRemote, KnowsPinsAliasesAndRepositories) {
  const RemoteTarget pin = ResolveRemote("gemma4", "");
  EXPECT_EQ(pin.revision, "0d77464eeb233a2da68ebf9d7dc4edaac7db956d");
  EXPECT_NE(pin.expected, nullptr);
  EXPECT_EQ(ResolveRemote("MLX-community/gemma-4-26b-a4b-it-4bit", "").name, "gemma4");
  EXPECT_EQ(ResolveRemote("gemma4", "main").expected, nullptr);
  const RemoteTarget other = ResolveRemote("someone/their-model", "");
  EXPECT_EQ(other.revision, "main");
  EXPECT_EQ(other.name, "their-model");
  EXPECT_THROW(ResolveRemote("unheard-of", ""), Error);
  const auto open = [](const char* repository, const char* revision, const char* base_url) {
    RemoteOptions options;
    options.repository = repository;
    options.revision = revision;
    options.base_url = base_url;
    RemoteSource source(options);
  };
  EXPECT_NO_THROW(open("a/b", "refs/pr/1", "https://host"));
  EXPECT_THROW(open("../etc", "main", "https://host"), Error);
  EXPECT_THROW(open("a/b/c", "main", "https://host"), Error);
  EXPECT_THROW(open("a/b", "../../x", "https://host"), Error);
  EXPECT_THROW(open("a/b", "main", "ftp://host"), Error);
}

}  // namespace
}  // namespace mference
