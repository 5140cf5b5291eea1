// Python's string methods that look for text: positions, counts, prefixes and suffixes.
#include <algorithm>
#include <array>

#include "text/template/operators.h"
#include "text/template/string_methods.h"

namespace mference::jinja::string_methods {
namespace {

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

constexpr auto kMethods = std::to_array<Method>({
    {"count", Count, false},
    {"endswith", Affix<true>, false},
    {"find", Find<false>, false},
    {"index", Index<false>, false},
    {"removeprefix", Removeprefix, true},
    {"removesuffix", Removesuffix, true},
    {"rfind", Find<true>, false},
    {"rindex", Index<true>, false},
    {"startswith", Affix<false>, false},
});

}  // namespace

std::span<const Method> SearchMethods() { return kMethods; }

}  // namespace mference::jinja::string_methods
