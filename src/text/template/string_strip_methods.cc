// Python's string methods that take off and fill up white space.
#include <algorithm>
#include <array>

#include "text/template/operators.h"
#include "text/template/string_methods.h"
#include "text/template/template.h"

namespace mference::jinja::string_methods {
namespace {

// ---- stripping

// Whether `c` is among the characters of `set`, or is white space where there is no set.
bool IsStripped(char32_t c, const std::optional<std::u32string>& set) {
  return set ? set->find(c) != std::u32string::npos : IsSpace(c);
}

std::optional<std::u32string> CharacterSet(const Invocation& call,
                                           const std::optional<Value>& argument) {
  if (!argument || argument->IsNone()) return std::nullopt;
  const std::string& text = RequireString(*argument, "strip arg").traced.text();
  std::u32string set;
  for (size_t i = 0; i < text.size(); i += CodePointBytes(text, i))
    set.push_back(DecodeAt(text, i));
  call.interpreter.Charge(set.size());
  return set;
}

template <bool left, bool right>
Value StripSides(const Invocation& call) {
  const auto bound = call.Bound({"chars"});
  const auto set = CharacterSet(call, bound[0]);
  size_t begin = 0;
  size_t end = call.text.size();
  const size_t cost = set ? set->size() / 16 : 0;
  while (left && begin < end && IsStripped(DecodeAt(call.text, begin), set)) {
    call.interpreter.Charge(cost);
    begin += CodePointBytes(call.text, begin);
  }
  while (right && end > begin) {
    const size_t last = PreviousUtf8(call.text, end);
    if (!IsStripped(DecodeAt(call.text, last), set)) break;
    call.interpreter.Charge(cost);
    end = last;
  }
  return call.Part(begin, end);
}

// ---- padding

constexpr int64_t kMaxWidth = 1'000'000;

// A negative width asks for as little as none.
int64_t RequireWidth(const std::optional<Value>& value, int64_t otherwise = 0) {
  const int64_t width = RequireInt(value, otherwise);
  if (width > kMaxWidth) {
    throw TemplateError(TemplateErrorKind::kLimit, "a width is too large");
  }
  return std::max<int64_t>(width, 0);
}

TracedString Padding(size_t count, const std::optional<Value>& fill) {
  TracedString padding;
  if (fill && CountCodePoints(RequireString(*fill, "fill character").traced.text()) != 1) {
    RaiseRuntime("The fill character must be exactly one character long");
  }
  for (size_t i = 0; i < count; ++i) {
    if (fill) {
      padding.Append(fill->string().traced);
    } else {
      padding.Append(" ", Origin::kTemplate);
    }
  }
  return padding;
}

enum class Side { kLeft, kCenter, kRight };

template <Side side>
Value Justify(const Invocation& call) {
  const auto bound = call.Bound({"width", "fillchar"}, 1);
  const int64_t width = RequireWidth(bound[0]);
  const auto length = static_cast<int64_t>(CountCodePoints(call.text));
  const auto missing = static_cast<size_t>(std::max<int64_t>(0, width - length));
  // str.center puts the odd space on the left only when the width is odd.
  const size_t left = side == Side::kLeft ? 0
                      : side == Side::kRight
                          ? missing
                          : missing / 2 + (missing & static_cast<size_t>(width) & 1);
  TracedString out = Padding(left, bound[1]);
  out.Append(call.receiver.traced);
  out.Append(Padding(missing - left, bound[1]));
  return call.Result(std::move(out));
}

Value Zfill(const Invocation& call) {
  const auto bound = call.Bound({"width"}, 1);
  const int64_t width = RequireWidth(bound[0]);
  const auto length = static_cast<int64_t>(CountCodePoints(call.text));
  if (width <= length) return call.Part(0, call.text.size());
  const bool sign = !call.text.empty() && (call.text[0] == '+' || call.text[0] == '-');
  TracedString out = call.receiver.traced.Slice(0, sign ? 1 : 0);
  out.Append(std::string(static_cast<size_t>(width - length), '0'), Origin::kTemplate);
  out.AppendSlice(call.receiver.traced, sign ? 1 : 0, call.text.size());
  return call.Result(std::move(out));
}

Value Expandtabs(const Invocation& call) {
  const auto bound = call.Bound({"tabsize"});
  const int64_t size = RequireWidth(bound[0], 8);
  int64_t column = 0;
  return call.Result(MapCodePoints(call.receiver.traced, [&](std::string& out, size_t, char32_t c) {
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      call.interpreter.ChargeBytes(static_cast<uint64_t>(spaces));
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
      return;
    }
    column = c == '\n' || c == '\r' ? 0 : column + 1;
    AppendUtf8(out, c);
  }));
}

constexpr auto kMethods = std::to_array<Method>({
    {"center", Justify<Side::kCenter>, true},
    {"expandtabs", Expandtabs, true},
    {"ljust", Justify<Side::kLeft>, true},
    {"lstrip", StripSides<true, false>, true},
    {"rjust", Justify<Side::kRight>, true},
    {"rstrip", StripSides<false, true>, true},
    {"strip", StripSides<true, true>, true},
    {"zfill", Zfill, true},
});

}  // namespace

std::span<const Method> StripMethods() { return kMethods; }

}  // namespace mference::jinja::string_methods
