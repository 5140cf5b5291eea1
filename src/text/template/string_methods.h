// What the files of Python's string methods share: string_methods.cc finds and calls them, the
// string_*_methods.cc define them by kind. Provenance is kept byte by byte.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/builtins.h"
#include "text/template/interpreter.h"
#include "text/template/unicode.h"

namespace mference::jinja::string_methods {

// What every method gets. Valid during the call.
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

struct Method {
  std::string_view name;
  Value (*apply)(const Invocation&);
  bool escapes;  // whether a markup receiver escapes the arguments
};

// The methods of each kind.
std::span<const Method> CaseMethods();    // case conversion, and the predicates on characters
std::span<const Method> StripMethods();   // white space and padding
std::span<const Method> SearchMethods();  // positions, counts, prefixes and suffixes
std::span<const Method> SplitMethods();   // into lists and tuples
std::span<const Method> FormatMethods();  // replace, join, format

// ---- arguments; these raise for values of another kind

// `what` names the argument.
const String& RequireString(const Value& value, std::string_view what);
// `otherwise` where the argument was not given.
int64_t RequireInt(const std::optional<Value>& value, int64_t otherwise);

// ---- text

// Searching backwards takes the product of the lengths at worst, which is charged up front.
void ChargeBackwardSearch(const Invocation& call, std::string_view text, std::string_view wanted);
// Offset of the last `wanted`, or npos; charged.
size_t FindLast(const Invocation& call, std::string_view text, std::string_view wanted);

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

}  // namespace mference::jinja::string_methods
