// The tokens of a vocabulary: text to id and back.
//
// All texts lie in one blob; an open-addressing index of 4-byte slots (id and a tag of the hash)
// finds them. 262,144 tokens take about 6 MB, where a map of strings would take 30.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace mference {

class Vocabulary {
 public:
  enum class AddResult {
    kAdded,
    kDuplicateToken,  // the text is there already
    kDuplicateId,     // the id has another text
    kColliding,       // the texts are made to collide in any hash table
  };

  // Adds a token. `id` is in [0, Tokenizer::kMaxTokenId], `token` has 1 to kMaxTokenBytes bytes.
  AddResult Add(std::string_view token, TokenId id);

  // Gives `token`, which is not there yet, an id that another token has; that one's text is
  // forgotten. False if the texts collide.
  bool Override(std::string_view token, TokenId id);

  // Marks an existing token as an added token.
  void SetAdded(TokenId id, bool special);

  // Gives back what growing has left over.
  void ShrinkToFit();

  std::optional<TokenId> Find(std::string_view token) const;

  // Empty for ids without a token.
  std::string_view Text(TokenId id) const {
    if (id < 0 || static_cast<size_t>(id) >= entries_.size()) return {};
    const Entry& entry = entries_[static_cast<size_t>(id)];
    return {blob_.data() + entry.offset, entry.length};
  }

  bool IsAdded(TokenId id) const { return (Flags(id) & kAddedFlag) != 0; }
  bool IsSpecial(TokenId id) const { return (Flags(id) & kSpecialFlag) != 0; }

  size_t size() const { return size_; }
  TokenId id_limit() const { return static_cast<TokenId>(entries_.size()); }
  size_t memory_bytes() const;

 private:
  static constexpr uint16_t kAddedFlag = 1;
  static constexpr uint16_t kSpecialFlag = 2;
  static constexpr size_t kMaxProbes = 512;

  struct Entry {
    uint32_t offset = 0;
    uint16_t length = 0;  // 0: no token has this id
    uint16_t flags = 0;
  };

  uint16_t Flags(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < entries_.size()
               ? entries_[static_cast<size_t>(id)].flags
               : uint16_t{0};
  }
  void SetText(std::string_view token, TokenId id);
  bool Insert(uint64_t hash, TokenId id);
  bool Grow();

  std::vector<char> blob_;
  std::vector<Entry> entries_;   // by id
  std::vector<uint32_t> slots_;  // 0: free, else (id + 1) << kTagBits | tag
  size_t size_ = 0;
};

}  // namespace mference
