// Python's string methods, provenance kept byte by byte.
#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <limits>

#include "text/template/builtins.h"
#include "text/template/interpreter.h"
#include "text/template/operators.h"
#include "text/template/python_text.h"
#include "text/template/template.h"
#include "text/template/unicode.h"

namespace mference::jinja {
namespace {

constexpr int64_t kMaxWidth = 1'000'000;

// What every method gets.
struct Invocation {
  Interpreter& interpreter;
  const String& receiver;
  const std::string& text;  // of the receiver
  std::string_view name;
  CallArguments& arguments;

  std::vector<std::optional<Value>> Bound(std::initializer_list<const char*> parameters,
                                          size_t required = 0) const {
    return Bind(std::string(name).c_str(), arguments, parameters, required);
  }
  Value Result(TracedString traced) const { return Value::Str(std::move(traced), receiver.markup); }
  Value Part(size_t begin, size_t end) const { return Result(receiver.traced.Slice(begin, end)); }
};

const String& RequireString(const Value& value, std::string_view what) {
  if (value.IsUndefined()) RaiseUndefined(value);
  if (!value.IsString()) {
    RaiseRuntime(fmt::format("{} must be str, not {}", what, TypeName(value)));
  }
  return value.string();
}

int64_t RequireInt(const std::optional<Value>& value, int64_t otherwise) {
  if (!value) return otherwise;
  if (value->IsUndefined()) RaiseUndefined(*value);
  const auto integer = AsIndex(*value);
  if (!integer) {
    RaiseRuntime(fmt::format("'{}' object cannot be interpreted as an integer", TypeName(*value)));
  }
  return *integer;
}

int64_t RequireWidth(const std::optional<Value>& value) {
  const int64_t width = RequireInt(value, 0);
  if (width > kMaxWidth) {
    throw TemplateError(TemplateErrorKind::kLimit, "a width is too large");
  }
  return width;
}

// Searching backwards takes the product of the lengths at worst, which is charged up front.
void ChargeBackwardSearch(const Invocation& call, std::string_view text, std::string_view wanted) {
  constexpr size_t kBytesPerStep = 64;
  call.interpreter.Charge((text.size() / kBytesPerStep + 1) * (wanted.size() / kBytesPerStep + 1));
}

size_t FindLast(const Invocation& call, std::string_view text, std::string_view wanted) {
  ChargeBackwardSearch(call, text, wanted);
  return text.rfind(wanted);
}

// ---- case

// Python's rule: a capital sigma that ends a word becomes the final form.
bool IsFinalSigma(std::string_view text, size_t position) {
  size_t before = position;
  bool cased_before = false;
  while (before > 0) {
    before = PreviousCodePoint(text, before);
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

// Maps every code point by map(out, position, c); the result has the origin of its source.
template <typename Map>
TracedString MapCodePoints(const TracedString& source, Map map) {
  TracedString out;
  source.ForEachRun([&](size_t begin, size_t end, Origin origin) {
    std::string piece;
    for (size_t i = begin; i < end; i += CodePointBytes(source.text(), i)) {
      map(piece, i, DecodeAt(source.text(), i));
    }
    out.Append(piece, origin);
  });
  return out;
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

// ---- stripping, padding

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
    const size_t last = PreviousCodePoint(call.text, end);
    if (!IsStripped(DecodeAt(call.text, last), set)) break;
    call.interpreter.Charge(cost);
    end = last;
  }
  return call.Part(begin, end);
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
  const int64_t size = RequireInt(bound[0], 8);
  if (size > kMaxWidth) throw TemplateError(TemplateErrorKind::kLimit, "a width is too large");
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

// ---- splitting

// The pieces as byte ranges.
using Pieces = std::vector<std::pair<size_t, size_t>>;

Value PieceList(const Invocation& call, const Pieces& pieces) {
  call.interpreter.ChargeBytes(call.text.size());
  List items;
  for (const auto& [begin, end] : pieces) items.push_back(call.Part(begin, end));
  return Value::MakeList(std::move(items));
}

Pieces SplitAtSpace(const std::string& text, int64_t limit) {
  Pieces pieces;
  size_t i = 0;
  while (true) {
    while (i < text.size() && IsSpace(DecodeAt(text, i))) i += CodePointBytes(text, i);
    if (i >= text.size()) return pieces;
    const size_t begin = i;
    if (limit >= 0 && pieces.size() == static_cast<size_t>(limit)) {
      pieces.emplace_back(begin, text.size());
      return pieces;
    }
    while (i < text.size() && !IsSpace(DecodeAt(text, i))) i += CodePointBytes(text, i);
    pieces.emplace_back(begin, i);
  }
}

Pieces SplitAtSpaceFromRight(const std::string& text, int64_t limit) {
  Pieces pieces;
  size_t end = text.size();
  while (true) {
    while (end > 0 && IsSpace(DecodeAt(text, PreviousCodePoint(text, end)))) {
      end = PreviousCodePoint(text, end);
    }
    if (end == 0) break;
    size_t begin = end;
    if (limit >= 0 && pieces.size() == static_cast<size_t>(limit)) {
      pieces.emplace_back(0, end);
      break;
    }
    while (begin > 0 && !IsSpace(DecodeAt(text, PreviousCodePoint(text, begin)))) {
      begin = PreviousCodePoint(text, begin);
    }
    pieces.emplace_back(begin, end);
    end = begin;
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

Pieces SplitAt(const std::string& text, const std::string& separator, int64_t limit) {
  Pieces pieces;
  size_t begin = 0;
  while (limit < 0 || pieces.size() < static_cast<size_t>(limit)) {
    const size_t found = FindText(text, separator, begin);
    if (found == std::string::npos) break;
    pieces.emplace_back(begin, found);
    begin = found + separator.size();
  }
  pieces.emplace_back(begin, text.size());
  return pieces;
}

Pieces SplitAtFromRight(const std::string& text, const std::string& separator, int64_t limit) {
  Pieces pieces;
  size_t end = text.size();
  while ((limit < 0 || pieces.size() < static_cast<size_t>(limit)) && end >= separator.size()) {
    const size_t found = text.rfind(separator, end - separator.size());
    if (found == std::string::npos) break;
    pieces.emplace_back(found + separator.size(), end);
    end = found;
  }
  pieces.emplace_back(0, end);
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

template <bool from_right>
Value Split(const Invocation& call) {
  const auto bound = call.Bound({"sep", "maxsplit"});
  const int64_t limit = RequireInt(bound[1], -1);
  if (!bound[0] || bound[0]->IsNone()) {
    return PieceList(call, from_right ? SplitAtSpaceFromRight(call.text, limit)
                                      : SplitAtSpace(call.text, limit));
  }
  const std::string& separator = RequireString(*bound[0], "separator").traced.text();
  if (separator.empty()) RaiseRuntime("empty separator");
  if (from_right) ChargeBackwardSearch(call, call.text, separator);
  return PieceList(call, from_right ? SplitAtFromRight(call.text, separator, limit)
                                    : SplitAt(call.text, separator, limit));
}

bool IsLineBoundary(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

Value Splitlines(const Invocation& call) {
  const auto bound = call.Bound({"keepends"});
  const bool keep = bound[0] && Truth(*bound[0]);
  Pieces pieces;
  size_t begin = 0;
  for (size_t i = 0; i < call.text.size();) {
    const size_t length = CodePointBytes(call.text, i);
    if (!IsLineBoundary(DecodeAt(call.text, i))) {
      i += length;
      continue;
    }
    const bool pair = call.text[i] == '\r' && i + 1 < call.text.size() && call.text[i + 1] == '\n';
    const size_t end = i + (pair ? 2 : length);
    pieces.emplace_back(begin, keep ? end : i);
    begin = i = end;
  }
  if (begin < call.text.size()) pieces.emplace_back(begin, call.text.size());
  return PieceList(call, pieces);
}

template <bool from_right>
Value Partition(const Invocation& call) {
  const auto bound = call.Bound({"sep"}, 1);
  const std::string& separator = RequireString(*bound[0], "separator").traced.text();
  if (separator.empty()) RaiseRuntime("empty separator");
  const size_t found =
      from_right ? FindLast(call, call.text, separator) : FindText(call.text, separator);
  const size_t size = call.text.size();
  if (found == std::string::npos) {
    if (from_right) return Value::MakeTuple({call.Part(0, 0), call.Part(0, 0), call.Part(0, size)});
    return Value::MakeTuple({call.Part(0, size), call.Part(0, 0), call.Part(0, 0)});
  }
  const size_t after = found + separator.size();
  return Value::MakeTuple({call.Part(0, found), call.Part(found, after), call.Part(after, size)});
}

// ---- searching

// The byte range of text[start:end], in code points as Python counts them. False if start lies
// beyond the end, where nothing is found, not even the empty string.
bool SearchWindow(const Invocation& call, const std::optional<Value>& start,
                  const std::optional<Value>& stop, size_t* begin, size_t* end) {
  const auto length = static_cast<int64_t>(CountCodePoints(call.text));
  const auto bound = [&](const std::optional<Value>& value, int64_t open) {
    if (!value || value->IsNone()) return open;
    const int64_t index = RequireInt(value, open);
    return index < 0 ? std::max<int64_t>(0, index < -length ? 0 : index + length) : index;
  };
  const int64_t first = bound(start, 0);
  const int64_t last = std::min(bound(stop, length), length);
  if (first > last) return false;
  const auto offset = [&](int64_t index) {
    size_t position = 0;
    for (int64_t i = 0; i < index; ++i) position += CodePointBytes(call.text, position);
    return position;
  };
  *begin = offset(first);
  *end = offset(last);
  return true;
}

template <bool from_right>
std::optional<int64_t> FindPosition(const Invocation& call) {
  const auto bound = call.Bound({"sub", "start", "end"}, 1);
  const std::string& wanted = RequireString(*bound[0], "argument").traced.text();
  size_t begin = 0;
  size_t end = 0;
  if (!SearchWindow(call, bound[1], bound[2], &begin, &end)) return std::nullopt;
  const std::string_view window = std::string_view(call.text).substr(begin, end - begin);
  const size_t found = from_right ? FindLast(call, window, wanted) : FindText(window, wanted);
  if (found == std::string_view::npos) return std::nullopt;
  return static_cast<int64_t>(
      CountCodePoints(std::string_view(call.text).substr(0, begin + found)));
}

template <bool from_right>
Value Find(const Invocation& call) {
  return Value::Int(FindPosition<from_right>(call).value_or(-1));
}

template <bool from_right>
Value Index(const Invocation& call) {
  const auto found = FindPosition<from_right>(call);
  if (!found) RaiseRuntime("substring not found");
  return Value::Int(*found);
}

Value Count(const Invocation& call) {
  const auto bound = call.Bound({"sub", "start", "end"}, 1);
  const std::string& wanted = RequireString(*bound[0], "argument").traced.text();
  size_t begin = 0;
  size_t end = 0;
  if (!SearchWindow(call, bound[1], bound[2], &begin, &end)) return Value::Int(0);
  const std::string_view window = std::string_view(call.text).substr(begin, end - begin);
  if (wanted.empty()) return Value::Int(static_cast<int64_t>(CountCodePoints(window)) + 1);
  int64_t count = 0;
  for (size_t i = FindText(window, wanted); i != std::string_view::npos;
       i = FindText(window, wanted, i + wanted.size())) {
    ++count;
  }
  return Value::Int(count);
}

template <bool at_end>
Value Affix(const Invocation& call) {
  const auto bound = call.Bound({at_end ? "suffix" : "prefix", "start", "end"}, 1);
  size_t begin = 0;
  size_t end = 0;
  List wanted;
  if (bound[0]->IsTuple()) {
    wanted = bound[0]->items();
  } else {
    wanted.push_back(*bound[0]);
  }
  for (const Value& candidate : wanted) {
    RequireString(candidate, at_end ? "endswith first arg" : "startswith first arg");
  }
  if (!SearchWindow(call, bound[1], bound[2], &begin, &end)) return Value::Bool(false);
  const std::string_view window = std::string_view(call.text).substr(begin, end - begin);
  return Value::Bool(std::any_of(wanted.begin(), wanted.end(), [&](const Value& candidate) {
    return at_end ? window.ends_with(candidate.text()) : window.starts_with(candidate.text());
  }));
}

Value Removeprefix(const Invocation& call) {
  const auto bound = call.Bound({"prefix"}, 1);
  const std::string& prefix = RequireString(*bound[0], "prefix").traced.text();
  return call.Part(call.text.starts_with(prefix) ? prefix.size() : 0, call.text.size());
}

Value Removesuffix(const Invocation& call) {
  const auto bound = call.Bound({"suffix"}, 1);
  const std::string& suffix = RequireString(*bound[0], "suffix").traced.text();
  return call.Part(0, call.text.size() - (call.text.ends_with(suffix) ? suffix.size() : 0));
}

// ---- building

Value Replace(const Invocation& call) {
  const auto bound = call.Bound({"old", "new", "count"}, 2);
  const std::string& old = RequireString(*bound[0], "replace() argument 1").traced.text();
  const TracedString& replacement = RequireString(*bound[1], "replace() argument 2").traced;
  int64_t rest = RequireInt(bound[2], -1);
  if (rest < 0) rest = std::numeric_limits<int64_t>::max();
  TracedString out;
  size_t copied = 0;
  const auto insert = [&] {
    call.interpreter.ChargeBytes(replacement.size());
    out.Append(replacement);
    --rest;
  };
  if (old.empty()) {  // between all characters, and at both ends
    for (size_t i = 0; rest > 0; i += CodePointBytes(call.text, i)) {
      out.AppendSlice(call.receiver.traced, copied, i);
      copied = i;
      insert();
      if (i >= call.text.size()) break;
    }
  } else {
    for (size_t i = FindText(call.text, old); i != std::string::npos && rest > 0;
         i = FindText(call.text, old, copied)) {
      out.AppendSlice(call.receiver.traced, copied, i);
      copied = i + old.size();
      insert();
    }
  }
  out.AppendSlice(call.receiver.traced, copied, call.text.size());
  return call.Result(std::move(out));
}

Value Join(const Invocation& call) {
  const auto bound = call.Bound({"iterable"}, 1);
  TracedString out;
  int64_t index = 0;
  const auto source = Iterate(*bound[0]);
  for (Value item; source->Next(&item); ++index) {
    if (index > 0) out.Append(call.receiver.traced);
    if (!item.IsString()) {
      RaiseRuntime(
          fmt::format("sequence item {}: expected str instance, {} found", index, TypeName(item)));
    }
    const bool escape = call.receiver.markup && !item.string().markup;
    const size_t before = out.size();
    out.Append(escape ? EscapeHtml(item.string().traced) : item.string().traced);
    call.interpreter.Charge(1);
    call.interpreter.ChargeBytes(out.size() - before);
  }
  return call.Result(std::move(out));
}

Value Format(const Invocation& call) {
  return call.Result(BraceFormat(call.interpreter, call.receiver.traced, call.arguments));
}

Value FormatMap(const Invocation& call) {
  const auto bound = call.Bound({"mapping"}, 1);
  if (!bound[0]->IsDict()) RaiseRuntime("format_map() argument must be a mapping");
  CallArguments arguments;
  for (const Dict::Entry& entry : bound[0]->dict().entries()) {
    if (entry.key.IsString()) arguments.keyword.emplace_back(entry.key.text(), entry.value);
  }
  return call.Result(BraceFormat(call.interpreter, call.receiver.traced, arguments));
}

struct StringMethod {
  std::string_view name;
  Value (*apply)(const Invocation&);
  bool escapes;  // whether a markup receiver escapes the arguments
};

constexpr auto kMethods = std::to_array<StringMethod>({
    {"capitalize", Capitalize, true},
    {"casefold", Casefold, true},
    {"center", Justify<Side::kCenter>, true},
    {"count", Count, false},
    {"endswith", Affix<true>, false},
    {"expandtabs", Expandtabs, true},
    {"find", Find<false>, false},
    {"format", Format, true},
    {"format_map", FormatMap, true},
    {"index", Index<false>, false},
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
    {"join", Join, false},
    {"ljust", Justify<Side::kLeft>, true},
    {"lower", Lower, true},
    {"lstrip", StripSides<true, false>, true},
    {"partition", Partition<false>, false},
    {"removeprefix", Removeprefix, true},
    {"removesuffix", Removesuffix, true},
    {"replace", Replace, true},
    {"rfind", Find<true>, false},
    {"rindex", Index<true>, false},
    {"rjust", Justify<Side::kRight>, true},
    {"rpartition", Partition<true>, false},
    {"rsplit", Split<true>, false},
    {"rstrip", StripSides<false, true>, true},
    {"split", Split<false>, false},
    {"splitlines", Splitlines, false},
    {"startswith", Affix<false>, false},
    {"strip", StripSides<true, true>, true},
    {"swapcase", Swapcase, true},
    {"title", Title, true},
    {"upper", Upper, true},
    {"zfill", Zfill, true},
});

const StringMethod* FindStringMethod(std::string_view name) {
  const auto* method = std::lower_bound(
      kMethods.begin(), kMethods.end(), name,
      [](const StringMethod& entry, std::string_view wanted) { return entry.name < wanted; });
  return method != kMethods.end() && method->name == name ? &*method : nullptr;
}

void EscapeArguments(CallArguments& arguments) {
  const auto escape = [](Value& value) {
    if (value.IsString() && !value.string().markup) {
      value = Value::Str(EscapeHtml(value.string().traced), true);
    }
  };
  for (Value& value : arguments.positional) escape(value);
  for (auto& [name, value] : arguments.keyword) escape(value);
}

}  // namespace

bool IsStringMethod(std::string_view name) { return FindStringMethod(name) != nullptr; }

Value CallStringMethod(Interpreter& interpreter, const Value& receiver, std::string_view name,
                       CallArguments& arguments) {
  const StringMethod* method = FindStringMethod(name);
  if (method == nullptr) RaiseRuntime(fmt::format("'str' object has no method '{}'", name));
  interpreter.Charge(receiver.weight());
  interpreter.ChargeBytes(receiver.text().size());
  if (receiver.string().markup && method->escapes) EscapeArguments(arguments);
  return method->apply({interpreter, receiver.string(), receiver.text(), name, arguments});
}

}  // namespace mference::jinja
