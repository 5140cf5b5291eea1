#include "install/retry.h"

#include <gtest/gtest.h>

#include "install/http_client.h"

namespace mference {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(RetryDelay, DoublesUpToTheCapAndAddsJitter) {
  const RetryPolicy policy;
  EXPECT_EQ(RetryDelay(policy, 1, 0.0), milliseconds(1000));
  EXPECT_EQ(RetryDelay(policy, 2, 0.0), milliseconds(2000));
  EXPECT_EQ(RetryDelay(policy, 5, 0.0), milliseconds(16000));
  EXPECT_EQ(RetryDelay(policy, 60, 0.0), milliseconds(16000));
  EXPECT_EQ(RetryDelay(policy, 1, 0.5), milliseconds(1125));
  const RetryPolicy published{.base = milliseconds(100), .jitter = milliseconds(20)};
  EXPECT_EQ(RetryDelay(published, 1, 0.5), milliseconds(110));
  EXPECT_EQ(RetryDelay(published, 2, 0.5), milliseconds(210));
}

TEST(ParseRetryAfter, TakesSecondsAndTheThreeDateForms) {
  const RetryPolicy policy;
  constexpr std::time_t kNow = 784111777 - 30;  // half a minute before the dates below
  EXPECT_EQ(ParseRetryAfter("0", kNow, policy), seconds(0));
  EXPECT_EQ(ParseRetryAfter("3600", kNow, policy), seconds(3600));
  EXPECT_EQ(ParseRetryAfter("Sun, 06 Nov 1994 08:49:37 GMT", kNow, policy), seconds(30));
  EXPECT_EQ(ParseRetryAfter("Sunday, 06-Nov-94 08:49:37 GMT", kNow, policy), seconds(30));
  EXPECT_EQ(ParseRetryAfter("Sun Nov  6 08:49:37 1994", kNow, policy), seconds(30));
  EXPECT_EQ(ParseRetryAfter("Sun, 06 Nov 1994 08:49:37 GMT", kNow + 3600, policy), seconds(0));
  for (const char* bad : {"3601", "99999999999999999999", "-5", "soon", "", "1.5"}) {
    EXPECT_THROW(ParseRetryAfter(bad, kNow, policy), TransferError) << bad;
  }
}

TEST(WithRetries, StopsAtTheAttemptsUnlessThereIsProgress) {
  const RetryPolicy policy{.base = milliseconds(0), .jitter = milliseconds(0)};
  int calls = 0;
  int notices = 0;
  const auto notice = [&](const RetryNotice&) { ++notices; };
  const auto fail = [&](const std::function<void()>&) {
    ++calls;
    throw TransferError(ErrorCode::kNetwork, "broken", true);
  };
  EXPECT_THROW(WithRetries(policy, "x", {}, notice, fail), Error);
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(notices, 3);

  calls = 0;
  WithRetries(policy, "x", {}, {}, [&](const std::function<void()>& made_progress) {
    if (++calls == 20) return;
    made_progress();
    throw TransferError(ErrorCode::kNetwork, "broken", true);
  });
  EXPECT_EQ(calls, 20);

  calls = 0;
  EXPECT_THROW(WithRetries(policy, "x", {}, {},
                           [&](const std::function<void()>&) {
                             ++calls;
                             throw TransferError(ErrorCode::kNetwork, "final", false);
                           }),
               TransferError);
  EXPECT_EQ(calls, 1);
}

TEST(WithRetries, CancellationEndsTheWait) {
  const RetryPolicy policy{.base = milliseconds(600'000)};
  int calls = 0;
  try {
    WithRetries(
        policy, "x", [&] { return calls > 0; }, {},
        [&](const std::function<void()>&) {
          ++calls;
          throw TransferError(ErrorCode::kNetwork, "broken", true);
        });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  }
  EXPECT_EQ(calls, 1);
}

TEST(Url, OriginsAndRedactionAndResolution) {
  EXPECT_EQ(OriginOf("https://Hub.example/x"), OriginOf("https://hub.example:443/y"));
  EXPECT_FALSE(OriginOf("https://hub.example") == OriginOf("http://hub.example"));
  EXPECT_FALSE(OriginOf("https://hub.example") == OriginOf("https://hub.example.evil"));
  EXPECT_EQ(RedactUrl("https://u:p@host/a?X-Signature=1#f"), "https://host/a");
  EXPECT_EQ(ResolveUrl("https://host/a/b?q", "/c"), "https://host/c");
  EXPECT_EQ(ResolveUrl("https://host/a", "https://cdn/x?s=1"), "https://cdn/x?s=1");
  EXPECT_THROW(OriginOf("not an address"), Error);
}

}  // namespace
}  // namespace mference
