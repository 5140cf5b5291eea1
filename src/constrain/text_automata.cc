#include "constrain/text_automata.h"

#include <utility>
#include <vector>

#include "base/error.h"

namespace mference {
namespace {

constexpr uint32_t kMaxIndentSpaces = 64;
constexpr uint32_t kMaxIndentTabs = 16;
const std::vector<ScalarRange> kEveryScalar = {{0, 0x10FFFF}};
const std::vector<ScalarRange> kUnescapedScalars = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};

RegexPtr Loop(RegexPtr round) { return RegexRepeat(std::move(round), 0, Regex::kUnbounded); }

DfaPtr Make(const RegexPtr& regex) {
  std::optional<DfaPtr> dfa = MakeDfa(regex);
  Check(dfa.has_value() && *dfa != nullptr, "a built-in automaton");
  return *std::move(dfa);
}

DfaPtr Without(std::string_view text) {
  std::optional<DfaPtr> dfa = Intersect(*RawText(), *MakeWithout(text));
  Check(dfa.has_value() && *dfa != nullptr, "a built-in automaton");
  return *std::move(dfa);
}

RegexPtr OneOf(std::string_view bytes) {
  std::vector<RegexPtr> parts;
  for (const char c : bytes) parts.push_back(RegexLiteral({&c, 1}));
  return RegexAlternate(std::move(parts));
}

RegexPtr HexDigit() {
  return RegexAlternate({RegexByte('0', '9'), RegexByte('a', 'f'), RegexByte('A', 'F')});
}

// \uXXXX of a scalar of the basic plane, or a pair of surrogates.
RegexPtr UnicodeEscape() {
  const RegexPtr u = RegexLiteral("\\u");
  const RegexPtr hex = HexDigit();
  const RegexPtr not_d =
      RegexAlternate({RegexByte('0', '9'), RegexByte('a', 'c'), RegexByte('e', 'f'),
                      RegexByte('A', 'C'), RegexByte('E', 'F')});
  const RegexPtr d = OneOf("dD");
  return RegexAlternate(
      {RegexConcat({u, not_d, hex, hex, hex}), RegexConcat({u, d, RegexByte('0', '7'), hex, hex}),
       RegexConcat({u, d, OneOf("89abAB"), hex, hex, u, d, OneOf("cdefCDEF"), hex, hex})});
}

}  // namespace

const DfaPtr& JsonStringText() {
  static const DfaPtr dfa = Make(Loop(
      RegexAlternate({RegexScalars(kUnescapedScalars),
                      RegexConcat({RegexLiteral("\\"), OneOf("\"\\/bfnrt")}), UnicodeEscape()})));
  return dfa;
}

const DfaPtr& CanonicalJsonText() {
  static const DfaPtr dfa = Make(Loop(RegexScalars(kEveryScalar, StringForm::kJson)));
  return dfa;
}

const DfaPtr& RawText() {
  static const DfaPtr dfa = Make(Loop(RegexScalars(kEveryScalar)));
  return dfa;
}

const DfaPtr& JsonKeyText() {
  static const DfaPtr dfa = Make(Loop(RegexScalars(kUnescapedScalars)));
  return dfa;
}

const DfaPtr& BareKeyText() {
  static const DfaPtr dfa =
      Make(RegexRepeat(RegexAlternate({RegexByte('0', '9'), RegexByte('a', 'z'),
                                       RegexByte('A', 'Z'), OneOf("_-.$")}),
                       1, Regex::kUnbounded));
  return dfa;
}

const DfaPtr& QwenValueText() {
  static const DfaPtr dfa = Without("</parameter>");
  return dfa;
}

const DfaPtr& DsmlValueText() {
  static const DfaPtr dfa = Without("DSML｜");
  return dfa;
}

const DfaPtr& WhiteSpace() {
  static const DfaPtr dfa = Make(RegexOptional(RegexAlternate(
      {RegexLiteral(" "),
       RegexConcat({RegexLiteral("\n"),
                    RegexAlternate({RegexRepeat(RegexLiteral(" "), 0, kMaxIndentSpaces),
                                    RegexRepeat(RegexLiteral("\t"), 1, kMaxIndentTabs)})})})));
  return dfa;
}

const DfaPtr& OptionalSpace() {
  static const DfaPtr dfa = Make(RegexOptional(RegexLiteral(" ")));
  return dfa;
}

}  // namespace mference
