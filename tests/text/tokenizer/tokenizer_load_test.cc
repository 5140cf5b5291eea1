// Damaged, hostile and unsupported files: each is refused with a message that names what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "text/tokenizer/test_tokenizers.h"

namespace mference {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Runs `load`, which must throw `code`; returns the message.
template <typename Load>
std::string FailureOf(const Load& load, ErrorCode code = ErrorCode::kTokenizerInvalid) {
  try {
    load();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

std::string EditFailure(const std::string& name, const std::function<void(Json&)>& edit) {
  return FailureOf([&] { LoadEdited(name, edit); });
}

std::string TextFailure(const std::string& json) {
  return FailureOf([&] { Tokenizer::FromJson(json, "damaged"); });
}

TEST(LoadTokenizer, EveryTruncationIsRefused) {
  const std::string json = TinyJson("tiny-gemma").dump();
  for (size_t size = 0; size < json.size(); size += size < 2000 ? 1 : 37) {
    EXPECT_THAT(TextFailure(json.substr(0, size)), HasSubstr("damaged")) << size;
  }
}

TEST(LoadTokenizer, AFlippedByteNeverCrashes) {
  const std::string json = TinyJson("tiny-qwen3").dump();
  for (size_t at = 0; at < json.size(); at += 3) {
    std::string damaged = json;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    try {
      Tokenizer::FromJson(damaged, "damaged").Encode("some text\n", SpecialParsing::kAll);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTokenizerInvalid) << error.what();
    }
  }
}

TEST(LoadTokenizer, MessagesHaveThePathAndTheOffset) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "tokenizer.json";
  std::ofstream(path) << R"({"version": "1.0", "model": 5})";
  EXPECT_THAT(FailureOf([&] { Tokenizer::Load(path); }),
              AllOf(HasSubstr(path.string()), HasSubstr("byte 28"),
                    HasSubstr("expected an object, found a number")));
  EXPECT_THAT(FailureOf([&] { Tokenizer::Load(path.string() + ".absent"); }, ErrorCode::kNotFound),
              HasSubstr("absent"));
}

TEST(LoadTokenizer, TheFileSizeIsBounded) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "huge.json";
  std::ofstream(path) << "{";
  std::filesystem::resize_file(path, Tokenizer::kMaxFileBytes + 1);
  EXPECT_THAT(FailureOf([&] { Tokenizer::Load(path); }, ErrorCode::kMetadataTooLarge),
              HasSubstr("67108865 bytes"));
  std::filesystem::remove(path);
}

TEST(LoadTokenizer, NestingIsBounded) {
  const std::string deep(500'000, '[');
  EXPECT_THAT(TextFailure(R"({"normalizer": )" + deep), HasSubstr("ends inside a value"));
  const std::string closed = std::string(1000, '[') + std::string(1000, ']');
  EXPECT_THAT(TextFailure(R"({"normalizer": )" + closed), HasSubstr("nested deeper"));
  EXPECT_THAT(TextFailure(R"({"normalizer": ")" + std::string(2'000'000, 'x')),
              HasSubstr("longer than"));
  std::string sequence = "null";
  for (int i = 0; i < 30; ++i) {
    sequence = fmt::format(R"({{"type": "Sequence", "normalizers": [{}]}})", sequence);
  }
  EXPECT_THAT(TextFailure(R"({"normalizer": )" + sequence), HasSubstr("more than 16 components"));
}

TEST(LoadTokenizer, MalformedJsonIsRefusedWhereItIs) {
  EXPECT_THAT(TextFailure(""), HasSubstr("expected an object, found the end of the file"));
  EXPECT_THAT(TextFailure("[]"), HasSubstr("found an array"));
  EXPECT_THAT(TextFailure("{,}"), HasSubstr("expected a member name"));
  EXPECT_THAT(TextFailure(R"({"version" "1.0"})"), HasSubstr("expected ':'"));
  EXPECT_THAT(TextFailure(R"({"version": "1.0" "model": 1})"), HasSubstr("expected ','"));
  EXPECT_THAT(TextFailure(R"({"version": "1.0", "version": "1.0"})"), HasSubstr("occurs twice"));
  EXPECT_THAT(TextFailure(TinyJson("tiny-qwen3").dump() + "x"), HasSubstr("the end of the file"));
  const auto vocabulary = [](const std::string& members) {
    return R"({"model": {"type": "BPE", "vocab": {)" + members + "}}}";
  };
  EXPECT_THAT(TextFailure(vocabulary(R"("a": 1.5)")), HasSubstr("whole number"));
  EXPECT_THAT(TextFailure(vocabulary(R"("a": "1")")), HasSubstr("found a string"));
  EXPECT_THAT(TextFailure(vocabulary(R"("a": 01)")), HasSubstr("leading zero"));
  EXPECT_THAT(TextFailure(vocabulary(R"("a": -1)")), HasSubstr("found -1"));
  EXPECT_THAT(TextFailure(vocabulary(R"("a": 4194303)")), HasSubstr("expected an id of 0 to"));
  EXPECT_THAT(TextFailure(vocabulary(R"("a": 99999999999999999999)")), HasSubstr("15 digits"));
  EXPECT_THAT(TextFailure(vocabulary(R"("": 1)")), HasSubstr("1 to 4096 bytes, found 0"));
  EXPECT_THAT(TextFailure(vocabulary('"' + std::string(4097, 'a') + R"(": 1)")),
              HasSubstr("1 to 4096 bytes, found 4097"));
  EXPECT_THAT(TextFailure(vocabulary('"' + std::string(70'000, 'a') + R"(": 1)")),
              HasSubstr("longer than 65536 bytes"));
  EXPECT_THAT(TextFailure(vocabulary(R"("\ud800x": 1)")), HasSubstr("surrogate"));
  EXPECT_THAT(TextFailure(vocabulary(R"("\q": 1)")), HasSubstr("unknown escape"));
  EXPECT_THAT(TextFailure(vocabulary(R"("\u12G4": 1)")), HasSubstr("hexadecimal"));
  EXPECT_THAT(TextFailure(vocabulary("\"a\xFF\": 1")), HasSubstr("UTF-8"));
  EXPECT_THAT(TextFailure(vocabulary("\"a\n\": 1")), HasSubstr("control character"));
}

TEST(LoadTokenizer, DuplicatesAreRefused) {
  const auto vocabulary = [](const std::string& members) {
    return TextFailure(R"({"model": {"type": "BPE", "vocab": {)" + members + "}}}");
  };
  EXPECT_THAT(vocabulary(R"("a": 1, "b": 1)"), HasSubstr("the id 1 of 'b' is also that of 'a'"));
  EXPECT_THAT(vocabulary(R"("a": 1, "\u0061": 2)"), HasSubstr("'a' occurs twice"));
  EXPECT_THAT(
      EditFailure("tiny-qwen3",
                  [](Json& json) { json["added_tokens"].push_back(json["added_tokens"][0]); }),
      AllOf(HasSubstr("<|endoftext|>"), HasSubstr("expected the id")));
}

TEST(LoadTokenizer, IdsThatTheReferenceWouldNotGiveAreRefused) {
  EXPECT_THAT(EditFailure("tiny-qwen3", [](Json& json) { json["added_tokens"][2]["id"] = 900; }),
              AllOf(HasSubstr("<|im_end|>"), HasSubstr("900"), HasSubstr("expected the id 478")));
  EXPECT_THAT(EditFailure("tiny-gemma", [](Json& json) { json["added_tokens"][0]["id"] = 7; }),
              HasSubstr("expected the id 0"));
  EXPECT_THAT(EditFailure("tiny-qwen3", [](Json& json) { json["added_tokens"][0]["id"] = -4; }),
              HasSubstr("expected an id of 0 to"));
}

// Its control tokens have ids below the vocabulary that the reference does not use: it numbers them
// from 486 on, where words are.
TEST(LoadTokenizer, AFileWithConflictingIdsIsForLookingOnly) {
  const std::string path = TokenizerData("tiny-deepseek/tokenizer.json");
  EXPECT_THAT(FailureOf([&] { Tokenizer::Load(path); }), HasSubstr("expected the id 486"));
  const Tokenizer tokenizer = Tokenizer::Load(path, IdConflicts::kFollowReference);
  EXPECT_TRUE(tokenizer.IsSpecial(486));
}

TEST(LoadTokenizer, ControlTokensThatTextCanReachAreRefused) {
  EXPECT_THAT(EditFailure("tiny-qwen3",
                          [](Json& json) {
                            json["added_tokens"].push_back({{"id", json["model"]["vocab"]["in"]},
                                                            {"content", "in"},
                                                            {"special", true}});
                          }),
              AllOf(HasSubstr("'in'"), HasSubstr("merge"), HasSubstr("plain text")));
  EXPECT_THAT(
      EditFailure("tiny-gemma",
                  [](Json& json) {
                    json["added_tokens"].push_back({{"id", json["model"]["vocab"]["<0x41>"]},
                                                    {"content", "<0x41>"},
                                                    {"special", true}});
                  }),
      HasSubstr("stands for a byte"));
}

TEST(LoadTokenizer, UnknownComponentsAreRefusedByName) {
  const auto component = [](const char* member, const Json& value) {
    return EditFailure("tiny-qwen3", [&](Json& json) { json[member] = value; });
  };
  EXPECT_THAT(component("normalizer", {{"type", "NFKC"}}),
              AllOf(HasSubstr("$.normalizer.type"), HasSubstr("NFKC")));
  EXPECT_THAT(component("pre_tokenizer", {{"type", "Metaspace"}}), HasSubstr("Metaspace"));
  EXPECT_THAT(component("post_processor", {{"type", "BertProcessing"}}),
              HasSubstr("BertProcessing"));
  EXPECT_THAT(component("decoder", {{"type", "WordPiece"}}), HasSubstr("WordPiece"));
  EXPECT_THAT(component("decoder", nullptr), HasSubstr("expected an object"));
  EXPECT_THAT(component("extension", 1), HasSubstr("'extension' is not known"));
  EXPECT_THAT(component("version", "2.0"), HasSubstr("expected version 1.0"));
  EXPECT_THAT(component("pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", true}}),
              HasSubstr("add_prefix_space"));
  EXPECT_THAT(
      component("pre_tokenizer",
                {{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "Contiguous"}}),
      HasSubstr("Contiguous"));
  EXPECT_THAT(component("normalizer",
                        {{"type", "Replace"}, {"pattern", {{"Regex", " +"}}}, {"content", "_"}}),
              HasSubstr("Regex"));
  EXPECT_THAT(component("normalizer",
                        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "a b"}}),
              HasSubstr("contains the character"));
  EXPECT_THAT(
      EditFailure("tiny-qwen3", [](Json& json) { json["added_tokens"][0]["single_word"] = true; }),
      HasSubstr("single_word"));
}

TEST(LoadTokenizer, UnknownModelsAndSettingsAreRefusedByName) {
  const auto setting = [](const char* member, const Json& value) {
    return EditFailure("tiny-gemma", [&](Json& json) { json["model"][member] = value; });
  };
  EXPECT_THAT(setting("type", "Unigram"), HasSubstr("Unigram"));
  EXPECT_THAT(setting("dropout", 0.1), HasSubstr("dropout"));
  EXPECT_THAT(setting("end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(setting("continuing_subword_prefix", "##"), HasSubstr("##"));
  EXPECT_THAT(setting("surprise", 1), HasSubstr("surprise"));
  EXPECT_THAT(setting("byte_fallback", false), HasSubstr("byte_fallback"));
  EXPECT_THAT(setting("ignore_merges", 1), HasSubstr("expected true or false"));
  for (const char* member : {"type", "vocab", "merges"}) {
    EXPECT_THAT(EditFailure("tiny-gemma", [&](Json& json) { json["model"].erase(member); }),
                HasSubstr(fmt::format("$.model.{}: is missing", member)));
  }
  EXPECT_THAT(EditFailure("tiny-gemma", [](Json& json) { json.erase("model"); }),
              HasSubstr("$.model: is missing"));
  EXPECT_THAT(EditFailure("tiny-gemma", [](Json& json) { json["model"]["vocab"].erase("<0x7F>"); }),
              HasSubstr("'<0x7F>' of a byte is missing"));
  EXPECT_THAT(EditFailure("tiny-qwen3",
                          [](Json& json) { json["decoder"] = TinyJson("tiny-gemma")["decoder"]; }),
              HasSubstr("expected 'ByteLevel'"));
}

TEST(LoadTokenizer, DamagedMergesAreRefused) {
  const auto merges = [](const Json& value) {
    return EditFailure("tiny-qwen3", [&](Json& json) { json["model"]["merges"] = value; });
  };
  EXPECT_THAT(merges(5), HasSubstr("expected an array"));
  EXPECT_THAT(merges({"i n", "a  b"}), HasSubstr("'a  b'"));
  EXPECT_THAT(merges({"ab"}), HasSubstr("one space between"));
  EXPECT_THAT(merges(Json::array({Json::array({"i"})})), HasSubstr("found one"));
  EXPECT_THAT(merges(Json::array({Json::array({"i", "n", "g"})})), HasSubstr("found more"));
  EXPECT_THAT(merges(Json::array({Json::array({"i", 5})})), HasSubstr("expected a string"));
  EXPECT_THAT(merges({"i nowhere"}), AllOf(HasSubstr("merge 0"), HasSubstr("'nowhere'")));
}

TEST(LoadTokenizer, MergesMayComeBeforeTheVocabulary) {
  const Json json = TinyJson("tiny-qwen3");
  OrderedJson ordered = OrderedJson::parse(json.dump());
  OrderedJson model;
  model["merges"] = ordered["model"]["merges"];
  for (const auto& [key, value] : ordered["model"].items()) model[key] = value;
  ordered["model"] = model;
  const std::string text = "The other fox knew the way.";
  EXPECT_EQ(Tokenizer::FromJson(ordered.dump(), "reordered").Encode(text, SpecialParsing::kAll),
            LoadTiny("tiny-qwen3").Encode(text, SpecialParsing::kAll));
}

// A file a few times the window, with strings and escapes across every border.
TEST(LoadTokenizer, ReadsThroughTheWindow) {
  const Tokenizer tokenizer = LoadEdited("tiny-qwen3", [](Json& json) {
    json["added_tokens"] = Json::array();
    for (int i = 0; i < 40'000; ++i) {
      json["model"]["vocab"][fmt::format("\"token\\{}\u00e9\n", i)] = 1000 + i;
    }
  });
  for (int i = 0; i < 40'000; i += 7) {
    EXPECT_EQ(tokenizer.TokenToId(fmt::format("\"token\\{}\u00e9\n", i)), 1000 + i);
  }
  EXPECT_GT(tokenizer.memory_bytes(), 40'000U * 20);
}

TEST(LoadTokenizer, UnknownIdsAndTokensAreNotFound) {
  const Tokenizer tokenizer = LoadTiny("tiny-qwen3");
  EXPECT_FALSE(tokenizer.TokenToId("no such token"));
  EXPECT_FALSE(tokenizer.TokenToId(""));
  for (const TokenId id : {-1, tokenizer.id_limit(), INT32_MAX, INT32_MIN}) {
    EXPECT_FALSE(tokenizer.IdToToken(id));
    EXPECT_FALSE(tokenizer.IsSpecial(id));
    EXPECT_EQ(tokenizer.Decode(std::vector<TokenId>{id}, false), "");
  }
}

}  // namespace
}  // namespace mference
