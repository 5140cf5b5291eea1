// The merges of a byte-pair encoding: which two adjacent tokens join, in which order of preference,
// into which token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace mference {

class MergeTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Merge {
    TokenId left;
    TokenId right;
    TokenId result;
  };

  // Appends the merge of the next rank. At most Tokenizer::kMaxMerges.
  void Add(const Merge& merge) { merges_.push_back(merge); }

  // Makes Find work; nothing may be added afterwards. A pair given twice has its last rank. False
  // if the pairs are made to collide in any hash table.
  bool Build();

  // Rank of joining `left` and `right`, lower is earlier; kNone if they do not join.
  uint32_t Find(TokenId left, TokenId right) const;

  TokenId Result(uint32_t rank) const { return merges_[rank].result; }
  const std::vector<Merge>& merges() const { return merges_; }
  size_t size() const { return merges_.size(); }
  size_t memory_bytes() const;

 private:
  std::vector<Merge> merges_;    // by rank
  std::vector<uint32_t> slots_;  // 0: free, else (rank + 1) << kTagBits | tag of the pair's hash
};

}  // namespace mference
