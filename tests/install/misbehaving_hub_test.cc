// A hub that misbehaves in one way at a time: every misbehaviour ends in a right install or in a
// clear error, and nothing corrupt is ever promoted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "install/hub_server.h"
#include "install/remote_install.h"
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
using ::testing::Not;
using testing::SmallRanges;
using testing::Target;
using testing::TempDirectory;

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
  HubServer hub(GoldenSnapshot("maple"),
                fault_case.xet ? testing::HubStyle::kXet : testing::HubStyle::kLinked);
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
  RemoteOptions remote = FastOptions(hub);
  if (fault_case.fault.fault == Fault::kSlow) remote.http.stall_timeout = std::chrono::seconds(1);
  try {
    InstallRemote(Target(), remote, options);
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

}  // namespace
}  // namespace mference
