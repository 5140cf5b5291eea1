// One text to ids: finds added tokens, normalises what lies between, cuts it into words, encodes
// those.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/added_token_matcher.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/split_pattern.h"
#include "text/tokenizer/tokenizer_file.h"
#include "text/tokenizer/word_cache.h"

namespace mference {

// All that a tokenizer knows. Immutable once built; the matchers point into `parts`.
struct TokenizerTables {
  explicit TokenizerTables(TokenizerParts tokenizer_parts);

  TokenizerParts parts;
  AddedTokenMatcher raw_matcher;         // added tokens looked for in the text as it is
  AddedTokenMatcher normalized_matcher;  // those looked for in what is left, normalised

  size_t memory_bytes() const;
};

// A part of the text to encode.
struct TextRegion {
  size_t begin;
  size_t end;
  bool special;  // added tokens are recognised in it
};

// What encoding works with; one per thread at a time.
struct EncodingScratch {
  std::string joined;               // spans, joined
  std::vector<TextRegion> regions;  // of the text
  std::string stretch;              // text between added tokens, framing normalised
  std::string normalized;           // the same, normalised whole
  std::string part;                 // framing, normalised
  MatchScratch match;
  BpeEncoder bpe;
  WordCache cache;

  // Keeps what the next call will want and no more: one huge text must not stay in memory.
  void Trim();
};

// Encodes one text. Lives for one call.
class Encoding {
 public:
  // `only_special`: of the added tokens, only control tokens are recognised.
  Encoding(const TokenizerTables& tables, bool only_special, EncodingScratch* scratch,
           std::vector<TokenId>* out)
      : tables_(tables), only_special_(only_special), scratch_(*scratch), out_(*out) {}

  // `text` is valid UTF-8; `regions` cover it in order, their borders between scalars.
  void Run(std::string_view text, std::span<const TextRegion> regions);

 private:
  void Stretch(size_t begin, size_t end);
  void FindNormalized(std::string_view framing);
  void Ordinary(std::string_view text);
  void Words(std::string_view piece);
  void Word(std::string_view word);

  const TokenizerTables& tables_;
  bool only_special_;
  EncodingScratch& scratch_;
  std::vector<TokenId>& out_;
  std::string_view text_;
  std::span<const TextRegion> regions_;  // those that end after what is encoded already
};

}  // namespace mference
