#include "text/tokenizer/word_breaks.h"

#include <algorithm>
#include <string>

#include "base/utf8.h"
#include "text/tokenizer/merges.h"
#include "text/tokenizer/vocabulary.h"

namespace mference {

void WordBreaks::Build(const Vocabulary& vocabulary, const MergeTable& merges) {
  // Without a token of its own the mark would become byte tokens, about which nothing is known.
  if (!vocabulary.Find(kMark)) return;
  enabled_ = true;
  std::bitset<128> joined_ascii;
  for (const MergeTable::Merge& merge : merges.merges()) {
    const std::string_view text = vocabulary.Text(merge.result);
    for (size_t at = text.find(kMark, 1); at != std::string_view::npos;
         at = text.find(kMark, at + 1)) {
      const uint32_t code = DecodeValidUtf8(text.substr(PreviousUtf8(text, at))).code;
      if (code < 128) {
        joined_ascii.set(code);
      } else {
        joined_.push_back(code);
      }
    }
  }
  std::sort(joined_.begin(), joined_.end());
  joined_.erase(std::unique(joined_.begin(), joined_.end()), joined_.end());
  joined_.shrink_to_fit();
  // A token "<0xNN>" may be merged with a mark. Its text ends in '>', but the character that it is
  // a byte of is one without a token.
  cut_other_ = !joined_ascii.test('>');
  for (size_t code = 0; code < 128; ++code) {
    const char character = static_cast<char>(code);
    const bool has_token = vocabulary.Find({&character, 1}).has_value();
    cut_ascii_.set(code, !joined_ascii.test(code) && (has_token || cut_other_));
  }
}

// Whether the character of `text` that ends at `end` never shares a token with a mark after it.
bool WordBreaks::CutsAfter(std::string_view text, size_t end) const {
  const auto last = static_cast<uint8_t>(text[end - 1]);
  if (last < 128) return cut_ascii_.test(last);
  if (!cut_other_) return false;
  const uint32_t code = DecodeValidUtf8(text.substr(PreviousUtf8(text, end))).code;
  return !std::binary_search(joined_.begin(), joined_.end(), code);
}

size_t WordBreaks::Next(std::string_view text) const {
  if (!enabled_) return text.size();
  for (size_t at = text.find(kMark, 1); at != std::string_view::npos;
       at = text.find(kMark, at + 1)) {
    if (CutsAfter(text, at)) return at;
  }
  return text.size();
}

}  // namespace mference
