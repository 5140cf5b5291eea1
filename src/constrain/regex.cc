#include "constrain/regex.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/utf8.h"

namespace mference {
namespace {

constexpr char32_t kLastScalar = 0x10FFFF;

std::string Utf8(char32_t scalar) {
  std::string bytes;
  AppendUtf8(bytes, scalar);
  return bytes;
}

// Sequences between `first` and `last`, of one length, from byte `at` on.
RegexPtr BytesBetween(std::string_view first, std::string_view last, size_t at) {
  const auto low = static_cast<uint8_t>(first[at]);
  const auto high = static_cast<uint8_t>(last[at]);
  if (at + 1 == first.size()) return RegexByte(low, high);
  if (low == high) {
    return RegexConcat({RegexByte(low, low), BytesBetween(first, last, at + 1)});
  }
  const std::string least(first.size(), '\x80');
  const std::string most(first.size(), '\xBF');
  std::vector<RegexPtr> parts = {
      RegexConcat({RegexByte(low, low), BytesBetween(first, most, at + 1)})};
  if (high - low > 1) {
    parts.push_back(
        RegexConcat({RegexByte(static_cast<uint8_t>(low + 1), static_cast<uint8_t>(high - 1)),
                     BytesBetween(least, most, at + 1)}));
  }
  parts.push_back(RegexConcat({RegexByte(high, high), BytesBetween(least, last, at + 1)}));
  return RegexAlternate(std::move(parts));
}

// The part of `range` in [first, last], if any.
void AppendClipped(ScalarRange range, char32_t first, char32_t last,
                   std::vector<ScalarRange>* out) {
  range.first = std::max(range.first, first);
  range.last = std::min(range.last, last);
  if (range.first <= range.last) out->push_back(range);
}

RegexPtr JsonEscape(char32_t scalar) {
  switch (scalar) {
    case '"':
      return RegexLiteral("\\\"");
    case '\\':
      return RegexLiteral("\\\\");
    case '\b':
      return RegexLiteral("\\b");
    case '\f':
      return RegexLiteral("\\f");
    case '\n':
      return RegexLiteral("\\n");
    case '\r':
      return RegexLiteral("\\r");
    case '\t':
      return RegexLiteral("\\t");
    default:
      break;
  }
  constexpr std::string_view kLower = "0123456789abcdef";
  constexpr std::string_view kUpper = "0123456789ABCDEF";
  const size_t digit = scalar & 0xF;
  const std::string head = scalar < 0x10 ? "\\u000" : "\\u001";
  return RegexConcat({RegexLiteral(head), RegexAlternate({RegexLiteral(kLower.substr(digit, 1)),
                                                          RegexLiteral(kUpper.substr(digit, 1))})});
}

}  // namespace

RegexPtr RegexEmpty() {
  static const RegexPtr empty = std::make_shared<Regex>();
  return empty;
}

RegexPtr RegexByte(uint8_t low, uint8_t high) {
  auto node = std::make_shared<Regex>();
  node->kind = Regex::Kind::kByte;
  node->low = low;
  node->high = high;
  return node;
}

RegexPtr RegexLiteral(std::string_view text) {
  std::vector<RegexPtr> parts;
  for (const char c : text) {
    parts.push_back(RegexByte(static_cast<uint8_t>(c), static_cast<uint8_t>(c)));
  }
  return RegexConcat(std::move(parts));
}

RegexPtr RegexConcat(std::vector<RegexPtr> parts) {
  if (parts.empty()) return RegexEmpty();
  if (std::find(parts.begin(), parts.end(), nullptr) != parts.end()) return nullptr;
  if (parts.size() == 1) return parts[0];
  auto node = std::make_shared<Regex>();
  node->kind = Regex::Kind::kConcat;
  node->parts = std::move(parts);
  return node;
}

RegexPtr RegexAlternate(std::vector<RegexPtr> parts) {
  std::erase(parts, nullptr);
  if (parts.empty()) return nullptr;
  if (parts.size() == 1) return parts[0];
  auto node = std::make_shared<Regex>();
  node->kind = Regex::Kind::kAlternate;
  node->parts = std::move(parts);
  return node;
}

RegexPtr RegexRepeat(RegexPtr part, uint32_t min, uint32_t max) {
  if (part == nullptr) return min == 0 ? RegexEmpty() : nullptr;
  auto node = std::make_shared<Regex>();
  node->kind = Regex::Kind::kRepeat;
  node->min = min;
  node->max = max;
  node->parts = {std::move(part)};
  return node;
}

RegexPtr RegexScalars(const std::vector<ScalarRange>& ranges) {
  // Surrogates are no scalars, and sequences of different length are different alternatives.
  constexpr std::pair<char32_t, char32_t> kSpans[] = {
      {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, kLastScalar}};
  std::vector<RegexPtr> parts;
  for (const auto& [first, last] : kSpans) {
    std::vector<ScalarRange> clipped;
    for (const ScalarRange& range : ranges) AppendClipped(range, first, last, &clipped);
    for (const ScalarRange& range : clipped) {
      parts.push_back(BytesBetween(Utf8(range.first), Utf8(range.last), 0));
    }
  }
  return RegexAlternate(std::move(parts));
}

RegexPtr RegexScalars(const std::vector<ScalarRange>& ranges, StringForm form) {
  if (form == StringForm::kRaw) return RegexScalars(ranges);
  std::vector<RegexPtr> parts;
  std::vector<ScalarRange> raw;
  for (const ScalarRange& range : ranges) {
    AppendClipped(range, 0x20, 0x21, &raw);
    AppendClipped(range, 0x23, 0x5B, &raw);
    AppendClipped(range, 0x5D, kLastScalar, &raw);
    for (char32_t scalar = range.first; scalar <= std::min<char32_t>(range.last, 0x1F); ++scalar) {
      parts.push_back(JsonEscape(scalar));
    }
    for (const char32_t scalar : {U'"', U'\\'}) {
      if (range.first <= scalar && scalar <= range.last) parts.push_back(JsonEscape(scalar));
    }
  }
  parts.push_back(RegexScalars(raw));
  return RegexAlternate(std::move(parts));
}

}  // namespace mference
