// Where a text of a vocabulary without pre-tokenizer may be cut without changing its encoding.
//
// A vocabulary of Gemma's kind encodes a whole text as one word. Yet none of its tokens continues
// from, say, a letter into a word boundary mark (U+2581): between the two no merge can ever happen,
// and what lies on either side is encoded the same alone. Cutting there turns prose into short
// words that a cache can hold. The cuts are derived from the merges, so they are exact for any
// file.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace mference {

class MergeTable;
class Vocabulary;

class WordBreaks {
 public:
  static constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581

  // Learns which characters stand before a mark inside some merged token.
  void Build(const Vocabulary& vocabulary, const MergeTable& merges);

  // The first cut in `text` (valid UTF-8) after its beginning, or its size.
  size_t Next(std::string_view text) const;

  size_t memory_bytes() const { return joined_.capacity() * sizeof(uint32_t); }

 private:
  bool CutsAfter(std::string_view text, size_t end) const;

  bool enabled_ = false;
  bool cut_other_ = false;        // whether a character outside ASCII can precede a cut at all
  std::bitset<128> cut_ascii_;    // ASCII characters that can
  std::vector<uint32_t> joined_;  // sorted: other characters that cannot
};

}  // namespace mference
