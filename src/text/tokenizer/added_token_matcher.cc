#include "text/tokenizer/added_token_matcher.h"

#include <algorithm>

namespace mference {

AddedTokenMatcher::AddedTokenMatcher(std::vector<Pattern> patterns)
    : patterns_(std::move(patterns)) {
  std::stable_sort(patterns_.begin(), patterns_.end(),
                   [](const Pattern& a, const Pattern& b) { return a.text < b.text; });
  patterns_.erase(std::unique(patterns_.begin(), patterns_.end(),
                              [](const Pattern& a, const Pattern& b) { return a.text == b.text; }),
                  patterns_.end());
  for (const Pattern& pattern : patterns_) ++first_[static_cast<uint8_t>(pattern.text[0]) + 1];
  for (size_t byte = 0; byte < 256; ++byte) first_[byte + 1] += first_[byte];
}

const AddedToken* AddedTokenMatcher::LongestAt(std::string_view text, bool only_special,
                                               size_t* length) const {
  const auto byte_at = [](std::string_view string, size_t i) {
    return static_cast<uint8_t>(string[i]);
  };
  uint32_t begin = first_[byte_at(text, 0)];
  uint32_t end = first_[byte_at(text, 0) + 1];
  const AddedToken* longest = nullptr;
  // Invariant: patterns [begin, end) are those that start with the first `depth` bytes of the text.
  for (size_t depth = 1; begin < end; ++depth) {
    const Pattern& shortest = patterns_[begin];
    if (shortest.text.size() == depth) {
      if (!only_special || shortest.token->special) {
        longest = shortest.token;
        *length = depth;
      }
      ++begin;
    }
    if (depth == text.size()) break;
    const uint8_t byte = byte_at(text, depth);
    const auto range_begin = patterns_.begin() + begin;
    const auto range_end = patterns_.begin() + end;
    const auto low = std::partition_point(
        range_begin, range_end, [&](const Pattern& p) { return byte_at(p.text, depth) < byte; });
    const auto high = std::partition_point(
        low, range_end, [&](const Pattern& p) { return byte_at(p.text, depth) == byte; });
    begin = static_cast<uint32_t>(low - patterns_.begin());
    end = static_cast<uint32_t>(high - patterns_.begin());
  }
  return longest;
}

bool AddedTokenMatcher::Find(std::string_view text, size_t from, size_t end, bool only_special,
                             Match* match) const {
  for (size_t at = from; at < end; ++at) {
    const auto byte = static_cast<uint8_t>(text[at]);
    if (first_[byte] == first_[byte + 1]) continue;
    size_t length = 0;
    if (const AddedToken* token = LongestAt(text.substr(at, end - at), only_special, &length)) {
      *match = {at, at + length, token};
      return true;
    }
  }
  return false;
}

size_t AddedTokenMatcher::memory_bytes() const {
  size_t bytes = patterns_.capacity() * sizeof(Pattern);
  for (const Pattern& pattern : patterns_) bytes += pattern.text.capacity();
  return bytes;
}

}  // namespace mference
