// Installs from a hub that behaves and from one that does not: every misbehaviour ends in a right
// install or in a clear error, and nothing corrupt is ever promoted.
#include "install/remote_install.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "format/verify_directory.h"
#include "install/hub_server.h"
#include "install/local_install.h"
#include "install/test_support.h"

namespace mference {
namespace {

using ::testing::Contains;
using testing::Fault;
using testing::GoldenSnapshot;
using ::testing::HasSubstr;
using testing::HubFault;
using testing::HubRequest;
using testing::HubServer;
using ::testing::Not;
using testing::ReadTree;
using testing::TempDirectory;

constexpr uint64_t kChunk = 131072;

RemoteOptions FastOptions(const HubServer& hub) {
  RemoteOptions options;
  options.base_url = hub.base_url();
  options.http.ca_file = hub.ca_file();
  options.http.stall_timeout = std::chrono::seconds(1);
  options.retry = {.base = std::chrono::milliseconds(1),
                   .longest = std::chrono::milliseconds(4),
                   .jitter = std::chrono::milliseconds(0)};
  return options;
}

InstallOptions SmallRanges(const std::filesystem::path& output) {
  InstallOptions options = testing::TestOptions(output);
  options.chunk_bytes = kChunk;
  return options;
}

RemoteTarget Target() {
  return {.repository = HubServer::kRepository, .revision = "main", .name = "tiny"};
}

// The payload and sidecars that an undisturbed local install of the same snapshot gives.
std::map<std::string, std::string> WithoutReceipt(const std::filesystem::path& directory) {
  auto tree = ReadTree(directory);
  tree.erase("verified-install.json");
  return tree;
}

const std::map<std::string, std::string>& ReferenceTree(const std::string& folder) {
  static std::map<std::string, std::map<std::string, std::string>> trees;
  auto& tree = trees[folder];
  if (tree.empty()) {
    const TempDirectory temp;
    InstallLocal(GoldenSnapshot(folder), "tiny", SmallRanges(temp / "m.gturbo"));
    tree = WithoutReceipt(temp / "m.gturbo");
  }
  return tree;
}

void ExpectIntact(const std::filesystem::path& directory, const std::string& folder) {
  EXPECT_TRUE(WithoutReceipt(directory) == ReferenceTree(folder)) << "the installs differ";
  VerifyOptions verify;
  verify.write_receipt = false;
  const VerifyReport report = VerifyDirectory(directory, verify);
  EXPECT_TRUE(report.ok());
  EXPECT_TRUE(report.unexpected.empty());
}

TEST(RemoteInstall, GivesTheSameBytesAsALocalOne) {
  for (const std::string& folder : testing::GoldenFolders()) {
    const bool xet = folder == "maple";
    HubServer hub(GoldenSnapshot(folder), xet);
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

// --- One fault at a time ---------------------------------------------------------------------

enum class Where { kHead, kSmallFile, kRange };
enum class Ends { kInstalled, kError };

struct FaultCase {
  std::string name;
  Where where;
  HubFault fault;
  bool always;  // or on one request only
  Ends ends;
  ErrorCode code = ErrorCode::kNetwork;
  std::string message{};
  bool xet = false;
};

bool IsAt(const HubRequest& request, Where where) {
  switch (where) {
    case Where::kHead:
      return !request.cdn && request.method == "HEAD";
    case Where::kSmallFile:
      return !request.cdn && request.method == "GET" && request.file == "tokenizer_config.json" &&
             request.target.starts_with("/api/");
    case Where::kRange:
      return request.cdn && request.file == "model.safetensors";
  }
  return false;
}

class MisbehavingHub : public ::testing::TestWithParam<FaultCase> {};

TEST_P(MisbehavingHub, EndsInARightInstallOrAClearError) {
  const FaultCase& fault_case = GetParam();
  HubServer hub(GoldenSnapshot("maple"), fault_case.xet);
  // Header reads come first; the fifth request for a shard is in the middle of its payload.
  const int victim = fault_case.where == Where::kRange ? 5 : 0;
  int seen = 0;
  hub.set_misbehave([&](const HubRequest& request) {
    if (!IsAt(request, fault_case.where)) return HubFault{};
    const int number = seen++;
    const bool now = fault_case.always ? number >= victim : number == victim;
    return now ? fault_case.fault : HubFault{};
  });
  const TempDirectory temp;
  const std::filesystem::path output = temp / "m.gturbo";
  InstallOptions options = SmallRanges(output);
  options.ranges_in_flight = 2;
  try {
    InstallRemote(Target(), FastOptions(hub), options);
    ASSERT_EQ(fault_case.ends, Ends::kInstalled) << "installed";
  } catch (const Error& error) {
    ASSERT_EQ(fault_case.ends, Ends::kError) << error.what();
    EXPECT_EQ(ErrorCodeName(error.code()), std::string(ErrorCodeName(fault_case.code)))
        << error.what();
    EXPECT_THAT(error.what(), HasSubstr(fault_case.message));
    EXPECT_THAT(error.what(), Not(HasSubstr("secret"))) << "a signed address was shown";
    EXPECT_FALSE(std::filesystem::exists(output)) << "something was promoted";
    // The fault goes away, and the same command finishes the job.
    hub.set_misbehave({});
    InstallRemote(Target(), FastOptions(hub), options);
  }
  ExpectIntact(output, "maple");
}

const FaultCase kFaultCases[] = {
    {"Head503Once", Where::kHead, {Fault::kStatus, 503}, false, Ends::kInstalled},
    {"HeadAlways500",
     Where::kHead,
     {Fault::kStatus, 500},
     true,
     Ends::kError,
     ErrorCode::kNetwork,
     "answered 500"},
    {"Head403",
     Where::kHead,
     {Fault::kStatus, 403},
     false,
     Ends::kError,
     ErrorCode::kNetwork,
     "HF_TOKEN"},
    {"HeadHangsUpOnce", Where::kHead, {Fault::kHangUp}, false, Ends::kInstalled},
    {"HeadNoCommit",
     Where::kHead,
     {Fault::kNoCommit},
     true,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "X-Repo-Commit"},
    {"HeadRedirectLoop",
     Where::kHead,
     {Fault::kRedirectLoop},
     true,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "more than five times"},
    {"SmallDropOnce",
     Where::kSmallFile,
     {.fault = Fault::kDropMidBody, .after_bytes = 20},
     false,
     Ends::kInstalled},
    {"SmallCorruptOnce", Where::kSmallFile, {Fault::kCorruptByte}, false, Ends::kInstalled},
    {"SmallCorruptAlways",
     Where::kSmallFile,
     {Fault::kCorruptByte},
     true,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "not what its ETag names"},
    {"SmallShort",
     Where::kSmallFile,
     {Fault::kShortBody},
     true,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "announced"},
    {"SmallGone",
     Where::kSmallFile,
     {Fault::kStatus, 404},
     true,
     Ends::kError,
     ErrorCode::kNetwork,
     "answered 404"},
    {"Drop", Where::kRange, {Fault::kDropMidBody}, false, Ends::kInstalled},
    {"DropAlways",
     Where::kRange,
     {.fault = Fault::kDropMidBody, .after_bytes = 100},
     true,
     Ends::kError,
     ErrorCode::kNetwork,
     "gave up after 4 attempts"},
    {"HangUp", Where::kRange, {Fault::kHangUp}, false, Ends::kInstalled},
    {"Slow", Where::kRange, {Fault::kSlow}, false, Ends::kInstalled},
    {"ShortBody",
     Where::kRange,
     {Fault::kShortBody},
     false,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "announced"},
    {"LongBody", Where::kRange, {Fault::kLongBody}, false, Ends::kInstalled},
    {"WrongRange",
     Where::kRange,
     {Fault::kWrongRange},
     false,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "sent range 'bytes 1-2/3'"},
    {"WrongTotal",
     Where::kRange,
     {Fault::kWrongTotal},
     false,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "sent range"},
    {"NoRangeHeader",
     Where::kRange,
     {Fault::kNoRangeHeader},
     false,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "sent range ''"},
    {"WholeFile",
     Where::kRange,
     {Fault::kWholeFile},
     false,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "200 instead of 206"},
    {"Compressed",
     Where::kRange,
     {Fault::kCompressed},
     false,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "gzip"},
    {"Corrupt",
     Where::kRange,
     {Fault::kCorruptByte},
     false,
     Ends::kError,
     ErrorCode::kSourceInvalid},
    {"OtherTag",
     Where::kRange,
     {Fault::kOtherTag},
     false,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "another ETag"},
    {"XetOtherTag",
     Where::kRange,
     {Fault::kOtherTag},
     false,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "content hash",
     true},
    {"XetWeakTag",
     Where::kRange,
     {Fault::kWeakTag},
     false,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "content hash",
     true},
    {"WeakTag", Where::kRange, {Fault::kWeakTag}, false, Ends::kInstalled},
    {"PlainRedirect",
     Where::kRange,
     {Fault::kPlainRedirect},
     false,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "not https"},
    {"RedirectLoop",
     Where::kRange,
     {Fault::kRedirectLoop},
     true,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "more than five times"},
    {"Status408", Where::kRange, {Fault::kStatus, 408}, false, Ends::kInstalled},
    {"Status429", Where::kRange, {Fault::kStatus, 429, "0"}, false, Ends::kInstalled},
    {"Status500", Where::kRange, {Fault::kStatus, 500}, false, Ends::kInstalled},
    {"Status502", Where::kRange, {Fault::kStatus, 502}, false, Ends::kInstalled},
    {"Status503", Where::kRange, {Fault::kStatus, 503}, false, Ends::kInstalled},
    {"Status504", Where::kRange, {Fault::kStatus, 504}, false, Ends::kInstalled},
    {"Status429Long",
     Where::kRange,
     {Fault::kStatus, 429, "3601"},
     false,
     Ends::kError,
     ErrorCode::kNetwork,
     "exceeds the 3600-second cap"},
    {"Status429Nonsense",
     Where::kRange,
     {Fault::kStatus, 429, "soon"},
     false,
     Ends::kError,
     ErrorCode::kSourceInvalid,
     "Retry-After 'soon'"},
    {"Status400",
     Where::kRange,
     {Fault::kStatus, 400},
     false,
     Ends::kError,
     ErrorCode::kNetwork,
     "answered 400"},
    {"Status404",
     Where::kRange,
     {Fault::kStatus, 404},
     false,
     Ends::kError,
     ErrorCode::kNetwork,
     "answered 404"},
    {"Status412",
     Where::kRange,
     {Fault::kStatus, 412},
     false,
     Ends::kError,
     ErrorCode::kNetwork,
     "answered 412"},
    {"Status416",
     Where::kRange,
     {Fault::kStatus, 416},
     false,
     Ends::kError,
     ErrorCode::kNetwork,
     "not as long"},
    {"Status501",
     Where::kRange,
     {Fault::kStatus, 501},
     false,
     Ends::kError,
     ErrorCode::kNetwork,
     "answered 501"},
};

INSTANTIATE_TEST_SUITE_P(All, MisbehavingHub, ::testing::ValuesIn(kFaultCases),
                         [](const auto& instance) { return instance.param.name; });

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
