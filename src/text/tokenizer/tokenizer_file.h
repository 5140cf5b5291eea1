// Reading `tokenizer.json` into the parts of a tokenizer.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace mference {

// How a token's text becomes bytes.
enum class TokenDecoder {
  kByteLevel,     // through the byte alphabet if all its characters are in it, else as it is
  kByteFallback,  // U+2581 is a space, <0xNN> is a byte
};

struct TokenizerParts {
  BpeModel model;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder = TokenDecoder::kByteLevel;
  std::vector<AddedToken> added_tokens;  // ascending by id
};

// Both throw as Tokenizer::Load does. The file is read through a window: beside the parts
// themselves, loading holds less than a megabyte and what growing tables leave behind.
TokenizerParts ReadTokenizerFile(const std::filesystem::path& path, IdConflicts conflicts);
TokenizerParts ReadTokenizerJson(std::string_view json, const std::string& name,
                                 IdConflicts conflicts);

}  // namespace mference
