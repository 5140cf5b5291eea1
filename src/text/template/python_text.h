// How Python writes values: str(), repr(), json.dumps(), and formatting.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/template/object.h"
#include "text/template/value.h"

namespace mference::jinja {

// repr() of a float: the shortest digits that read back the same.
std::string FloatRepr(double value);
// repr() of a string, quotes included.
std::string StringRepr(std::string_view text);

// str(value). Provenance: strings keep theirs; a container is data as a whole if anything in it is.
TracedString Str(const Value& value);
std::string Repr(const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level's indentation; nothing: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps. Raises for values JSON has no form for.
TracedString ToJson(const Value& value, const JsonStyle& style);

// format % arguments.
TracedString PercentFormat(const TracedString& format, const Value& arguments);
// format.format(*positional, **keyword).
TracedString BraceFormat(Interpreter& interpreter, const TracedString& format,
                         const CallArguments& arguments);

// HTML-escapes & < > ' ", as markupsafe does.
TracedString EscapeHtml(const TracedString& text);

}  // namespace mference::jinja
