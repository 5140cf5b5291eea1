// Any text through each of the tiny tokenizers. The first byte chooses the tokenizer, the second
// where the text is cut into message and framing.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace mference {
namespace {

// Every special token of these files is out of reach of plain text. (The conflicting ids of
// tiny-deepseek are for looking only.)
constexpr std::array<const char*, 6> kTokenizers = {
    "tiny-gemma/tokenizer.json",  "tiny-qwen3/tokenizer.json",
    "tiny-qwen36/tokenizer.json", "families/deepseek_v4/tokenizer.json",
    "tiny-o200k/tokenizer.json",  "tiny-o200k-ignore-merges/tokenizer.json"};

const Tokenizer& TokenizerNumber(size_t number) {
  static const auto all = [] {
    std::vector<Tokenizer> tokenizers;
    for (const char* path : kTokenizers) {
      tokenizers.push_back(Tokenizer::Load(std::string(MFERENCE_TEST_DATA "/tokenizers/") + path));
    }
    return tokenizers;
  }();
  return all[number % all.size()];
}

void Require(bool condition) {
  if (!condition) __builtin_trap();
}

std::string Streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer, /*skip_special=*/false);
  std::string text;
  for (const TokenId id : ids) {
    const std::string_view piece = detokenizer.Push(id);
    Require(IsValidUtf8(piece));
    text += piece;
  }
  return text += detokenizer.Flush();
}

void Run(size_t number, size_t cut, std::string_view text) {
  const Tokenizer& tokenizer = TokenizerNumber(number);
  const std::vector<TokenId> plain = tokenizer.Encode(text, SpecialParsing::kNone);
  for (const TokenId id : plain) Require(!tokenizer.IsSpecial(id));
  const std::string decoded = Streamed(tokenizer, plain);
  Require(decoded == tokenizer.Decode(plain, false));
  // What comes back encodes to the same: only U+2581 and characters outside form C are changed.
  Require(decoded == Streamed(tokenizer, tokenizer.Encode(decoded, SpecialParsing::kNone)));

  const std::string_view head = text.substr(0, cut % (text.size() + 1));
  const std::string_view tail = text.substr(head.size());
  const std::array<TextSpan, 2> same = {TextSpan{head, false}, TextSpan{tail, false}};
  Require(tokenizer.Encode(same) == plain);
  const std::array<TextSpan, 2> framing = {TextSpan{head, true}, TextSpan{tail, true}};
  const std::vector<TokenId> all = tokenizer.Encode(text, SpecialParsing::kAll);
  Require(tokenizer.Encode(framing) == all);
  Streamed(tokenizer, all);
  const std::array<TextSpan, 2> mixed = {TextSpan{head, true}, TextSpan{tail, false}};
  Streamed(tokenizer, tokenizer.Encode(mixed));
}

}  // namespace
}  // namespace mference

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  mference::Run(data[0], data[1], {reinterpret_cast<const char*>(data) + 2, size - 2});
  return 0;
}
