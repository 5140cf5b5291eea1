// Regular languages of bytes as small expression trees: what patterns, number ranges and the text
// of strings are written in before `MakeDfa` turns them into tables.
//
// The trees are built by us, never parsed here (pattern.h parses JSON Schema's patterns). Nodes are
// shared and immutable. A null pointer is the empty language: it accepts nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace mference {

struct Regex;
using RegexPtr = std::shared_ptr<const Regex>;

struct Regex {
  enum class Kind : uint8_t {
    kEmpty,      // the empty string
    kByte,       // one byte of [low, high]
    kConcat,     // all parts in turn
    kAlternate,  // one of the parts
    kRepeat,     // parts[0], `min` to `max` times
  };
  static constexpr uint32_t kUnbounded = UINT32_MAX;

  Kind kind = Kind::kEmpty;
  uint8_t low = 0;
  uint8_t high = 0;
  uint32_t min = 0;
  uint32_t max = 0;
  std::vector<RegexPtr> parts;
};

RegexPtr RegexEmpty();
RegexPtr RegexByte(uint8_t low, uint8_t high);
RegexPtr RegexLiteral(std::string_view text);
// Null if any part is.
RegexPtr RegexConcat(std::vector<RegexPtr> parts);
// Without the null parts; null if none is left.
RegexPtr RegexAlternate(std::vector<RegexPtr> parts);
RegexPtr RegexRepeat(RegexPtr part, uint32_t min, uint32_t max);
inline RegexPtr RegexOptional(RegexPtr part) { return RegexRepeat(std::move(part), 0, 1); }

// Unicode scalars [first, last].
struct ScalarRange {
  char32_t first = 0;
  char32_t last = 0;
};

// The UTF-8 of any scalar of the ranges. Surrogates are left out.
RegexPtr RegexScalars(const std::vector<ScalarRange>& ranges);

// How the scalars of a string are written.
enum class StringForm {
  kRaw,   // as they are
  kJson,  // as in a JSON string; escapes where JSON demands them, in their short form if they have
          // one, and only there
};

RegexPtr RegexScalars(const std::vector<ScalarRange>& ranges, StringForm form);

}  // namespace mference
