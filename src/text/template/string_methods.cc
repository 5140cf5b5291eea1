#include "text/template/string_methods.h"

#include <map>

#include "text/template/operators.h"
#include "text/template/python_text.h"

namespace mference::jinja {
namespace string_methods {

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

void ChargeBackwardSearch(const Invocation& call, std::string_view text, std::string_view wanted) {
  constexpr size_t kBytesPerStep = 64;
  call.interpreter.Charge((text.size() / kBytesPerStep + 1) * (wanted.size() / kBytesPerStep + 1));
}

size_t FindLast(const Invocation& call, std::string_view text, std::string_view wanted) {
  ChargeBackwardSearch(call, text, wanted);
  return text.rfind(wanted);
}

namespace {

using MethodsByName = std::map<std::string_view, Method>;

MethodsByName AllMethods() {
  MethodsByName all;
  for (const auto& kind :
       {CaseMethods(), StripMethods(), SearchMethods(), SplitMethods(), FormatMethods()}) {
    for (const Method& method : kind) all.emplace(method.name, method);
  }
  return all;
}

// Null when there is none of that name.
const Method* Find(std::string_view name) {
  static const MethodsByName kAll = AllMethods();
  const auto found = kAll.find(name);
  return found != kAll.end() ? &found->second : nullptr;
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
}  // namespace string_methods

bool IsStringMethod(std::string_view name) { return string_methods::Find(name) != nullptr; }

Value CallStringMethod(Interpreter& interpreter, const Value& receiver, std::string_view name,
                       CallArguments& arguments) {
  const string_methods::Method* method = string_methods::Find(name);
  if (method == nullptr) RaiseRuntime(fmt::format("'str' object has no method '{}'", name));
  interpreter.Charge(receiver.weight());
  interpreter.ChargeBytes(receiver.text().size());
  if (receiver.string().markup && method->escapes) string_methods::EscapeArguments(arguments);
  return method->apply({interpreter, receiver.string(), receiver.text(), name, arguments});
}

}  // namespace mference::jinja
