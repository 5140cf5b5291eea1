// Automata against straightforward judges: std::regex, comparison of numbers, counting.
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "base/utf8.h"
#include "constrain/dfa.h"
#include "constrain/number_range.h"
#include "constrain/pattern.h"
#include "constrain/schema_corpus.h"
#include "constrain/text_automata.h"

namespace mference {
namespace {

using testing_support::Dice;

DfaPtr Make(const RegexPtr& regex) { return MakeDfa(regex).value(); }

std::string RandomBytes(Dice* dice, std::string_view alphabet, size_t most) {
  std::string text;
  for (size_t i = dice->Below(most + 1); i > 0; --i) text += alphabet[dice->Below(alphabet.size())];
  return text;
}

TEST(Dfa, KnowsTheShortestWayToTheEnd) {
  const DfaPtr dfa = Make(RegexAlternate({RegexLiteral("abcdef"), RegexLiteral("ax")}));
  EXPECT_EQ(dfa->distance(dfa->start()), 2u);
  EXPECT_EQ(dfa->max_distance(), 4u);  // behind "ab"
  EXPECT_EQ(Make(nullptr), nullptr);
  EXPECT_EQ(Make(RegexConcat({RegexLiteral("a"), nullptr})), nullptr);
}

TEST(Dfa, RefusesWhatWouldBeTooLarge) {
  const RegexPtr byte = RegexByte(0, 255);
  // Which byte stood 20 places before the end: 2^20 states.
  const RegexPtr hard = RegexConcat(
      {RegexRepeat(byte, 0, Regex::kUnbounded), RegexLiteral("x"), RegexRepeat(byte, 20, 20)});
  EXPECT_FALSE(MakeDfa(hard).has_value());
}

TEST(Dfa, LeavesOutASubstringWhereverItStands) {
  for (const std::string_view text : {"</p>", "aab", "aaaa", "abcabd", "x"}) {
    const DfaPtr without = MakeWithout(text);
    Dice dice(text.size());
    for (int i = 0; i < 3000; ++i) {
      const std::string sample = RandomBytes(&dice, "abcdx</p>", 14);
      EXPECT_EQ(without->Matches(sample), sample.find(text) == std::string::npos)
          << sample << " without " << text;
    }
  }
}

TEST(Dfa, CountsScalarsOfStrings) {
  const DfaPtr counted = CountRounds(*CanonicalJsonText(), 2, 3).value();
  EXPECT_FALSE(counted->Matches("é"));
  EXPECT_TRUE(counted->Matches("é\\n"));
  EXPECT_TRUE(counted->Matches("😀\\u001f日"));
  EXPECT_FALSE(counted->Matches("abcd"));
  EXPECT_EQ(CountRounds(*RawText(), 0, Regex::kUnbounded).value()->Matches("anything ü"), true);
}

TEST(TextAutomata, TakeExactlyValidUtf8) {
  Dice dice(5);
  for (int i = 0; i < 20000; ++i) {
    const std::string sample = RandomBytes(
        &dice, "a\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xED\xEF\xF0\xF1\xF4\xF5\xFF",
        5);
    EXPECT_EQ(RawText()->Matches(sample), IsValidUtf8(sample)) << testing::PrintToString(sample);
  }
}

TEST(TextAutomata, TakeTheEscapesOfJsonAndNoHalfPairs) {
  for (const char* good : {"", "a", "\\\"", "\\\\", "\\/", "\\b\\f\\n\\r\\t", "\\u0041", "\\uFFFF",
                           "\\uD83D\\uDE00", "\\ud83d\\ude00x", "\\ud7ff", "\\ue000", "ü\x7F"}) {
    EXPECT_TRUE(JsonStringText()->Matches(good)) << good;
  }
  for (const char* bad : {"\"", "\\", "\\x", "\\u12", "\\uD83D", "\\uDE00", "\\uD83D\\u0041",
                          "\\uD83Dx", "a\nb", "\t", "\xFF", "\xC3"}) {
    EXPECT_FALSE(JsonStringText()->Matches(bad)) << bad;
  }
}

TEST(TextAutomata, WhiteSpaceIsBounded) {
  EXPECT_TRUE(WhiteSpace()->Matches(""));
  EXPECT_TRUE(WhiteSpace()->Matches(" "));
  EXPECT_TRUE(WhiteSpace()->Matches("\n" + std::string(64, ' ')));
  EXPECT_TRUE(WhiteSpace()->Matches("\n\t\t"));
  EXPECT_FALSE(WhiteSpace()->Matches("  "));
  EXPECT_FALSE(WhiteSpace()->Matches("\n\n"));
  EXPECT_FALSE(WhiteSpace()->Matches("\n" + std::string(65, ' ')));
}

TEST(Decimal, ReadsEveryFormOfJsonNumber) {
  const auto check = [](const char* text, bool negative, const char* integer,
                        const char* fraction) {
    const Decimal decimal = Decimal::Parse(text);
    EXPECT_EQ(decimal.negative, negative) << text;
    EXPECT_EQ(decimal.integer, integer) << text;
    EXPECT_EQ(decimal.fraction, fraction) << text;
  };
  check("0", false, "0", "");
  check("-0.0", false, "0", "");
  check("12.50", false, "12", "5");
  check("-1e-07", true, "0", "0000001");
  check("1.5e+3", false, "1500", "");
  check("2.25e1", false, "22", "5");
}

TEST(NumberRange, HoldsExactlyTheIntegersWithinTheBounds) {
  Dice dice(1);
  for (int round = 0; round < 200; ++round) {
    const int a = static_cast<int>(dice.Below(round < 100 ? 40 : 3000)) - (round < 100 ? 20 : 1500);
    const int b = a + static_cast<int>(dice.Below(round < 100 ? 30 : 2500));
    const bool open_low = dice.Chance(30);
    const bool open_high = dice.Chance(30);
    NumberLimits limits{.low = {}, .high = {}, .integer = true};
    const bool has_low = dice.Chance(80);
    const bool has_high = !has_low || dice.Chance(80);
    if (has_low) limits.low = {Decimal::Parse(std::to_string(a)), open_low};
    if (has_high) limits.high = {Decimal::Parse(std::to_string(b)), open_high};
    const DfaPtr dfa = Make(RegexNumber(limits));
    for (int n = a - 60; n <= b + 60; ++n) {
      const bool inside =
          (!has_low || (open_low ? n > a : n >= a)) && (!has_high || (open_high ? n < b : n <= b));
      EXPECT_EQ(dfa != nullptr && dfa->Matches(std::to_string(n)), inside)
          << n << " in " << a << (open_low ? " <" : " <=") << " ... " << b;
    }
  }
  const DfaPtr dfa = Make(RegexNumber({.low = {}, .high = {}, .integer = true}));
  for (const char* bad : {"-0", "01", "+1", "1.0", "1e2", "", "-", "1234567890123456789"}) {
    EXPECT_FALSE(dfa->Matches(bad)) << bad;
  }
}

TEST(NumberRange, HoldsExactlyTheDecimalsWithinTheBounds) {
  const char* const bounds[][2] = {{"-1.25", "3.5"}, {"0", "1"},        {"0.1", "0.25"},
                                   {"-2", "-0.5"},   {"9.99", "10.01"}, {"-0.05", "0"}};
  for (const auto& [low, high] : bounds) {
    for (const bool open : {false, true}) {
      const DfaPtr dfa = Make(RegexNumber({.low = NumberBound{Decimal::Parse(low), open},
                                           .high = NumberBound{Decimal::Parse(high), open},
                                           .integer = false}));
      ASSERT_NE(dfa, nullptr);
      for (int n = -3000; n <= 12000; ++n) {
        const double value = n / 1000.0;
        const std::string text = fmt::format("{:.3f}", value);
        if (text == "-0.000") continue;
        const double from = std::stod(low);
        const double to = std::stod(high);
        const bool inside = open ? value > from && value < to : value >= from && value <= to;
        ASSERT_EQ(dfa->Matches(text), inside) << text << " in " << low << " to " << high;
      }
      EXPECT_FALSE(dfa->Matches("-0.0"));
      EXPECT_FALSE(dfa->Matches("1e0"));
    }
  }
  EXPECT_EQ(Make(RegexNumber({.low = NumberBound{Decimal::Parse("1"), true},
                              .high = NumberBound{Decimal::Parse("1"), false},
                              .integer = false})),
            nullptr);
}

TEST(NumberRange, UnboundedNumbersAreJsonsAndEnd) {
  const DfaPtr dfa = Make(RegexNumber({}));
  for (const char* good : {"0", "-0", "1", "-12.5", "1e5", "1E-07", "0.25", "999999999999999999"}) {
    EXPECT_TRUE(dfa->Matches(good)) << good;
  }
  for (const char* bad : {"01", ".5", "1.", "1e", "1e100", "+1", "--1", "1234567890123456789"}) {
    EXPECT_FALSE(dfa->Matches(bad)) << bad;
  }
}

TEST(Pattern, AgreesWithAnIndependentEngine) {
  const char* const patterns[] = {"^abc$",
                                  "a.c",
                                  "^(a|bc)*$",
                                  "^[a-c]+x?$",
                                  "b{2,3}",
                                  "^a{0,2}b$",
                                  "^[^ab]*$",
                                  "^\\d+(\\.\\d+)?$",
                                  "^\\w\\W\\s$",
                                  "x|^y|z$",
                                  "^(?:ab|c)+?d$",
                                  "^$",
                                  "",
                                  "[\\-x\\]]",
                                  "^a(b(c)?)?$",
                                  "\\.",
                                  "^[\\d_]{2}$",
                                  "(a|b)(c|1)$",
                                  "^.{3}$",
                                  "\\x61\\u0062"};
  for (const char* pattern : patterns) {
    const DfaPtr dfa = Make(ParsePattern(pattern, StringForm::kRaw));
    const std::regex judge(pattern);
    Dice dice(7);
    for (int i = 0; i < 3000; ++i) {
      const std::string sample = RandomBytes(&dice, "aabbccdxyz1. -]_\n", 6);
      ASSERT_EQ(dfa != nullptr && dfa->Matches(sample), std::regex_search(sample, judge))
          << testing::PrintToString(sample) << " and " << pattern;
    }
  }
}

TEST(Pattern, WorksOnScalarsAndWritesEscapesInJson) {
  const DfaPtr three = Make(ParsePattern("^.{3}$", StringForm::kRaw));
  EXPECT_TRUE(three->Matches("ü日😀"));
  EXPECT_FALSE(three->Matches("ü日"));
  const DfaPtr umlauts = Make(ParsePattern("^[ä-ü]+$", StringForm::kJson));
  EXPECT_TRUE(umlauts->Matches("äöü"));
  EXPECT_FALSE(umlauts->Matches("ý"));
  const DfaPtr escaped = Make(ParsePattern("^[\\t\"\\\\\\x01]+$", StringForm::kJson));
  EXPECT_TRUE(escaped->Matches("\\t\\\"\\\\\\u0001"));
  EXPECT_FALSE(escaped->Matches("\t"));
  EXPECT_FALSE(escaped->Matches("\""));
  EXPECT_TRUE(Make(ParsePattern("\\u{1F600}|\\uD83D\\uDE01", StringForm::kRaw))->Matches("x😁"));
}

TEST(Pattern, RefusesWhatItDoesNotUnderstandAndSaysWhere) {
  const std::pair<const char*, size_t> cases[] = {
      {"a(?=b)", 3},  {"(?!a)", 2},   {"(?<=a)b", 2}, {"(a)\\1", 3}, {"\\bword", 0},
      {"\\p{L}", 0},  {"a**", 2},     {"(a", 2},      {"a)", 1},     {"[a", 0},
      {"a{2", 3},     {"*a", 0},      {"[z-a]", 2},   {"a^b", 1},    {"a{3,1}", 2},
      {"\\uD83D", 0}, {"a{2000}", 2}, {"(^a)", 1},    {"a\\", 1},    {"\\x4", 3}};
  for (const auto& [pattern, offset] : cases) {
    try {
      ParsePattern(pattern, StringForm::kRaw);
      ADD_FAILURE() << pattern << " was accepted";
    } catch (const PatternError& error) {
      EXPECT_EQ(error.offset(), offset) << pattern << ": " << error.what();
    }
  }
  EXPECT_THROW(ParsePattern(std::string(2000, 'a'), StringForm::kRaw), PatternError);
  EXPECT_THROW(ParsePattern(std::string(1000, '('), StringForm::kRaw), PatternError);
}

}  // namespace
}  // namespace mference
