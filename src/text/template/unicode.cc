#include "text/template/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "base/error.h"

namespace mference::jinja {
namespace {

// Every stride-th code point of [first, last] maps to itself plus delta.
struct CaseRange {
  char32_t first;
  char32_t last;
  char32_t stride;
  int32_t delta;
};

// A mapping to several code points, padded with zeros.
struct SpecialCase {
  char32_t code;
  char32_t mapped[3];
};

struct CodeRange {
  char32_t first;
  char32_t last;
};

#include "text/template/unicode_tables.inc"

template <size_t N>
bool InRanges(const CodeRange (&ranges)[N], char32_t c) {
  const auto* range =
      std::lower_bound(std::begin(ranges), std::end(ranges), c,
                       [](const CodeRange& r, char32_t code) { return r.last < code; });
  return range != std::end(ranges) && c >= range->first;
}

// Appends the mapping of `c` and returns true if the tables have one.
template <size_t N, size_t M>
bool AppendMapped(std::string& out, char32_t c, const CaseRange (&ranges)[N],
                  const SpecialCase (&specials)[M]) {
  const auto* special =
      std::lower_bound(std::begin(specials), std::end(specials), c,
                       [](const SpecialCase& s, char32_t code) { return s.code < code; });
  if (special != std::end(specials) && special->code == c) {
    for (const char32_t mapped : special->mapped) {
      if (mapped != 0) AppendUtf8(out, mapped);
    }
    return true;
  }
  // Ranges of stride 2 interleave (upper and lower alternate), so look back over a few.
  const auto* range =
      std::upper_bound(std::begin(ranges), std::end(ranges), c,
                       [](char32_t code, const CaseRange& r) { return code < r.first; });
  for (int back = 0; back < 3 && range != std::begin(ranges); ++back) {
    --range;
    if (c <= range->last && (c - range->first) % range->stride == 0) {
      AppendUtf8(out, static_cast<char32_t>(static_cast<int32_t>(c) + range->delta));
      return true;
    }
  }
  return false;
}

// A property test compiled once; thread-safe, the match data is per thread.
class Property {
 public:
  explicit Property(const char* pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                              PCRE2_UTF | PCRE2_NO_UTF_CHECK, &error, &offset, nullptr));
    Check(code_ != nullptr, "a Unicode property pattern does not compile");
  }

  bool Holds(char32_t c) const {
    thread_local const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
        pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
    std::string text;
    AppendUtf8(text, c);
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                       PCRE2_NO_UTF_CHECK, match.get(), nullptr) > 0;
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
};

bool IsAsciiLetter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

size_t FindInvalidUtf8(std::string_view text) {
  if (IsValidUtf8(text)) return std::string_view::npos;
  size_t i = 0;
  for (Utf8Step step = DecodeUtf8(text); step.status == Utf8Status::kValid;
       step = DecodeUtf8(text.substr(i))) {
    i += step.length;
  }
  return i;
}

size_t CountCodePoints(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

size_t CodePointBytes(std::string_view text, size_t position) {
  const auto lead = static_cast<unsigned char>(text[position]);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

char32_t DecodeAt(std::string_view text, size_t position) {
  return DecodeValidUtf8(text.substr(position)).code;
}

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool IsPrintable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  static const Property hidden("[\\p{C}\\p{Z}]");
  return !hidden.Holds(c);
}

bool IsAlpha(char32_t c) {
  if (c < 0x80) return IsAsciiLetter(c);
  static const Property letter("\\p{L}");
  return letter.Holds(c);
}

bool IsDecimal(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  static const Property decimal("\\p{Nd}");
  return decimal.Holds(c);
}

bool IsDigit(char32_t c) { return IsDecimal(c) || InRanges(kOtherDigits, c); }

bool IsNumeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  static const Property number("\\p{N}");
  return number.Holds(c) || InRanges(kOtherNumbers, c);
}

bool IsWordCharacter(char32_t c) { return c == '_' || IsAlpha(c) || IsNumeric(c) || IsDigit(c); }

bool IsLowerCase(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  static const Property lower("\\p{Lowercase}");
  return lower.Holds(c);
}

bool IsUpperCase(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  static const Property upper("\\p{Uppercase}");
  return upper.Holds(c);
}

bool IsTitleCase(char32_t c) {
  if (c < 0x80) return false;
  static const Property title("\\p{Lt}");
  return title.Holds(c);
}

void AppendUpper(std::string& out, char32_t c) {
  if (!AppendMapped(out, c, kUpperRanges, kUpperSpecial)) AppendUtf8(out, c);
}

void AppendLower(std::string& out, char32_t c) {
  if (!AppendMapped(out, c, kLowerRanges, kLowerSpecial)) AppendUtf8(out, c);
}

void AppendTitle(std::string& out, char32_t c) {
  if (!AppendMapped(out, c, kTitleRanges, kTitleSpecial)) AppendUpper(out, c);
}

void AppendFolded(std::string& out, char32_t c) {
  if (!AppendMapped(out, c, kFoldRanges, kFoldSpecial)) AppendLower(out, c);
}

bool IsCased(char32_t c) {
  if (c < 0x80) return IsAsciiLetter(c);
  static const Property cased("\\p{Cased}");
  return cased.Holds(c);
}

bool IsCaseIgnorable(char32_t c) {
  static const Property ignorable("\\p{Case_Ignorable}");
  return ignorable.Holds(c);
}

}  // namespace mference::jinja
