#include "cli/footer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/console.h"
#include "cli/install_progress.h"

namespace mference::cli {
namespace {

using testing::EndsWith;

// The format is parsed by scripts: the first five fields are the original's, the rest follows them.
TEST(FooterTest, IsOneLineOfKnownFields) {
  const FooterFacts facts{.reason = StopReason::kEndOfTurn,
                          .prompt_tokens = 57,
                          .reused_tokens = 31,
                          .new_tokens = 9,
                          .prefill_seconds = 0.037,
                          .decode_seconds = 4.5,
                          .first_token_seconds = 0.04,
                          .hit_rate = 0.98765,
                          .bytes_read = 9 * 1536 * 1024,
                          .resident_bytes = uint64_t{161} << 20,
                          .peak_resident_bytes = 0};
  EXPECT_EQ(FormatFooter(facts),
            "[stop=endOfTurn prefill=57tok/0.04s new=9tok decode=4.50s tok/s=2.000 ttft=0.04s "
            "hit=98.8% io=1.50MiB/tok rss=161MiB cached=31tok]");
}

TEST(FooterTest, NoTimeIsNoSpeed) {
  const FooterFacts facts{.reason = StopReason::kCancelled, .prompt_tokens = 5};
  EXPECT_EQ(FormatFooter(facts),
            "[stop=cancelled prefill=5tok/0.00s new=0tok decode=0.00s tok/s=0.000 ttft=0.00s "
            "hit=0.0% io=0.00MiB/tok rss=0MiB cached=0tok]");
}

TEST(TableTest, AlignsColumnsByCharacters) {
  Table table({"NAME", "SIZE"});
  table.AlignRight(1);
  table.Add({"é", "1"});
  table.Add({"longer", "100"});
  EXPECT_EQ(table.Format(), "NAME    SIZE\né          1\nlonger   100\n");
}

TEST(InstallProgressTest, DescribesRateAndRemainder) {
  InstallEvent event;
  event.kind = InstallEvent::Kind::kProgress;
  event.reused_bytes = 3'100'000'000;
  event.fresh_bytes = 2'920'000'000;
  event.total_bytes = 14'290'000'000;
  EXPECT_EQ(DescribeProgress(event, 33.18),
            " 42.1%  6.02/14.29 GB  reused 3.10 GB  88 MB/s  About 2 min remaining");
  event.fresh_bytes = 11'000'000'000;
  EXPECT_THAT(DescribeProgress(event, 33.18), EndsWith("  Less than a minute remaining"));
  event.fresh_bytes = 40'000'000;
  EXPECT_THAT(DescribeProgress(event, 20), EndsWith("  2 MB/s  About 2 hr remaining"));
  EXPECT_THAT(DescribeProgress(event, 9), EndsWith("  4 MB/s")) << "too early to tell";
  event.fresh_bytes = 34'000'000;
  EXPECT_THAT(DescribeProgress(event, 300), EndsWith("  More than a day remaining"));
}

}  // namespace
}  // namespace mference::cli
