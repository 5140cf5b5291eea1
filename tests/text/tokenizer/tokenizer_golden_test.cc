// All golden encodings and decodings that need no download.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/golden_check.h"
#include "text/tokenizer/test_tokenizers.h"

namespace mference {
namespace {

using ::testing::IsEmpty;

class TinyGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyGolden, EveryCaseMatches) {
  const std::string name = GetParam();
  const GoldenResult result =
      CheckTokenizerGoldens(LoadTiny(name), ReadJsonFile(TokenizerData(name + ".json")));
  EXPECT_THAT(result.failures, IsEmpty());
  EXPECT_GT(result.encode_cases, 300U);
  EXPECT_GT(result.decode_cases, 40U);
}

INSTANTIATE_TEST_SUITE_P(All, TinyGolden, ::testing::ValuesIn(kTinyTokenizers));

class FamilyGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string folder = std::string("families/") + GetParam();
    tokenizer_.emplace(Tokenizer::Load(TokenizerData(folder + "/tokenizer.json")));
    golden_ = ReadJsonFile(TokenizerData(folder + "/tokenizer_goldens.json"));
    byte_fallback_ = tokenizer_->TokenToId("<0x00>").has_value();
  }

  // With byte fallback, the reference replaces every byte of a run that is invalid as a whole; a
  // streaming decoder replaces maximal invalid sequences. Only valid text can be compared.
  void ExpectDecoded(const Json& ids, const Json& expected, bool skip_special) {
    const auto text = expected.get<std::string>();
    if (byte_fallback_ && text.find("\xEF\xBF\xBD") != std::string::npos) return;
    EXPECT_EQ(tokenizer_->Decode(ids.get<std::vector<TokenId>>(), skip_special), text) << ids;
    ++decoded_;
  }

  std::optional<Tokenizer> tokenizer_;
  Json golden_;
  bool byte_fallback_ = false;
  size_t decoded_ = 0;
};

TEST_P(FamilyGolden, Encodes) {
  for (const Json& test : golden_.at("encode")) {
    const auto text = test.at("text").get<std::string>();
    EXPECT_EQ(Json(tokenizer_->Encode(text, SpecialParsing::kAll)), test.at("ids")) << test;
  }
}

TEST_P(FamilyGolden, Decodes) {
  for (const Json& test : golden_.at("encode")) {
    ExpectDecoded(test.at("ids"), test.at("decoded"), false);
    ExpectDecoded(test.at("ids"), test.at("decoded_skip_special"), true);
  }
  for (const Json& test : golden_.at("decode_random_ids")) {
    ExpectDecoded(test.at("ids"), test.at("decoded"), false);
    ExpectDecoded(test.at("ids"), test.at("decoded_skip_special"), true);
  }
  for (const Json& test : golden_.at("decode_prefixes")) {
    Json prefix = Json::array();
    for (size_t i = 0; i < test.at("ids").size(); ++i) {
      prefix.push_back(test.at("ids")[i]);
      ExpectDecoded(prefix, test.at("prefixes")[i], false);
    }
  }
  EXPECT_GT(decoded_, 150U);
}

TEST_P(FamilyGolden, LooksUpTokens) {
  EXPECT_EQ(Json(tokenizer_->vocab_size()), golden_.at("vocab_size"));
  for (const auto& [text, id] : golden_.at("special_ids").items()) {
    EXPECT_EQ(tokenizer_->TokenToId(text), id.get<TokenId>()) << text;
    EXPECT_EQ(tokenizer_->IdToToken(id.get<TokenId>()), text);
    EXPECT_TRUE(tokenizer_->IsAdded(id.get<TokenId>())) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamilyGolden,
                         ::testing::Values("gemma4", "qwen3_5_moe", "deepseek_v4", "inkling",
                                           "maple"));

TEST(DemoTokenizer, ReproducesItsVectors) {
  const Tokenizer tokenizer =
      Tokenizer::Load(std::string(MFERENCE_DEMO_SNAPSHOT) + "/tokenizer.json");
  const Json vectors = ReadJsonFile(TokenizerData("demo_vectors.json"));
  ASSERT_FALSE(vectors.empty());
  for (const Json& test : vectors) {
    const std::vector<TokenId> ids =
        tokenizer.Encode(test.at("text").get<std::string>(), SpecialParsing::kAll);
    EXPECT_EQ(Json(ids), test.at("ids")) << test;
    EXPECT_EQ(Json(tokenizer.Decode(ids, false)), test.at("decoded")) << test;
  }
}

}  // namespace
}  // namespace mference
