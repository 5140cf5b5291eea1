#include "text/tokenizer/split_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "base/error.h"
#include "text/tokenizer/pre_tokenizer.h"

namespace mference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::vector<std::string> Pieces(std::string_view pattern, SplitBehavior behavior, bool invert,
                                std::string_view text) {
  std::vector<Split> splits;
  splits.push_back({SplitPattern(pattern, "test"), behavior, invert});
  MatchScratch scratch;
  std::vector<std::string> pieces;
  auto sink = [&](std::string_view piece) { pieces.emplace_back(piece); };
  PreTokenizer(std::move(splits)).Run(text, &scratch, sink);
  return pieces;
}

std::vector<std::string> Isolated(std::string_view pattern, std::string_view text) {
  return Pieces(pattern, SplitBehavior::kIsolated, false, text);
}

std::string Refusal(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTokenizerInvalid);
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

// The split checks of the o200k pattern's documentation.
TEST(SplitPattern, SplitsAsO200kDoes) {
  EXPECT_THAT(Isolated(kO200k, "HELLO"), ElementsAre("HELLO"));
  EXPECT_THAT(Isolated(kO200k, "can'T"), ElementsAre("can'T"));
  EXPECT_THAT(Isolated(kO200k, "1234"), ElementsAre("123", "4"));
  EXPECT_THAT(Isolated(kO200k, "hi.\n/x"), ElementsAre("hi", ".\n/", "x"));
  EXPECT_THAT(Isolated(kO200k, " 5"), ElementsAre(" ", "5"));
  EXPECT_THAT(Isolated(kO200k, "e\u0301a"), ElementsAre("e\u0301a"));
}

TEST(SplitPattern, WhiteSpaceIsThatOfUnicode) {
  // U+0085 and U+3000 are white space; U+180E and U+200B are not.
  EXPECT_THAT(Isolated(R"(\s+)", "a\u0085\u3000b\u180Ec\u200Bd"),
              ElementsAre("a", "\u0085\u3000", "b\u180Ec\u200Bd"));
  EXPECT_THAT(Isolated(R"([^\s]+)", "a\u0085b\u180E"), ElementsAre("a", "\u0085", "b\u180E"));
  EXPECT_THAT(Isolated(R"(\S+)", "a\u0085b\u180E"), ElementsAre("a", "\u0085", "b\u180E"));
}

TEST(SplitPattern, BehavioursAndInversion) {
  const auto pieces = [](SplitBehavior behavior, bool invert) {
    return Pieces("-", behavior, invert, "-a--b");
  };
  EXPECT_THAT(pieces(SplitBehavior::kIsolated, false), ElementsAre("-", "a", "-", "-", "b"));
  EXPECT_THAT(pieces(SplitBehavior::kRemoved, false), ElementsAre("a", "b"));
  EXPECT_THAT(pieces(SplitBehavior::kRemoved, true), ElementsAre("-", "-", "-"));
  // The example of the format's documentation: "the-final--countdown".
  EXPECT_THAT(Pieces("-", SplitBehavior::kMergedWithPrevious, false, "the-final--countdown"),
              ElementsAre("the-", "final-", "-", "countdown"));
}

TEST(SplitPattern, UnsupportedConstructsAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(\w+)", "'\\w'"},
      {R"(\bword)", "'\\b'"},
      {R"((a)\1)", "'\\1'"},
      {R"([[:alpha:]]+)", "'[' in a class"},
      {R"([a-z&&b])", "'&&'"},
      {R"((?<=a)b)", "'(?<'"},
      {R"((?>a))", "'(?>'"},
      {R"((?x: a))", "'(?x'"},
      {R"((*LIMIT_MATCH=1)a)", "'(*'"},
      {R"(^a)", "an anchor"},
      {R"(a$)", "an anchor"},
      {R"(\p{Greek})", "property 'Greek'"},
      {R"(\p{^L})", "property '^L'"},
      {R"(\pL)", "name in braces"},
      {R"([^\S]+)", "'\\S' in a class"},
      {R"([abc)", "without an end"},
      {R"(a{2}+)", "counted repeat"},
      {R"(a\)", "'\\ '"},
      {R"([])", "begins with ']'"},
  };
  for (const auto& test : cases) {
    EXPECT_THAT(Refusal([&] { SplitPattern(test.first, "where"); }), HasSubstr(test.second))
        << test.first;
  }
  EXPECT_THAT(Refusal([] { SplitPattern("a*", "where"); }), HasSubstr("empty text"));
  EXPECT_THAT(Refusal([] { SplitPattern("(a", "where"); }), HasSubstr("does not compile"));
  EXPECT_THAT(Refusal([] { SplitPattern("", "where"); }), HasSubstr("1 to 16384 bytes"));
  EXPECT_THAT(Refusal([] { SplitPattern(std::string(20'000, 'a'), "where"); }),
              HasSubstr("1 to 16384 bytes"));
}

TEST(SplitPattern, RunawayPatternsAreStopped) {
  const SplitPattern pattern("(?:a|aa)+[bc]", "where");
  MatchScratch scratch;
  SplitPattern::Range match = {};
  EXPECT_THAT(Refusal([&] { pattern.Find(std::string(5000, 'a'), 0, &scratch, &match); }),
              HasSubstr("failed"));
}

TEST(SplitPattern, IsCompiledToMachineCodeHere) {
#if defined(__x86_64__)
  EXPECT_TRUE(SplitPattern(kO200k, "test").has_jit());
#endif
  EXPECT_GT(SplitPattern(kO200k, "test").memory_bytes(), 1000U);
}

}  // namespace
}  // namespace mference
