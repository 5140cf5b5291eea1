// Python's string methods that take a text apart.
#include <algorithm>
#include <array>

#include "text/template/operators.h"
#include "text/template/string_methods.h"

namespace mference::jinja::string_methods {
namespace {

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
    while (end > 0 && IsSpace(DecodeAt(text, PreviousUtf8(text, end)))) {
      end = PreviousUtf8(text, end);
    }
    if (end == 0) break;
    size_t begin = end;
    if (limit >= 0 && pieces.size() == static_cast<size_t>(limit)) {
      pieces.emplace_back(0, end);
      break;
    }
    while (begin > 0 && !IsSpace(DecodeAt(text, PreviousUtf8(text, begin)))) {
      begin = PreviousUtf8(text, begin);
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

constexpr auto kMethods = std::to_array<Method>({
    {"partition", Partition<false>, false},
    {"rpartition", Partition<true>, false},
    {"rsplit", Split<true>, false},
    {"split", Split<false>, false},
    {"splitlines", Splitlines, false},
});

}  // namespace

std::span<const Method> SplitMethods() { return kMethods; }

}  // namespace mference::jinja::string_methods
