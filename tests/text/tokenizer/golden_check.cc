#include "text/tokenizer/golden_check.h"

#include "text/tokenizer/detokenizer.h"

namespace mference {
namespace {

class Checker {
 public:
  explicit Checker(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void EncodeCase(const Json& test) {
    ++result_.encode_cases;
    const auto text = test.at("text").get<std::string>();
    const Json& ids = test.at("ids");
    Expect(test, "ids", ids, tokenizer_.Encode(text, SpecialParsing::kAll));
    Expect(test, "ids_special_only", test.value("ids_special_only", ids),
           tokenizer_.Encode(text, SpecialParsing::kSpecialOnly));
    Expect(test, "ids_plain", test.value("ids_plain", ids),
           tokenizer_.Encode(text, SpecialParsing::kNone));
    DecodeFields(test);
  }

  void DecodeCase(const Json& test) {
    ++result_.decode_cases;
    DecodeFields(test);
  }

  GoldenResult Take() { return std::move(result_); }

 private:
  void DecodeFields(const Json& test) {
    const auto ids = test.at("ids").get<std::vector<TokenId>>();
    const Json text = test.value("text", Json());
    // Where invalid bytes make the reference's decoder and a streaming one differ, ours streams.
    if (test.contains("stream_text")) {
      Expect(test, "stream_text", test.at("stream_text"), tokenizer_.Decode(ids, false));
    } else {
      Expect(test, "decoded", test.value("decoded", text), tokenizer_.Decode(ids, false));
      Expect(test, "decoded_skip", test.value("decoded_skip", text), tokenizer_.Decode(ids, true));
    }
    if (!test.contains("pieces")) return;
    Detokenizer detokenizer(tokenizer_, /*skip_special=*/false);
    Json pieces = Json::array();
    for (const TokenId id : ids) pieces.push_back(std::string(detokenizer.Push(id)));
    pieces.push_back(std::string(detokenizer.Flush()));
    Expect(test, "pieces", test.at("pieces"), pieces);
  }

  void Expect(const Json& test, const char* field, const Json& expected, const Json& got) {
    if (expected == got) return;
    result_.failures.push_back(fmt::format("{} {}: expected {}, got {}",
                                           test.at("id").get<std::string>(), field, expected.dump(),
                                           got.dump()));
  }

  const Tokenizer& tokenizer_;
  GoldenResult result_;
};

}  // namespace

GoldenResult CheckTokenizerGoldens(const Tokenizer& tokenizer, const Json& golden) {
  Checker checker(tokenizer);
  for (const Json& test : golden.at("cases")) checker.EncodeCase(test);
  for (const Json& test : golden.at("decode_cases")) checker.DecodeCase(test);
  return checker.Take();
}

}  // namespace mference
