// The interpreter: calls of functions, filters, tests and macros.
#include <algorithm>

#include "text/template/interpreter.h"
#include "text/template/operators.h"

namespace mference::jinja {
namespace {

class Macro : public Object {
 public:
  Macro(const MacroDefinition& definition, std::shared_ptr<Scope> closure)
      : definition_(definition), closure_(std::move(closure)) {}

  std::string type_name() const override { return "Macro"; }
  std::string Repr() const override { return fmt::format("<Macro '{}'>", definition_.name); }
  bool callable() const override { return true; }

  Value Call(Interpreter& interpreter, CallArguments arguments) override {
    return interpreter.CallMacro(definition_, closure_, std::move(arguments));
  }

  std::optional<Value> Attribute(Interpreter&, std::string_view name) override {
    if (name == "name") return Value::Str(definition_.name, Origin::kTemplate);
    if (name == "catch_kwargs") return Value::Bool(definition_.takes_kwargs);
    if (name == "catch_varargs") return Value::Bool(definition_.takes_varargs);
    if (name == "caller") return Value::Bool(definition_.takes_caller);
    if (name != "arguments") return std::nullopt;
    List names;
    for (const std::string& parameter : definition_.parameter_names) {
      names.push_back(Value::Str(parameter, Origin::kTemplate));
    }
    return Value::MakeTuple(std::move(names));
  }

 private:
  const MacroDefinition& definition_;
  std::shared_ptr<Scope> closure_;
};

}  // namespace

Value Interpreter::Call(const Value& callee, CallArguments arguments) {
  if (callee.IsUndefined()) RaiseUndefined(callee);
  if (!callee.IsObject() || !callee.object().callable()) {
    RaiseRuntime(fmt::format("'{}' object is not callable", TypeName(callee)));
  }
  return Charged(callee.object().Call(*this, std::move(arguments)));
}

Value Interpreter::ApplyFilter(std::string_view name, const Value& input, CallArguments arguments) {
  const FilterEntry* filter = FindFilter(name);
  if (filter == nullptr) RaiseRuntime(fmt::format("No filter named '{}'.", name));
  Charge(1 + (input.IsString() ? input.weight() : 0));
  return Charged(filter->apply(*this, input, arguments));
}

bool Interpreter::ApplyTest(std::string_view name, const Value& input, CallArguments arguments) {
  const TestEntry* test = FindTest(name);
  if (test == nullptr) RaiseRuntime(fmt::format("No test named '{}'.", name));
  Charge(1);
  return test->apply(*this, input, arguments);
}

Value Interpreter::MakeMacro(const MacroDefinition& macro, const std::shared_ptr<Scope>& scope) {
  ChargeBytes(sizeof(Macro));
  if (captured_scopes_.back() != scope) captured_scopes_.push_back(scope);
  return Value::MakeObject(std::make_shared<Macro>(macro, scope));
}

Value Interpreter::CallMacro(const MacroDefinition& macro, const std::shared_ptr<Scope>& closure,
                             CallArguments arguments) {
  const DepthGuard guard(*this);
  const auto scope = std::make_shared<Scope>(Scope{closure, {}});
  BindParameters(macro, std::move(arguments), scope);
  TracedString text;
  const Redirection redirection(*this, &text);
  if (RunBody(macro.body, scope) != Flow::kNext) RaiseRuntime("'break' outside of a loop");
  return Value::Str(std::move(text));
}

void Interpreter::BindParameters(const MacroDefinition& macro, CallArguments arguments,
                                 const std::shared_ptr<Scope>& scope) {
  const size_t count = macro.parameters.size();
  std::vector<std::optional<Value>> given(count);
  for (size_t i = 0; i < std::min(count, arguments.positional.size()); ++i) {
    given[i] = arguments.positional[i];
  }
  Dict kwargs;
  std::optional<Value> caller;
  for (auto& [name, value] : arguments.keyword) {
    const auto parameter =
        std::find(macro.parameter_names.begin(), macro.parameter_names.end(), name);
    const auto i = static_cast<size_t>(parameter - macro.parameter_names.begin());
    if (i < count && !given[i]) {
      given[i] = std::move(value);
    } else if (name == "caller" && macro.takes_caller) {
      caller = std::move(value);
    } else if (macro.takes_kwargs) {
      kwargs.Set(Value::Str(name, Origin::kTemplate), std::move(value));
    } else {
      RaiseRuntime(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name, name));
    }
  }
  if (arguments.positional.size() > count && !macro.takes_varargs) {
    RaiseRuntime(fmt::format("macro '{}' takes not more than {} argument(s)", macro.name, count));
  }
  const size_t first_default = count - macro.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    if (!given[i]) {
      given[i] = i >= first_default
                     ? Evaluate(*macro.defaults[i - first_default], scope)
                     : Value::MakeUndefined(
                           fmt::format("parameter '{}' was not provided", macro.parameter_names[i]),
                           macro.parameter_names[i]);
    }
    SetVariable(*scope, macro.parameters[i], *given[i]);
  }
  if (macro.takes_caller) {
    SetVariable(*scope, kCallerSymbol,
                caller ? *caller : Value::MakeUndefined("No caller defined", "caller"));
  }
  if (macro.takes_kwargs) {
    SetVariable(*scope, kKwargsSymbol, Value::MakeDict(std::move(kwargs)));
  }
  if (macro.takes_varargs) {
    List rest;
    for (size_t i = count; i < arguments.positional.size(); ++i) {
      rest.push_back(arguments.positional[i]);
    }
    SetVariable(*scope, kVarargsSymbol, Value::MakeTuple(std::move(rest)));
  }
}

CallArguments Interpreter::EvaluateArguments(const Arguments& arguments,
                                             const std::shared_ptr<Scope>& scope) {
  CallArguments result;
  for (const ExpressionPtr& argument : arguments.positional) {
    result.positional.push_back(Evaluate(*argument, scope));
  }
  if (arguments.spread) {
    const auto source = Iterate(Evaluate(*arguments.spread, scope));
    for (Value item; source->Next(&item);) {
      Charge(1);
      result.positional.push_back(item);
    }
  }
  for (const auto& [name, argument] : arguments.keyword) {
    result.keyword.emplace_back(name, Evaluate(*argument, scope));
  }
  if (arguments.keyword_spread) {
    const Value spread = Evaluate(*arguments.keyword_spread, scope);
    if (!spread.IsDict()) RaiseRuntime("argument after ** must be a mapping");
    for (const Dict::Entry& entry : spread.dict().entries()) {
      if (!entry.key.IsString()) RaiseRuntime("keywords must be strings");
      result.keyword.emplace_back(entry.key.text(), entry.value);
    }
  }
  return result;
}

}  // namespace mference::jinja
