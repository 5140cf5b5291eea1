#include "text/tokenizer/detokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "text/tokenizer/test_tokenizers.h"

namespace mference {
namespace {

TokenId ByteToken(const Tokenizer& tokenizer, uint8_t byte) {
  return *tokenizer.TokenToId(fmt::format("<0x{:02X}>", byte));
}

TEST(Detokenizer, HoldsBytesBackUntilACharacterIsWhole) {
  const Tokenizer tokenizer = LoadTiny("tiny-gemma");
  Detokenizer detokenizer(tokenizer, /*skip_special=*/true);
  EXPECT_EQ(detokenizer.Push(ByteToken(tokenizer, 0xF0)), "");
  EXPECT_EQ(detokenizer.Push(ByteToken(tokenizer, 0x9F)), "");
  EXPECT_EQ(detokenizer.Push(ByteToken(tokenizer, 0x98)), "");
  EXPECT_TRUE(detokenizer.pending());
  EXPECT_EQ(detokenizer.Push(ByteToken(tokenizer, 0x80)), "😀");
  EXPECT_FALSE(detokenizer.pending());
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(Detokenizer, FlushesAnIncompleteCharacterAsOneReplacementAndStartsAfresh) {
  const Tokenizer tokenizer = LoadTiny("tiny-gemma");
  Detokenizer detokenizer(tokenizer, /*skip_special=*/true);
  EXPECT_EQ(detokenizer.Push(ByteToken(tokenizer, 0xE2)), "");
  EXPECT_EQ(detokenizer.Push(ByteToken(tokenizer, 0x82)), "");
  EXPECT_EQ(detokenizer.Flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.Push(ByteToken(tokenizer, 'A')), "A");
}

TEST(Detokenizer, SkippedControlTokensDoNotInterruptACharacter) {
  const Tokenizer tokenizer = LoadTiny("tiny-gemma");
  const TokenId end = *tokenizer.TokenToId("<eos>");
  Detokenizer skipping(tokenizer, /*skip_special=*/true);
  EXPECT_EQ(skipping.Push(ByteToken(tokenizer, 0xC3)), "");
  EXPECT_EQ(skipping.Push(end), "");
  EXPECT_EQ(skipping.Push(ByteToken(tokenizer, 0xA9)), "é");
  Detokenizer showing(tokenizer, /*skip_special=*/false);
  EXPECT_EQ(showing.Push(ByteToken(tokenizer, 0xC3)), "");
  EXPECT_EQ(showing.Push(end), "\uFFFD<eos>");
}

TEST(Detokenizer, EveryPieceIsValidAndTheirJoinIsTheDecodeOfAll) {
  std::mt19937 random(5);
  for (const char* name : kTinyTokenizers) {
    const Tokenizer tokenizer = LoadTiny(name);
    for (int round = 0; round < 300; ++round) {
      std::vector<TokenId> ids(random() % 40);
      for (TokenId& id : ids) {
        id = static_cast<TokenId>(random() % static_cast<uint32_t>(tokenizer.id_limit() + 2));
      }
      for (const bool skip : {false, true}) {
        Detokenizer detokenizer(tokenizer, skip);
        std::string joined;
        std::string bytes;  // what the tokens stand for, joined
        for (const TokenId id : ids) {
          const std::string_view piece = detokenizer.Push(id);
          EXPECT_TRUE(IsValidUtf8(piece));
          joined += piece;
          if (!skip || !tokenizer.IsSpecial(id)) tokenizer.AppendTokenBytes(id, &bytes);
        }
        joined += detokenizer.Flush();
        std::string expected;
        for (std::string_view rest = bytes; !rest.empty();) {
          const Utf8Step step = DecodeUtf8(rest);
          AppendUtf8(expected, step.code);
          rest.remove_prefix(step.length);
        }
        EXPECT_EQ(joined, expected);
        EXPECT_EQ(joined, tokenizer.Decode(ids, skip));
      }
    }
  }
}

}  // namespace
}  // namespace mference
