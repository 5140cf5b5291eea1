#include "constrain/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/utf8.h"

namespace mference {
namespace {

using Ranges = std::vector<ScalarRange>;

constexpr char32_t kLastScalar = 0x10FFFF;
constexpr int kMaxGroups = 32;  // nested

const Ranges kDigits = {{'0', '9'}};
const Ranges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges kSpace = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                       {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                       {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const Ranges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

Ranges Complement(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const ScalarRange& a, const ScalarRange& b) { return a.first < b.first; });
  Ranges rest;
  char32_t next = 0;
  for (const ScalarRange& range : ranges) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = std::max<char32_t>(next, range.last + 1);
  }
  if (next <= kLastScalar) rest.push_back({next, kLastScalar});
  return rest;
}

class PatternParser {
 public:
  PatternParser(std::string_view pattern, StringForm form) : text_(pattern), form_(form) {}

  RegexPtr Parse() {
    if (text_.size() > kMaxPatternBytes) {
      FailAt(0, fmt::format("the pattern has {} bytes; at most {} are supported", text_.size(),
                            kMaxPatternBytes));
    }
    if (!IsValidUtf8(text_)) FailAt(0, "the pattern is not UTF-8");
    const RegexPtr anything =
        RegexRepeat(RegexScalars({{0, kLastScalar}}, form_), 0, Regex::kUnbounded);
    std::vector<RegexPtr> alternatives;
    do {
      const bool from_start = Accept('^');
      const RegexPtr body = ParseSequence();
      const bool to_end = Accept('$');
      if (!AtEnd() && Peek() != '|') {
        Fail(Peek() == ')' ? "a group is closed that was not opened"
                           : "an anchor stands inside the pattern");
      }
      std::vector<RegexPtr> parts;
      if (!from_start) parts.push_back(anything);
      parts.push_back(body);
      if (!to_end) parts.push_back(anything);
      alternatives.push_back(RegexConcat(std::move(parts)));
    } while (Accept('|'));
    return RegexAlternate(std::move(alternatives));
  }

 private:
  [[noreturn]] void FailAt(size_t offset, const std::string& what) const {
    throw PatternError(offset, what);
  }
  [[noreturn]] void Fail(const std::string& what) const { FailAt(at_, what); }

  bool AtEnd() const { return at_ == text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[at_]; }
  bool Accept(char c) {
    if (AtEnd() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  char32_t TakeScalar() {
    const Utf8Step step = DecodeValidUtf8(text_.substr(at_));
    at_ += step.length;
    return step.code;
  }

  RegexPtr Set(const Ranges& ranges) const { return RegexScalars(ranges, form_); }

  // Up to `|`, `)`, `$` or the end.
  RegexPtr ParseSequence() {
    std::vector<RegexPtr> parts;
    while (!AtEnd() && Peek() != '|' && Peek() != ')' && Peek() != '$') {
      RegexPtr atom = ParseAtom();
      parts.push_back(ParseQuantifier(std::move(atom)));
    }
    return RegexConcat(std::move(parts));
  }

  RegexPtr ParseAtom() {
    const size_t begin = at_;
    switch (Peek()) {
      case '(':
        return ParseGroup();
      case '[':
        return Set(ParseClass());
      case '.':
        ++at_;
        return Set(Complement(kLineEnds));
      case '\\':
        return Set(ParseEscape(/*in_class=*/false));
      case '^':
        Fail("an anchor stands inside the pattern");
      case '*':
      case '+':
      case '?':
      case '{':
        Fail("a quantifier follows nothing");
      case ']':
      case '}':
        Fail("a bracket is closed that was not opened; escape it to mean the character");
      default:
        break;
    }
    const char32_t scalar = TakeScalar();
    if (scalar == 0) FailAt(begin, "the pattern holds a zero byte");
    return Set({{scalar, scalar}});
  }

  RegexPtr ParseGroup() {
    if (++groups_ > kMaxGroups) Fail("groups are nested too deep");
    ++at_;
    if (Accept('?')) {
      const bool named = !AtEnd() && Peek() == '<' && at_ + 1 < text_.size() &&
                         text_[at_ + 1] != '=' && text_[at_ + 1] != '!';
      if (named) {
        const size_t end = text_.find('>', at_);
        if (end == std::string_view::npos) Fail("a group's name is not closed");
        at_ = end + 1;
      } else if (!Accept(':')) {
        Fail("look-around and flags are not supported");
      }
    }
    std::vector<RegexPtr> alternatives;
    do {
      alternatives.push_back(ParseSequence());
      if (Peek() == '$') Fail("an anchor stands inside a group");
    } while (Accept('|'));
    if (!Accept(')')) Fail("a group is not closed");
    --groups_;
    return RegexAlternate(std::move(alternatives));
  }

  std::optional<uint32_t> ParseNumber() {
    const size_t begin = at_;
    uint32_t number = 0;
    while (Peek() >= '0' && Peek() <= '9') {
      number = std::min(number * 10 + static_cast<uint32_t>(Peek() - '0'), kMaxPatternRepeat + 1);
      ++at_;
    }
    if (at_ == begin) return std::nullopt;
    if (number > kMaxPatternRepeat) {
      FailAt(begin, fmt::format("a count is above {}", kMaxPatternRepeat));
    }
    return number;
  }

  RegexPtr ParseQuantifier(RegexPtr atom) {
    uint32_t min = 0;
    uint32_t max = Regex::kUnbounded;
    if (Accept('*')) {
    } else if (Accept('+')) {
      min = 1;
    } else if (Accept('?')) {
      max = 1;
    } else if (Accept('{')) {
      const size_t begin = at_;
      const std::optional<uint32_t> first = ParseNumber();
      if (!first) FailAt(begin, "expected a count after '{'");
      min = *first;
      max = min;
      if (Accept(',')) max = ParseNumber().value_or(Regex::kUnbounded);
      if (!Accept('}')) Fail("a quantifier is not closed");
      if (max < min) FailAt(begin, "a quantifier's counts are out of order");
    } else {
      return atom;
    }
    Accept('?');  // lazy: the same strings match
    if (Peek() == '*' || Peek() == '+' || Peek() == '{') Fail("a quantifier follows another");
    return RegexRepeat(std::move(atom), min, max);
  }

  Ranges ParseClass() {
    const size_t begin = at_;
    ++at_;
    const bool negated = Accept('^');
    Ranges ranges;
    while (true) {
      if (AtEnd()) FailAt(begin, "a class is not closed");
      if (Accept(']')) break;
      const Ranges first = ParseClassAtom();
      const bool single = first.size() == 1 && first[0].first == first[0].last;
      if (single && Peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        const size_t dash = at_++;
        const Ranges last = ParseClassAtom();
        if (last.size() != 1 || last[0].first != last[0].last || last[0].first < first[0].first) {
          FailAt(dash, "a class's range is out of order");
        }
        ranges.push_back({first[0].first, last[0].first});
      } else {
        ranges.insert(ranges.end(), first.begin(), first.end());
      }
    }
    return negated ? Complement(std::move(ranges)) : ranges;
  }

  Ranges ParseClassAtom() {
    if (Peek() == '\\') return ParseEscape(/*in_class=*/true);
    const char32_t scalar = TakeScalar();
    return {{scalar, scalar}};
  }

  Ranges ParseEscape(bool in_class) {
    const size_t begin = at_++;
    if (AtEnd()) FailAt(begin, "the pattern ends inside an escape");
    const auto one = [](char32_t scalar) { return Ranges{{scalar, scalar}}; };
    const char c = text_[at_++];
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return Complement(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return Complement(kWord);
      case 's':
        return kSpace;
      case 'S':
        return Complement(kSpace);
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        if (Peek() >= '0' && Peek() <= '9') FailAt(begin, "octal escapes are not supported");
        return one(0);
      case 'x':
        return one(ParseHex(2));
      case 'u':
        return one(ParseUnicode(begin));
      case 'b':
        if (in_class) return one('\b');
        FailAt(begin, "word boundaries are not supported");
      default:
        break;
    }
    const bool alphanumeric =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (alphanumeric || static_cast<uint8_t>(c) >= 0x80) {
      FailAt(begin, "the escape is not supported (back-references, \\b and \\p{} are not)");
    }
    return one(static_cast<uint8_t>(c));
  }

  char32_t ParseHex(size_t digits) {
    char32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = Peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) Fail("expected a hexadecimal digit");
      value = value << 4 | static_cast<char32_t>(digit);
      ++at_;
    }
    return value;
  }

  char32_t ParseUnicode(size_t begin) {
    char32_t scalar = 0;
    if (Accept('{')) {
      const size_t end = text_.find('}', at_);
      if (end == std::string_view::npos || end - at_ > 6) FailAt(begin, "not a code point");
      scalar = ParseHex(end - at_);
      ++at_;
    } else {
      scalar = ParseHex(4);
      const bool high = scalar >= 0xD800 && scalar <= 0xDBFF;
      if (high && text_.substr(at_).starts_with("\\u")) {
        at_ += 2;
        const char32_t low = ParseHex(4);
        if (low < 0xDC00 || low > 0xDFFF) FailAt(begin, "half of a surrogate pair stands alone");
        scalar = 0x10000 + ((scalar - 0xD800) << 10) + (low - 0xDC00);
      }
    }
    if (scalar > kLastScalar || (scalar >= 0xD800 && scalar <= 0xDFFF)) {
      FailAt(begin, "the escape is no Unicode scalar");
    }
    return scalar;
  }

  std::string_view text_;
  StringForm form_;
  size_t at_ = 0;
  int groups_ = 0;
};

}  // namespace

RegexPtr ParsePattern(std::string_view pattern, StringForm form) {
  return PatternParser(pattern, form).Parse();
}

}  // namespace mference
