// Properties of encoding: what spans may recognise, what cutting may not change, and what the
// hardest texts cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <thread>

#include "text/tokenizer/test_tokenizers.h"
#include "text/tokenizer/tokenizer_file.h"

namespace mference {
namespace {

using ::testing::ElementsAre;

// Texts that exercise every class of characters, and markers whole and in parts.
std::string RandomText(const Tokenizer& tokenizer, std::mt19937& random) {
  static const std::vector<std::string> kParts = {" ",       "  ",       "\n",
                                                  "\r\n",    "\t",       "the",
                                                  " quick",  "Fox",      "'s",
                                                  "'LL",     "12345",    "...",
                                                  "!?",      "ü",        "é",
                                                  "e\u0301", "日本",     "ひら",
                                                  "가",      "ᄀ\u1161", "\u2581",
                                                  "😀",       "\u200d",   "\u0300",
                                                  "\u00a0",  "\u0085",   "\u180e",
                                                  "\u3000",  "<",        "|",
                                                  ">",       "<0x41>",   "\U0001F468\u200d",
                                                  "ß"};
  std::string text;
  const size_t parts = random() % 24;
  for (size_t i = 0; i < parts; ++i) {
    if (random() % 8 == 0) {
      const auto tokens = tokenizer.added_tokens();
      const std::string& marker = tokens[random() % tokens.size()].content;
      text += random() % 2 == 0 ? marker : marker.substr(0, marker.size() / 2);
    } else {
      text += kParts[random() % kParts.size()];
    }
  }
  return text;
}

class EveryTokenizer : public ::testing::TestWithParam<const char*> {
 protected:
  const Tokenizer tokenizer_ = LoadTiny(GetParam());
  std::mt19937 random_{20240229};
};

INSTANTIATE_TEST_SUITE_P(All, EveryTokenizer, ::testing::ValuesIn(kTinyTokenizers));

TEST_P(EveryTokenizer, SpansOfOneKindAreTheWholeText) {
  for (int i = 0; i < 500; ++i) {
    const std::string text = RandomText(tokenizer_, random_);
    for (const bool special : {false, true}) {
      std::vector<TextSpan> spans;
      for (size_t at = 0; at < text.size();) {  // cut anywhere, inside characters too
        const size_t size = std::min<size_t>(1 + random_() % 9, text.size() - at);
        spans.push_back({std::string_view(text).substr(at, size), special});
        at += size;
      }
      EXPECT_EQ(tokenizer_.Encode(spans),
                tokenizer_.Encode(text, special ? SpecialParsing::kAll : SpecialParsing::kNone))
          << text;
    }
  }
}

TEST_P(EveryTokenizer, MessageTextNeverGivesAddedTokensBesideFraming) {
  const std::vector<std::string> special = [&] {
    std::vector<std::string> contents;
    for (const AddedToken& token : tokenizer_.added_tokens()) contents.push_back(token.content);
    return contents;
  }();
  for (const std::string& marker : special) {
    // The whole marker, and a marker of which framing supplies one half.
    const std::string head = marker.substr(0, 1);
    const std::string tail = marker.substr(1);
    for (const std::vector<TextSpan>& spans : std::vector<std::vector<TextSpan>>{
             {{"x", true}, {marker, false}, {"y", true}},
             {{"x", true}, {head, true}, {tail, false}, {"y", true}},
             {{"x", true}, {head, false}, {tail, true}, {"y", true}}}) {
      const std::vector<TokenId> ids = tokenizer_.Encode(spans);
      EXPECT_EQ(ids, tokenizer_.Encode(fmt::format("x{}y", marker), SpecialParsing::kNone))
          << marker;
    }
  }
}

TEST_P(EveryTokenizer, FramingAroundOrdinaryTextIsTheWholeText) {
  const AddedToken& marker = tokenizer_.added_tokens().back();
  for (int i = 0; i < 200; ++i) {
    std::string text = RandomText(tokenizer_, random_);
    std::erase_if(text, [](char c) { return c == '<' || c == '>' || c == '|'; });
    if (text.find("DSML") != std::string::npos || text.find("\xEF\xBD\x9C") != std::string::npos) {
      continue;
    }
    const std::string before = marker.content + "user\n";
    const std::vector<TextSpan> spans = {{before, true}, {text, false}, {marker.content, true}};
    EXPECT_EQ(tokenizer_.Encode(spans),
              tokenizer_.Encode(before + text + marker.content, SpecialParsing::kAll))
        << text;
  }
}

// A byte-level vocabulary gives every byte back; Gemma's cannot tell U+2581 from a space.
TEST_P(EveryTokenizer, RoundTripsRandomText) {
  const bool conflicting = std::string(GetParam()) == "tiny-deepseek";  // ids shared with words
  for (int i = 0; i < 500 && !conflicting; ++i) {
    std::string text = RandomText(tokenizer_, random_);
    const std::string round =
        tokenizer_.Decode(tokenizer_.Encode(text, SpecialParsing::kNone), false);
    if (std::string(GetParam()) == "tiny-gemma") {
      for (size_t at = 0; (at = text.find("\u2581", at)) != std::string::npos;)
        text.replace(at, 3, 1, ' ');
    }
    if (std::string(GetParam()).starts_with("tiny-qwen")) {
      // Form C: what comes back is what encodes to the same ids.
      EXPECT_EQ(tokenizer_.Encode(round, SpecialParsing::kNone),
                tokenizer_.Encode(text, SpecialParsing::kNone));
    } else {
      EXPECT_EQ(round, text);
    }
  }
}

TEST_P(EveryTokenizer, InvalidUtf8IsOneReplacementPerMaximalSequence) {
  // Unicode 15, table 3-8 and its relatives.
  const std::pair<std::string, std::string> cases[] = {
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41",
       "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41",
       "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42",
       "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41\uFFFD\uFFFD\x42"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "\uFFFD\uFFFD\uFFFD\uFFFD\x41"},
      {"ab\xE2\x82", "ab\uFFFD"}};
  for (const auto& [invalid, valid] : cases) {
    EXPECT_EQ(tokenizer_.Encode(invalid, SpecialParsing::kAll),
              tokenizer_.Encode(valid, SpecialParsing::kAll));
    const std::vector<TextSpan> spans = {{std::string_view(invalid).substr(0, 1), true},
                                         {std::string_view(invalid).substr(1), false}};
    EXPECT_EQ(tokenizer_.Encode(spans), tokenizer_.Encode(valid, SpecialParsing::kNone));
  }
}

TEST_P(EveryTokenizer, ThreadsShareOneTokenizer) {
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> expected;
  for (int i = 0; i < 64; ++i) {
    texts.push_back(RandomText(tokenizer_, random_));
    expected.push_back(LoadTiny(GetParam()).Encode(texts.back(), SpecialParsing::kAll));
  }
  std::array<std::thread, 4> threads;
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      for (size_t i = 0; i < texts.size(); ++i) {
        EXPECT_EQ(tokenizer_.Encode(texts[i], SpecialParsing::kAll), expected[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(EveryTokenizer, TheHeapAgreesWithRescanning) {
  const TokenizerParts parts = ReadTokenizerFile(
      TokenizerData(std::string(GetParam()) + "/tokenizer.json"), IdConflicts::kFollowReference);
  BpeModel model = parts.model;
  model.ignore_merges = false;  // a shortcut that the heap is not asked about
  BpeEncoder encoder;
  for (int i = 0; i < 2000; ++i) {
    const std::string word = RandomText(tokenizer_, random_);
    std::vector<TokenId> short_ids;
    std::vector<TokenId> heap_ids;
    encoder.Encode(model, word, &short_ids);
    encoder.EncodeByHeap(model, word, &heap_ids);
    EXPECT_EQ(short_ids, heap_ids) << word;
  }
}

// Of the vocabularies without a pre-tokenizer.
TEST(WordBreaks, CuttingThereChangesNothing) {
  std::mt19937 random(7);
  for (const std::string& path :
       {TokenizerData("tiny-gemma/tokenizer.json"), TokenizerData("families/gemma4/tokenizer.json"),
        std::string(MFERENCE_DEMO_SNAPSHOT) + "/tokenizer.json"}) {
    const Tokenizer tokenizer = Tokenizer::Load(path);
    const TokenizerParts parts = ReadTokenizerFile(path, IdConflicts::kRefuse);
    BpeEncoder encoder;
    for (int i = 0; i < 2000; ++i) {
      const std::string text = RandomText(tokenizer, random);
      std::string buffer;
      const std::string_view normal = parts.normalizer.Apply(text, &buffer);
      std::vector<TokenId> whole;
      encoder.EncodeByHeap(parts.model, normal, &whole);
      EXPECT_EQ(tokenizer.Encode(text, SpecialParsing::kNone), whole) << text;
    }
  }
}

// Work is counted, not timed. With n symbols there are at most 3n heap entries and as many lookups.
TEST_P(EveryTokenizer, WorkIsLinearInHeapEntriesOnHardTexts) {
  const TokenizerParts parts = ReadTokenizerFile(
      TokenizerData(std::string(GetParam()) + "/tokenizer.json"), IdConflicts::kFollowReference);
  const size_t size = 1'000'000;
  std::string nested;  // words of the vocabulary in one another's way
  while (nested.size() < size) nested += "thethetherthenothe";
  for (const std::string& text :
       {std::string(size, ' '), std::string(size, 'a'), std::string(size, '\n'), nested}) {
    BpeEncoder encoder;
    std::vector<TokenId> ids;
    encoder.Encode(parts.model, text, &ids);
    EXPECT_LE(encoder.work(), 8 * text.size());
    EXPECT_FALSE(ids.empty());
  }
}

TEST_P(EveryTokenizer, EncodesLongRunsOfTheSame) {
  for (const char* unit : {" ", "a", "\n", "A", "1", "'", "\u0301", "가", " a", "\n ", "<"}) {
    std::string text;
    while (text.size() < 100'000) text += unit;
    const std::vector<TokenId> ids = tokenizer_.Encode(text, SpecialParsing::kAll);
    EXPECT_FALSE(ids.empty());
    EXPECT_TRUE(std::all_of(ids.begin(), ids.end(),
                            [&](TokenId id) { return tokenizer_.IdToToken(id).has_value(); }));
  }
}

// A vocabulary whose merges nest: each doubles a run of one letter.
TEST(DeepMerges, TakeLinearWork) {
  const auto edit = [](Json& json) {
    Json& vocabulary = json["model"]["vocab"];
    Json& merges = json["model"]["merges"];
    merges = Json::array();
    std::string run = "a";
    for (int depth = 0; depth < 10; ++depth) {
      merges.push_back(Json::array({run, run}));
      run += run;
      if (!vocabulary.contains(run)) vocabulary[run] = 5000 + depth;
    }
  };
  const Tokenizer tokenizer = LoadEdited("tiny-qwen3", [&](Json& json) {
    edit(json);
    json["added_tokens"] = Json::array();
  });
  const std::string text((1 << 20) + 3, 'a');
  const std::vector<TokenId> ids = tokenizer.Encode(text, SpecialParsing::kNone);
  ASSERT_EQ(ids.size(), 1024U + 2U);
  EXPECT_EQ(ids[0], 5009);
  EXPECT_EQ(tokenizer.IdToToken(ids[1024])->size(), 2U);
  EXPECT_EQ(tokenizer.IdToToken(ids[1025])->size(), 1U);
}

TEST(AddedTokens, LongestWinsAndLeftmostFirst) {
  const Tokenizer tokenizer = LoadEdited("tiny-qwen3", [](Json& json) {
    json["added_tokens"] = Json::array();
    TokenId id = static_cast<TokenId>(json["model"]["vocab"].size());
    for (const char* content : {"<a>", "<a><b>", "b><c>"}) {
      json["added_tokens"].push_back(
          {{"id", id++}, {"content", content}, {"special", false}, {"normalized", false}});
    }
  });
  const TokenId base = tokenizer.added_tokens()[0].id;
  const auto encode = [&](const char* text) {
    return tokenizer.Encode(text, SpecialParsing::kAll);
  };
  EXPECT_THAT(encode("<a><b><a>"), ElementsAre(base + 1, base));
  EXPECT_EQ(encode("<a><b><c>").front(), base + 1);
  EXPECT_EQ(encode("b><c>").front(), base + 2);
}

TEST(AddedTokens, StripFlagsSwallowWhiteSpaceOfTheSameKindOfSpan) {
  const Tokenizer tokenizer = LoadEdited("tiny-qwen3", [](Json& json) {
    json["added_tokens"] = Json::array({{{"id", json["model"]["vocab"].size()},
                                         {"content", "<m>"},
                                         {"special", true},
                                         {"normalized", false},
                                         {"lstrip", true},
                                         {"rstrip", true}}});
  });
  const TokenId marker = tokenizer.added_tokens()[0].id;
  const std::vector<TokenId> a = tokenizer.Encode("a", SpecialParsing::kNone);
  ASSERT_EQ(a.size(), 1U);
  EXPECT_THAT(tokenizer.Encode("a \t<m>\n\u3000a", SpecialParsing::kAll),
              ElementsAre(a[0], marker, a[0]));
  const std::vector<TextSpan> spans = {{"a ", false}, {" <m>", true}};
  std::vector<TokenId> expected = tokenizer.Encode("a ", SpecialParsing::kNone);
  expected.push_back(marker);
  EXPECT_EQ(tokenizer.Encode(spans), expected);
}

TEST(AddedTokens, NormalizedOnesAreFoundInNormalisedText) {
  const Tokenizer tokenizer = LoadEdited("tiny-qwen3", [](Json& json) {
    json["added_tokens"] = Json::array({{{"id", json["model"]["vocab"].size()},
                                         {"content", "<e\u0301>"},
                                         {"special", true},
                                         {"normalized", true}}});
  });
  const TokenId marker = tokenizer.added_tokens()[0].id;
  EXPECT_THAT(tokenizer.Encode("<e\u0301>", SpecialParsing::kAll), ElementsAre(marker));
  EXPECT_THAT(tokenizer.Encode("<\u00e9>", SpecialParsing::kAll), ElementsAre(marker));
  const std::vector<TextSpan> split = {{"<e", true}, {"\u0301>", false}};
  EXPECT_EQ(tokenizer.Encode(split), tokenizer.Encode("<\u00e9>", SpecialParsing::kNone));
}

TEST(IgnoreMerges, NeverGivesAControlTokenForPlainText) {
  const Tokenizer tokenizer = LoadEdited("tiny-o200k-ignore-merges", [](Json& json) {
    const size_t id = json["model"]["vocab"].size();
    json["model"]["vocab"]["secret"] = id;
    json["added_tokens"] = Json::array(
        {{{"id", id}, {"content", "secret"}, {"special", true}, {"normalized", false}}});
  });
  for (const TokenId id : tokenizer.Encode("secret", SpecialParsing::kNone)) {
    EXPECT_FALSE(tokenizer.IsSpecial(id));
  }
  EXPECT_EQ(tokenizer.Encode("secret", SpecialParsing::kAll).size(), 1U);
}

TEST(Encode, EmptyTextsHaveNoIds) {
  const Tokenizer tokenizer = LoadTiny("tiny-gemma");
  EXPECT_TRUE(tokenizer.Encode("", SpecialParsing::kAll).empty());
  EXPECT_TRUE(tokenizer.Encode(std::span<const TextSpan>()).empty());
  const std::vector<TextSpan> spans = {{"", true}, {"", false}};
  EXPECT_TRUE(tokenizer.Encode(spans).empty());
}

}  // namespace
}  // namespace mference
