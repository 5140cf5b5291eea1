#include "text/tokenizer/nfc.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/utf8.h"

namespace mference {
namespace {

struct CombiningRange {
  uint32_t first;
  uint32_t last;
  uint8_t combining_class;
};

struct Decomposition {
  uint32_t code;
  uint32_t first;
  uint32_t second;  // 0: a singleton
  bool excluded;    // from composition
};

#include "text/tokenizer/nfc_data.inc"

// Hangul syllables are arithmetic (Unicode 15, section 3.12).
constexpr uint32_t kSyllableBase = 0xAC00;
constexpr uint32_t kLeadBase = 0x1100;
constexpr uint32_t kVowelBase = 0x1161;
constexpr uint32_t kTailBase = 0x11A7;  // one before the first tail
constexpr uint32_t kLeads = 19;
constexpr uint32_t kVowels = 21;
constexpr uint32_t kTails = 28;
constexpr uint32_t kSyllables = kLeads * kVowels * kTails;

// Below U+0300 nothing combines and every character is its own form C; in UTF-8, lead bytes below
// 0xCC.
constexpr uint8_t kFirstUnsafeLead = 0xCC;

// What a character means for normalisation, in two stages: pages of 256 characters, most of them
// shared and empty.
class Properties {
 public:
  struct Property {
    uint8_t combining_class = 0;
    bool unsafe = false;         // form C may change it, or it may join the character before
    uint16_t decomposition = 0;  // index + 1 into kDecompositions
  };

  static const Properties& Get() {
    static const Properties properties;
    return properties;
  }

  Property Of(uint32_t code) const { return pages_[page_of_[code >> 8]][code & 0xFF]; }

  // The primary composite of two characters, or 0.
  uint32_t Compose(uint32_t first, uint32_t second) const {
    if (first - kLeadBase < kLeads && second - kVowelBase < kVowels) {
      return kSyllableBase + ((first - kLeadBase) * kVowels + (second - kVowelBase)) * kTails;
    }
    if (first - kSyllableBase < kSyllables && (first - kSyllableBase) % kTails == 0 &&
        second - kTailBase - 1 < kTails - 1) {
      return first + (second - kTailBase);
    }
    const auto found = composites_.find(Pair(first, second));
    return found == composites_.end() ? 0 : found->second;
  }

 private:
  using Page = std::array<Property, 256>;

  Properties() : pages_(1) {
    for (const CombiningRange& range : kCombining) {
      for (uint32_t code = range.first; code <= range.last; ++code) {
        At(code).combining_class = range.combining_class;
        At(code).unsafe = true;
      }
    }
    uint16_t index = 0;
    for (const Decomposition& entry : kDecompositions) {
      At(entry.code).decomposition = ++index;
      if (entry.excluded) {
        At(entry.code).unsafe = true;
      } else {
        composites_[Pair(entry.first, entry.second)] = entry.code;
        At(entry.second).unsafe = true;
      }
    }
    for (uint32_t i = 0; i < kVowels; ++i) At(kVowelBase + i).unsafe = true;
    for (uint32_t i = 1; i < kTails; ++i) At(kTailBase + i).unsafe = true;
  }

  static uint64_t Pair(uint32_t first, uint32_t second) {
    return static_cast<uint64_t>(first) << 32 | second;
  }

  Property& At(uint32_t code) {
    uint16_t& page = page_of_[code >> 8];
    if (page == 0) {
      page = static_cast<uint16_t>(pages_.size());
      pages_.emplace_back();
    }
    return pages_[page][code & 0xFF];
  }

  std::array<uint16_t, 0x1100> page_of_ = {};
  std::vector<Page> pages_;
  std::unordered_map<uint64_t, uint32_t> composites_;
};

struct Character {
  uint32_t code;
  uint8_t combining_class;
};

void Decompose(const Properties& properties, uint32_t code, std::vector<Character>* out) {
  if (code - kSyllableBase < kSyllables) {
    const uint32_t index = code - kSyllableBase;
    out->push_back({kLeadBase + index / (kVowels * kTails), 0});
    out->push_back({kVowelBase + index / kTails % kVowels, 0});
    if (index % kTails != 0) out->push_back({kTailBase + index % kTails, 0});
    return;
  }
  const Properties::Property property = properties.Of(code);
  if (property.decomposition == 0) {
    out->push_back({code, property.combining_class});
    return;
  }
  // Only the first part decomposes further, four levels at most.
  const Decomposition& entry = kDecompositions[property.decomposition - 1];
  Decompose(properties, entry.first, out);
  if (entry.second != 0) Decompose(properties, entry.second, out);
}

// Orders each run of combining marks by class, keeping the order within a class.
void Reorder(std::vector<Character>* text) {
  for (auto begin = text->begin(); begin != text->end();) {
    if (begin->combining_class == 0) {
      ++begin;
      continue;
    }
    const auto end =
        std::find_if(begin, text->end(), [](const Character& c) { return c.combining_class == 0; });
    std::stable_sort(begin, end, [](const Character& a, const Character& b) {
      return a.combining_class < b.combining_class;
    });
    begin = end;
  }
}

// Joins each character with the last starter unless one of the same or a higher class, or another
// starter, stands between them.
void Compose(const Properties& properties, std::vector<Character>* text) {
  size_t starter = SIZE_MAX;
  uint8_t last_class = 0;  // of the character kept last, if it is not the starter itself
  size_t kept = 0;
  for (size_t i = 0; i < text->size(); ++i) {
    const Character character = (*text)[i];
    if (starter != SIZE_MAX) {
      const bool adjacent = starter + 1 == kept;
      const bool blocked =
          !adjacent && (last_class == 0 || last_class >= character.combining_class);
      const uint32_t composite =
          blocked ? 0 : properties.Compose((*text)[starter].code, character.code);
      if (composite != 0) {
        (*text)[starter].code = composite;
        continue;
      }
    }
    if (character.combining_class == 0) starter = kept;
    last_class = character.combining_class;
    (*text)[kept++] = character;
  }
  text->resize(kept);
}

}  // namespace

bool IsNfcQuick(std::string_view text) {
  const Properties* properties = nullptr;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < kFirstUnsafeLead) {  // ASCII, continuation bytes and characters below U+0300
      ++i;
      continue;
    }
    if (properties == nullptr) properties = &Properties::Get();
    const Utf8Step step = DecodeValidUtf8(text.substr(i));
    if (properties->Of(step.code).unsafe) return false;
    i += step.length;
  }
  return true;
}

void AppendNfc(std::string_view text, std::string* out) {
  const Properties& properties = Properties::Get();
  std::vector<Character> characters;
  characters.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = DecodeValidUtf8(text);
    Decompose(properties, step.code, &characters);
    text.remove_prefix(step.length);
  }
  Reorder(&characters);
  Compose(properties, &characters);
  for (const Character& character : characters) AppendUtf8(*out, character.code);
}

}  // namespace mference
