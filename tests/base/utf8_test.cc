// Well-formedness after table 3-7 of the Unicode Standard, and the substitution of maximal subparts
// after its table 3-8.
#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mference {
namespace {

using namespace std::string_view_literals;

TEST(Utf8, EveryScalarIsReadBack) {
  for (uint32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code == 0xD800) code = 0xE000;
    std::string text;
    AppendUtf8(text, code);
    const Utf8Step step = DecodeUtf8(text);
    ASSERT_EQ(step.status, Utf8Status::kValid) << code;
    ASSERT_EQ(step.code, code);
    ASSERT_EQ(step.length, text.size());
    ASSERT_EQ(DecodeValidUtf8(text).code, code);
    ASSERT_EQ(PreviousUtf8(text, text.size()), 0u);
    ASSERT_TRUE(IsValidUtf8(text)) << code;
  }
}

TEST(Utf8, BordersOfEveryRange) {
  for (const std::string_view text :
       {""sv, "\x7F"sv, "\xC2\x80"sv, "\xDF\xBF"sv, "\xE0\xA0\x80"sv, "\xED\x9F\xBF"sv,
        "\xEE\x80\x80"sv, "\xF0\x90\x80\x80"sv, "\xF4\x8F\xBF\xBF"sv, "a\0b"sv}) {
    EXPECT_TRUE(IsValidUtf8(text)) << testing::PrintToString(text);
  }
  for (const std::string_view text :
       {"\x80"sv, "\xC1\xBF"sv, "\xC2"sv, "\xC2\x7F"sv, "\xE0\x9F\xBF"sv, "\xED\xA0\x80"sv,
        "\xEF\xBF"sv, "\xF0\x8F\xBF\xBF"sv, "\xF4\x90\x80\x80"sv, "\xF5\x80\x80\x80"sv, "\xFF"sv}) {
    EXPECT_FALSE(IsValidUtf8(text)) << testing::PrintToString(text);
    EXPECT_FALSE(IsValidUtf8("before " + std::string(text) + " after"));
  }
}

TEST(Utf8, OneReplacementPerMaximalSubpart) {
  const std::string_view text = "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"sv;
  std::vector<uint32_t> codes;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = DecodeUtf8(text.substr(i));
    codes.push_back(step.code);
    i += step.length;
  }
  EXPECT_EQ(codes, (std::vector<uint32_t>{0x61, 0xFFFD, 0xFFFD, 0xFFFD, 0x62, 0xFFFD, 0x63, 0xFFFD,
                                          0xFFFD, 0x64}));
  EXPECT_EQ(DecodeUtf8("\xF1\x80"sv).status, Utf8Status::kIncomplete);
  EXPECT_EQ(DecodeUtf8("\xF1\x41"sv).status, Utf8Status::kInvalid);
}

}  // namespace
}  // namespace mference
