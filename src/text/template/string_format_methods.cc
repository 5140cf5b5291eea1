// Python's string methods that build a text from others.
#include <array>
#include <limits>

#include "text/template/operators.h"
#include "text/template/python_text.h"
#include "text/template/string_methods.h"

namespace mference::jinja::string_methods {
namespace {

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

constexpr auto kMethods = std::to_array<Method>({
    {"format", Format, true},
    {"format_map", FormatMap, true},
    {"join", Join, false},
    {"replace", Replace, true},
});

}  // namespace

std::span<const Method> FormatMethods() { return kMethods; }

}  // namespace mference::jinja::string_methods
