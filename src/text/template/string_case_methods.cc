// Python's string methods that convert case, and those that ask what the characters are.
#include <array>

#include "text/template/string_methods.h"

namespace mference::jinja::string_methods {
namespace {

// ---- conversion

// Python's rule: a capital sigma that ends a word becomes the final form.
bool IsFinalSigma(std::string_view text, size_t position) {
  size_t before = position;
  bool cased_before = false;
  while (before > 0) {
    before = PreviousUtf8(text, before);
    const char32_t c = DecodeAt(text, before);
    if (IsCaseIgnorable(c)) continue;
    cased_before = IsCased(c);
    break;
  }
  if (!cased_before) return false;
  for (size_t after = position + CodePointBytes(text, position); after < text.size();
       after += CodePointBytes(text, after)) {
    const char32_t c = DecodeAt(text, after);
    if (!IsCaseIgnorable(c)) return !IsCased(c);
  }
  return true;
}

void AppendLowerAt(std::string& out, std::string_view text, size_t position, char32_t c) {
  constexpr char32_t kCapitalSigma = 0x3A3;
  constexpr char32_t kFinalSigma = 0x3C2;
  if (c == kCapitalSigma && IsFinalSigma(text, position)) {
    AppendUtf8(out, kFinalSigma);
  } else {
    AppendLower(out, c);
  }
}

Value Upper(const Invocation& call) {
  call.Bound({});
  return call.Result(MapCodePoints(
      call.receiver.traced, [](std::string& out, size_t, char32_t c) { AppendUpper(out, c); }));
}

Value Lower(const Invocation& call) {
  call.Bound({});
  return call.Result(MapCodePoints(
      call.receiver.traced,
      [&](std::string& out, size_t i, char32_t c) { AppendLowerAt(out, call.text, i, c); }));
}

Value Casefold(const Invocation& call) {
  call.Bound({});
  return call.Result(MapCodePoints(
      call.receiver.traced, [](std::string& out, size_t, char32_t c) { AppendFolded(out, c); }));
}

Value Capitalize(const Invocation& call) {
  call.Bound({});
  return call.Result(
      MapCodePoints(call.receiver.traced, [&](std::string& out, size_t i, char32_t c) {
        if (i == 0) {
          AppendTitle(out, c);
        } else {
          AppendLowerAt(out, call.text, i, c);
        }
      }));
}

Value Title(const Invocation& call) {
  call.Bound({});
  bool in_word = false;
  return call.Result(
      MapCodePoints(call.receiver.traced, [&](std::string& out, size_t i, char32_t c) {
        if (in_word) {
          AppendLowerAt(out, call.text, i, c);
        } else {
          AppendTitle(out, c);
        }
        in_word = IsCased(c);
      }));
}

Value Swapcase(const Invocation& call) {
  call.Bound({});
  return call.Result(
      MapCodePoints(call.receiver.traced, [&](std::string& out, size_t i, char32_t c) {
        if (IsUpperCase(c)) {
          AppendLowerAt(out, call.text, i, c);
        } else if (IsLowerCase(c)) {
          AppendUpper(out, c);
        } else {
          AppendUtf8(out, c);
        }
      }));
}

// ---- predicates

// All code points satisfy `holds`, and there is at least one (unless `empty` allows none).
template <bool (*holds)(char32_t), bool empty = false>
Value All(const Invocation& call) {
  call.Bound({});
  for (size_t i = 0; i < call.text.size(); i += CodePointBytes(call.text, i)) {
    if (!holds(DecodeAt(call.text, i))) return Value::Bool(false);
  }
  return Value::Bool(empty || !call.text.empty());
}

bool IsAscii(char32_t c) { return c < 0x80; }
bool IsAlphanumeric(char32_t c) { return c != '_' && IsWordCharacter(c); }

// At least one cased character, and every cased one is of the wanted case.
template <bool (*wanted)(char32_t)>
Value AllCased(const Invocation& call) {
  call.Bound({});
  bool any = false;
  for (size_t i = 0; i < call.text.size(); i += CodePointBytes(call.text, i)) {
    const char32_t c = DecodeAt(call.text, i);
    if (wanted(c)) {
      any = true;
    } else if (IsUpperCase(c) || IsLowerCase(c) || IsTitleCase(c)) {
      return Value::Bool(false);
    }
  }
  return Value::Bool(any);
}

Value IsTitle(const Invocation& call) {
  call.Bound({});
  bool any = false;
  bool in_word = false;
  for (size_t i = 0; i < call.text.size(); i += CodePointBytes(call.text, i)) {
    const char32_t c = DecodeAt(call.text, i);
    const bool capital = IsUpperCase(c) || IsTitleCase(c);
    if ((capital && in_word) || (IsLowerCase(c) && !in_word)) return Value::Bool(false);
    in_word = capital || IsLowerCase(c);
    any = any || in_word;
  }
  return Value::Bool(any);
}

Value IsIdentifier(const Invocation& call) {
  call.Bound({});
  for (size_t i = 0; i < call.text.size(); i += CodePointBytes(call.text, i)) {
    const char32_t c = DecodeAt(call.text, i);
    if (i == 0 ? c != '_' && !IsAlpha(c) : !IsWordCharacter(c)) return Value::Bool(false);
  }
  return Value::Bool(!call.text.empty());
}

constexpr auto kMethods = std::to_array<Method>({
    {"capitalize", Capitalize, true},
    {"casefold", Casefold, true},
    {"isalnum", All<IsAlphanumeric>, false},
    {"isalpha", All<IsAlpha>, false},
    {"isascii", All<IsAscii, true>, false},
    {"isdecimal", All<IsDecimal>, false},
    {"isdigit", All<IsDigit>, false},
    {"isidentifier", IsIdentifier, false},
    {"islower", AllCased<IsLowerCase>, false},
    {"isnumeric", All<IsNumeric>, false},
    {"isprintable", All<IsPrintable, true>, false},
    {"isspace", All<IsSpace>, false},
    {"istitle", IsTitle, false},
    {"isupper", AllCased<IsUpperCase>, false},
    {"lower", Lower, true},
    {"swapcase", Swapcase, true},
    {"title", Title, true},
    {"upper", Upper, true},
});

}  // namespace

std::span<const Method> CaseMethods() { return kMethods; }

}  // namespace mference::jinja::string_methods
