#include "text/dialects/literal_reader.h"

#include <gtest/gtest.h>

#include <string>

namespace mference {
namespace {

std::string Json(std::string_view text, LiteralSyntax syntax = {}) {
  const LiteralValue value = ReadLiteral(text, syntax);
  if (!value.error) return value.json;
  return std::string(value.error->too_deep ? "too deep" : "error") + " at " +
         std::to_string(value.error->offset);
}

TEST(LiteralReaderTest, ReadsJsonIntoItsCompactForm) {
  EXPECT_EQ(Json(" { \"b\" : [ 1 , true , null ] , \"a\" : { } } "),
            "{\"b\":[1,true,null],\"a\":{}}");
  EXPECT_EQ(Json("\"\\u00e9 \\ud83c\\udf33 \\/ \\b\\f\\n\\r\\t \\u0001\""),
            "\"é 🌳 / \\b\\f\\n\\r\\t \\u0001\"");
}

TEST(LiteralReaderTest, KeepsTheDigitsOfNumbers) {
  for (const char* number : {"0", "-0", "-0.10", "1e+05", "1E-2", "18446744073709551616",
                             "-123456789012345678901234567890.5"}) {
    EXPECT_EQ(Json(number), number);
  }
}

TEST(LiteralReaderTest, RefusesWhatIsNotJson) {
  for (const char* text : {"",
                           " ",
                           "01",
                           "+1",
                           ".5",
                           "1.",
                           "1e",
                           "-",
                           "NaN",
                           "Infinity",
                           "True",
                           "[1,]",
                           "{\"a\":1,}",
                           "{a:1}",
                           "{\"a\" 1}",
                           "[1 2]",
                           "[1",
                           "{",
                           "\"a",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\ud83c\"",
                           "\"\\udf33\"",
                           "\"\\ud83c\\u0041\"",
                           "\"\\ud83cx\"",
                           "\"a\nb\"",
                           "{}{}",
                           "[}",
                           "{]",
                           "]",
                           "{,}",
                           "[,]",
                           "{\"a\"}",
                           "'a'",
                           "\xFF"}) {
    EXPECT_TRUE(Json(text).starts_with("error")) << text << " -> " << Json(text);
  }
}

TEST(LiteralReaderTest, SaysWhere) {
  EXPECT_EQ(Json("{\"a\": 01}"), "error at 6");
  EXPECT_EQ(Json("{\"a\": [1, 2}"), "error at 11");
  EXPECT_EQ(Json("[\"abc"), "error at 1");
}

TEST(LiteralReaderTest, ReadsGemmasRelaxations) {
  const LiteralSyntax gemma{.gemma = true};
  EXPECT_EQ(Json("{a:1,b-c.$:\xFFx\"\\y\xFF,\xFF@k\xFF:[True,False,None,],}", gemma),
            "{\"a\":1,\"b-c.$\":\"x\\\"\\\\y\",\"@k\":[true,false,null]}");
  EXPECT_TRUE(Json("{a:b}", gemma).starts_with("error"));
  EXPECT_TRUE(Json("{a:1,,b:2}", gemma).starts_with("error"));
  EXPECT_TRUE(Json("{a:1\xFF}", gemma).starts_with("error"));
}

TEST(LiteralReaderTest, TheLastOfRepeatedKeysCounts) {
  EXPECT_EQ(Json("{\"a\":1,\"b\":2,\"a\":3}"), "{\"b\":2,\"a\":3}");
  EXPECT_EQ(
      Json("{\"a\":{\"x\":1,\"x\":2},\"\\u0061\":{\"y\":1,\"y\":2},\"c\":[{\"z\":1,\"z\":2}]}"),
      "{\"a\":{\"y\":2},\"c\":[{\"z\":2}]}");
  EXPECT_EQ(Json("{\"a\":1,\"a\":2,\"a\":3}"), "{\"a\":3}");
  EXPECT_TRUE(Json("{\"a\":1,\"\\u0061\":2}", {.unique_keys = true}).starts_with("error"));
}

TEST(LiteralReaderTest, BoundsTheDepth) {
  const auto nest = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(Json(nest(64)), nest(64));
  EXPECT_EQ(Json(nest(65)), "too deep at 64");
  // Not JSON at all comes before too deep, up to a point.
  EXPECT_TRUE(Json(std::string(70, '[')).starts_with("error"));
  EXPECT_EQ(Json(std::string(200000, '[')), "too deep at 64");
}

TEST(LiteralReaderTest, GrowsAsInputArrives) {
  LiteralReader reader({});
  reader.Push("{\"a\":\"x");
  EXPECT_EQ(reader.json().text(), "{\"a\":\"x");
  reader.Push("y\",\"n\":12");
  EXPECT_EQ(reader.json().text(), "{\"a\":\"xy\",\"n\":");  // 123 may follow
  reader.Push("3}");
  EXPECT_EQ(reader.json().text(), "{\"a\":\"xy\",\"n\":123}");
  EXPECT_FALSE(reader.Finish());
  ASSERT_EQ(reader.members().size(), 2u);
  EXPECT_EQ(reader.members()[1].key, "n");
}

}  // namespace
}  // namespace mference
