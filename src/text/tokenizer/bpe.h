// Byte-pair encoding of one word: initial symbols, then merges, lowest rank first and leftmost on
// ties.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/merges.h"
#include "text/tokenizer/vocabulary.h"
#include "text/tokenizer/word_breaks.h"

namespace mference {

// What a word is before any merge.
enum class InitialSymbols {
  kBytes,       // one symbol per byte, named in the byte alphabet
  kCharacters,  // one symbol per scalar; one <0xNN> per byte of a scalar that has no token
};

struct BpeModel {
  Vocabulary vocabulary;
  MergeTable merges;
  InitialSymbols initial = InitialSymbols::kBytes;
  bool ignore_merges = false;                 // a word that is a token is that token
  std::array<TokenId, 256> byte_tokens = {};  // symbol of a byte, or its <0xNN>
  std::array<TokenId, 128> ascii = {};        // kCharacters: symbol of an ASCII scalar, -1 if none
  WordBreaks breaks;                          // kCharacters: where no merge ever crosses

  size_t memory_bytes() const {
    return vocabulary.memory_bytes() + merges.memory_bytes() + breaks.memory_bytes();
  }
};

// Encodes words. Holds the working memory, so one per thread.
//
// Short words are merged by rescanning for the lowest rank: at most kShortSymbols^2 steps, no
// allocation. Longer ones take a heap whose entries are checked for staleness when they surface:
// each merge adds two entries at most, so n symbols take O(n log n) whatever the text.
class BpeEncoder {
 public:
  static constexpr size_t kShortSymbols = 48;

  // Appends the ids of `word`, which is valid UTF-8 if the symbols are characters.
  void Encode(const BpeModel& model, std::string_view word, std::vector<TokenId>* out);

  // The same, by the heap whatever the length. For tests.
  void EncodeByHeap(const BpeModel& model, std::string_view word, std::vector<TokenId>* out);

  // Symbol pairs looked at and heap entries moved since construction: what the complexity bound is
  // about, for tests.
  uint64_t work() const { return work_; }

  size_t memory_bytes() const;
  void ReleaseMemory();

 private:
  struct Symbol {
    TokenId id;
    uint32_t previous;
    uint32_t next;
    uint32_t rank;  // of joining with `next`; MergeTable::kNone if they do not or it is gone
  };

  void Split(const BpeModel& model, std::string_view word);
  void MergeShort(const BpeModel& model, std::vector<TokenId>* out);
  void MergeByHeap(const BpeModel& model, std::vector<TokenId>* out);
  void Join(const BpeModel& model, uint32_t position);
  void Rank(const BpeModel& model, uint32_t position);

  std::vector<TokenId> initial_;
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> heap_;  // rank << 32 | position, smallest on top
  std::string alphabet_;
  uint64_t work_ = 0;
};

}  // namespace mference
