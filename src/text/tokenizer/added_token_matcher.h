// Finds added tokens in raw text: leftmost first, longest among those that begin there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace mference {

// The tokens' texts in sorted order serve as a trie: reading a byte narrows a range of them. At
// each position at most as many bytes are read as the longest token has. Immutable.
class AddedTokenMatcher {
 public:
  struct Pattern {
    std::string text;
    const AddedToken* token;  // outlives the matcher
  };

  struct Match {
    size_t begin;
    size_t end;
    const AddedToken* token;
  };

  AddedTokenMatcher() = default;

  // Of two patterns with the same text the first is kept.
  explicit AddedTokenMatcher(std::vector<Pattern> patterns);

  bool empty() const { return patterns_.empty(); }

  // The first match in text[from, end), among tokens flagged special if `only_special`.
  bool Find(std::string_view text, size_t from, size_t end, bool only_special, Match* match) const;

  size_t memory_bytes() const;

 private:
  const AddedToken* LongestAt(std::string_view text, bool only_special, size_t* length) const;

  std::vector<Pattern> patterns_;         // ascending by text
  std::array<uint32_t, 257> first_ = {};  // patterns that begin with byte b: first_[b] to [b + 1]
};

}  // namespace mference
