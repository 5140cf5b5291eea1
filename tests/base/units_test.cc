#include "base/units.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace mference {
namespace {

TEST(ParseByteCount, AcceptsBinaryAndDecimalUnits) {
  EXPECT_EQ(ParseByteCount("4096"), 4096u);
  EXPECT_EQ(ParseByteCount("2GiB"), 2147483648u);
  EXPECT_EQ(ParseByteCount("2G"), 2147483648u);
  EXPECT_EQ(ParseByteCount("2GB"), 2000000000u);
  EXPECT_EQ(ParseByteCount("1.5 GiB"), 1610612736u);
  EXPECT_EQ(ParseByteCount("512kib"), 524288u);
}

TEST(ParseByteCount, RefusesWhatIsNoCount) {
  for (const char* text : {"", "GiB", "-1", "1e400", "2 bananas", "nan", "1GiBx", "1e30G"}) {
    EXPECT_THROW(ParseByteCount(text), Error) << text;
  }
}

TEST(RoundUp, ReachesTheNextMultipleAndRefusesOverflow) {
  EXPECT_EQ(RoundUp(0, 16384), 0u);
  EXPECT_EQ(RoundUp(3345408, 16384), 3358720u);  // one Gemma 4 expert in its stride
  EXPECT_THROW(RoundUp(UINT64_MAX - 1, 16384), Error);
}

}  // namespace
}  // namespace mference
