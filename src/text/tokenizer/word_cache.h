// The ids of recently encoded words, for one thread.
//
// Natural text repeats its words: in prose nine of ten are found here, and finding one costs a
// tenth of encoding it. A word has one place (direct mapping), so the size is fixed and nothing is
// ever searched or evicted at length.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer/hash.h"
#include "text/tokenizer/tokenizer.h"

namespace mference {

class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 32;
  static constexpr size_t kMaxIds = 7;

  // A cache line: words that are longer or have more tokens are not kept.
  struct alignas(64) Entry {
    uint8_t size = 0;  // bytes of the word; 0: free
    uint8_t count = 0;
    std::array<TokenId, kMaxIds> ids = {};
    std::array<char, kMaxWordBytes> word = {};
  };
  static_assert(sizeof(Entry) == 64);

  static constexpr size_t kEntries = size_t{1} << 15;
  static constexpr size_t kBytes = kEntries * sizeof(Entry);

  WordCache() : entries_(kEntries) {}

  // The place of a word of 1 to kMaxWordBytes bytes.
  Entry& Place(std::string_view word) {
    return entries_[HashBytes(word.data(), word.size()) & (kEntries - 1)];
  }

  static bool Holds(const Entry& entry, std::string_view word) {
    return entry.size == word.size() &&
           std::memcmp(entry.word.data(), word.data(), word.size()) == 0;
  }

  // Puts a word and its ids there, if they fit.
  static void Store(Entry* entry, std::string_view word, std::span<const TokenId> ids) {
    if (ids.size() > kMaxIds) return;
    entry->size = static_cast<uint8_t>(word.size());
    entry->count = static_cast<uint8_t>(ids.size());
    std::memcpy(entry->word.data(), word.data(), word.size());
    std::memcpy(entry->ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  std::vector<Entry> entries_;
};

}  // namespace mference
