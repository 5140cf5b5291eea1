#include "text/tokenizer/nfc.h"

#include <gtest/gtest.h>

#include "text/tokenizer/test_tokenizers.h"

namespace mference {
namespace {

std::string Nfc(std::string_view text) {
  std::string out;
  AppendNfc(text, &out);
  return out;
}

TEST(Nfc, MatchesTheReference) {
  const Json cases = ReadJsonFile(TokenizerData("nfc_cases.json"));
  ASSERT_GT(cases.size(), 500U);
  for (const Json& test : cases) {
    const auto text = test.at("text").get<std::string>();
    const auto expected = test.at("nfc").get<std::string>();
    EXPECT_EQ(Nfc(text), expected) << test;
    EXPECT_EQ(Nfc(expected), expected) << test;
    if (IsNfcQuick(text)) {
      EXPECT_EQ(text, expected) << test;
    }
  }
}

// Examples of UAX #15, figures 3 to 6.
TEST(Nfc, ExamplesOfTheStandard) {
  EXPECT_EQ(Nfc("\u212B"), "\u00C5");
  EXPECT_EQ(Nfc("\u2126"), "\u03A9");
  EXPECT_EQ(Nfc("A\u030A"), "\u00C5");
  EXPECT_EQ(Nfc("s\u0323\u0307"), "\u1E69");
  EXPECT_EQ(Nfc("\u1E0B\u0323"), "\u1E0D\u0307");
  EXPECT_EQ(Nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(Nfc("\uFB01"), "\uFB01");
}

TEST(Nfc, QuickCheckPassesCommonText) {
  EXPECT_TRUE(IsNfcQuick("plain text, ça va, Привет, 日本語, 한국어, 😀"));
  EXPECT_FALSE(IsNfcQuick("e\u0301"));
}

TEST(Nfc, ALongRunOfMarksIsOrdered) {
  std::string marks = "a";
  for (int i = 0; i < 100'000; ++i) marks += i % 2 == 0 ? "\u0301" : "\u0323";
  const std::string normal = Nfc(marks);
  EXPECT_TRUE(normal.starts_with("\u1EA1\u0323\u0323"));  // dots below come first, one is composed
  EXPECT_TRUE(normal.ends_with("\u0301\u0301"));
  EXPECT_EQ(Nfc(normal), normal);
}

}  // namespace
}  // namespace mference
