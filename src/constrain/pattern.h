// JSON Schema's `pattern`: the regular part of ECMA-262's expressions, as an automaton.
//
// Understood: literals, `.`, classes with ranges and negation, the escapes \d \D \w \W \s \S
// \t \n \r \f \v \0 \xHH \uHHHH (pairs too) \u{H...} and escaped punctuation, groups (capturing,
// (?:) and named), alternation, the quantifiers * + ? {m} {m,} {m,n} with or without a lazy `?`,
// and the anchors ^ and $ at the ends of the outermost alternatives. What has no automaton of
// reasonable size, or depends on its surroundings, is refused: look-around, back-references, word
// boundaries, \p classes, flags.
//
// As the specification has it a pattern without anchors may match anywhere in the string.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "constrain/regex.h"

namespace mference {

// What was not understood and where: byte `offset` of the pattern.
class PatternError : public std::runtime_error {
 public:
  PatternError(size_t offset, const std::string& what)
      : std::runtime_error(what), offset_(offset) {}
  size_t offset() const { return offset_; }

 private:
  size_t offset_;
};

inline constexpr size_t kMaxPatternBytes = 1024;
inline constexpr uint32_t kMaxPatternRepeat = 1000;

// The strings that match `pattern`, written in `form`. Throws PatternError.
RegexPtr ParsePattern(std::string_view pattern, StringForm form);

}  // namespace mference
