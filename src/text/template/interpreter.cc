#include "text/template/interpreter.h"

#include <algorithm>

#include "text/template/loop.h"
#include "text/template/operators.h"
#include "text/template/python_text.h"

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

// Jinja's name for the kind of an object in messages about missing members.
std::string ObjectDescription(const Value& value) {
  return value.IsNone() ? "None" : TypeName(value) + " object";
}

Value MissingMember(const Value& object, const Value& key) {
  if (key.IsString()) {
    return Value::MakeUndefined(
        fmt::format("'{}' has no attribute {}", ObjectDescription(object), Repr(key)), key.text());
  }
  return Value::MakeUndefined(
      fmt::format("{} has no element {}", ObjectDescription(object), Repr(key)), "");
}

bool IsHiddenName(std::string_view name) { return name.substr(0, 1) == "_"; }

// A filtered loop's items: those for which the condition holds, tested when they are pulled.
class FilteredSource : public ItemSource {
 public:
  FilteredSource(std::unique_ptr<ItemSource> source, std::function<bool(const Value&)> keep)
      : source_(std::move(source)), keep_(std::move(keep)) {}
  bool Next(Value* item) override {
    for (Value candidate; source_->Next(&candidate);) {
      if (!keep_(candidate)) continue;
      *item = std::move(candidate);
      return true;
    }
    return false;
  }

 private:
  std::unique_ptr<ItemSource> source_;
  std::function<bool(const Value&)> keep_;
};

}  // namespace

// Bounds recursion: every level of evaluation holds one.
class Interpreter::DepthGuard {
 public:
  explicit DepthGuard(Interpreter& interpreter) : interpreter_(interpreter) {
    if (++interpreter_.depth_ > interpreter_.options_.limits.max_depth) {
      --interpreter_.depth_;
      throw TemplateError(TemplateErrorKind::kLimit,
                          fmt::format("evaluation nests deeper than {} levels",
                                      interpreter_.options_.limits.max_depth));
    }
  }
  ~DepthGuard() { --interpreter_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Interpreter& interpreter_;
};

Interpreter::Interpreter(const ParsedTemplate& parsed, const Value& context,
                         const RenderOptions& options)
    : parsed_(parsed), context_(context), options_(options), root_(std::make_shared<Scope>()) {
  outer_.resize(parsed.symbols.size());
  captured_scopes_.push_back(root_);
}

Interpreter::~Interpreter() {
  for (const auto& loop : loops_) static_cast<Loop&>(*loop).Clear();
  for (const auto& space : namespaces_) space->Clear();
  for (const auto& scope : captured_scopes_) scope->variables.clear();
}

TracedString Interpreter::Run() {
  TracedString output;
  output_ = &output;
  if (RunBody(parsed_.body, root_) != Flow::kNext) RaiseRuntime("'break' outside of a loop");
  return output;
}

// ---- accounting

void Interpreter::Charge(uint64_t steps) {
  if (steps > options_.limits.max_steps - steps_) {
    throw TemplateError(
        TemplateErrorKind::kLimit,
        fmt::format("the render takes more than {} steps", options_.limits.max_steps));
  }
  steps_ += steps;
}

void Interpreter::ChargeBytes(uint64_t bytes) {
  if (bytes > options_.limits.max_bytes - bytes_) {
    throw TemplateError(
        TemplateErrorKind::kLimit,
        fmt::format("the render makes more than {} bytes of values", options_.limits.max_bytes));
  }
  bytes_ += bytes;
}

Value Interpreter::Charged(Value value) {
  if (value.IsString()) {
    ChargeBytes(value.text().size());
  } else if (value.IsList() || value.IsTuple()) {
    ChargeBytes(value.items().size() * sizeof(Value));
  } else if (value.IsDict()) {
    ChargeBytes(value.dict().size() * sizeof(Dict::Entry));
  } else if (value.IsObject()) {
    ChargeBytes(sizeof(Value));
  }
  return value;
}

TracedString Interpreter::TextOf(const Value& value) {
  if (!value.IsString()) Charge(value.weight());
  return Str(value);
}

void Interpreter::Emit(const TracedString& text) {
  ChargeBytes(text.size());
  if (output_->size() + text.size() > options_.limits.max_output_bytes) {
    throw TemplateError(TemplateErrorKind::kLimit, fmt::format("the output exceeds {} bytes",
                                                               options_.limits.max_output_bytes));
  }
  output_->Append(text);
}

std::shared_ptr<Namespace> Interpreter::NewNamespace() {
  ChargeBytes(sizeof(Namespace));
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

// ---- members and calls

Value Interpreter::GetAttribute(const Value& object, std::string_view name) {
  if (object.IsUndefined()) {
    // Only Python's own attributes of the undefined object are there, and they are hidden.
    auto hidden = object.undefined().forbidden ? std::nullopt : FindMethod(object, name);
    if (hidden) return *hidden;
    RaiseUndefined(object);
  }
  if (object.IsObject()) {
    if (!IsHiddenName(name)) {
      if (auto found = object.object().Attribute(*this, name)) return *found;
    }
  } else if (auto method = FindMethod(object, name)) {
    return *method;
  }
  if (object.IsDict()) {
    if (const Value* found = object.dict().Find(name)) return *found;
  }
  return MissingMember(object, Value::Str(std::string(name), Origin::kTemplate));
}

Value Interpreter::GetItem(const Value& object, const Value& key) {
  if (object.IsUndefined()) RaiseUndefined(object);
  Charge(key.weight());
  if (object.IsDict()) {
    const bool hashable = !key.IsList() && !key.IsDict();
    const Value* found = nullptr;
    try {
      if (hashable) found = object.dict().Find(key);
    } catch (const TemplateError&) {  // a tuple of something that cannot be hashed: no such key
    }
    if (found != nullptr) return *found;
  } else if (object.IsObject()) {
    if (auto found = object.object().Item(*this, key)) return *found;
  } else if (object.IsString() || object.IsList() || object.IsTuple()) {
    if (object.IsString()) Charge(object.weight());
    const auto index = AsIndex(key);
    if (index) {
      if (auto found = At(object, *index)) return *found;
    }
  }
  if (key.IsString()) {
    if (object.IsObject() && !IsHiddenName(key.text())) {
      if (auto found = object.object().Attribute(*this, key.text())) return *found;
    } else if (!object.IsObject()) {
      if (auto method = FindMethod(object, key.text())) return *method;
    }
  }
  return MissingMember(object, key);
}

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
  auto scope = std::make_shared<Scope>(Scope{closure, {}});
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
  TracedString text;
  TracedString* const before = std::exchange(output_, &text);
  Flow flow{};
  try {
    flow = RunBody(macro.body, scope);
  } catch (...) {
    output_ = before;
    throw;
  }
  output_ = before;
  if (flow != Flow::kNext) RaiseRuntime("'break' outside of a loop");
  return Value::Str(std::move(text));
}

// ---- statements

Interpreter::Flow Interpreter::RunBody(const Body& body, const std::shared_ptr<Scope>& scope) {
  const DepthGuard guard(*this);
  for (const StatementPtr& statement : body) {
    Charge(1);
    line_ = statement->line;
    const Flow flow = RunStatement(*statement, scope);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunStatement(const Statement& statement,
                                            const std::shared_ptr<Scope>& scope) {
  switch (statement.kind) {
    case Statement::Kind::kText:
      Emit(statement.literal.string().traced);
      break;
    case Statement::Kind::kPrint: {
      const Value value = Evaluate(*statement.expression, scope);
      Emit(TextOf(value));
      break;
    }
    case Statement::Kind::kIf:
      return RunIf(statement, scope);
    case Statement::Kind::kFor:
      return RunFor(statement, scope, Evaluate(*statement.expression, scope), 0);
    case Statement::Kind::kSet:
      Assign(statement.target, Evaluate(*statement.expression, scope), scope);
      break;
    case Statement::Kind::kSetBlock:
      RunSetBlock(statement, scope);
      break;
    case Statement::Kind::kFilterBlock: {
      const Value text = Value::Str(Capture(statement.body, scope));
      Emit(Str(EvaluateFilter(*statement.expression, scope, &text)));
      break;
    }
    case Statement::Kind::kMacro:
      SetVariable(*scope, statement.macro->symbol, MakeMacro(*statement.macro, scope));
      break;
    case Statement::Kind::kCallBlock:
      RunCallBlock(statement, scope);
      break;
    case Statement::Kind::kWith:
    case Statement::Kind::kScope:
    case Statement::Kind::kBlock:
      RunScoped(statement, scope);
      break;
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
    case Statement::Kind::kRefused:
      RaiseRuntime(fmt::format("'{}': a chat template cannot use other templates", statement.name));
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunIf(const Statement& statement,
                                     const std::shared_ptr<Scope>& scope) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition && !Truth(Evaluate(*branch.condition, scope))) continue;
    return RunBody(branch.body, scope);
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunFor(const Statement& statement,
                                      const std::shared_ptr<Scope>& scope, const Value& iterable,
                                      int depth) {
  std::unique_ptr<ItemSource> source = Iterate(iterable);
  std::optional<int64_t> length = Length(iterable);
  if (statement.condition) {
    length.reset();
    source = std::make_unique<FilteredSource>(std::move(source), [&, scope](const Value& item) {
      Charge(1);
      const auto test_scope = std::make_shared<Scope>(Scope{scope, {}});
      Assign(statement.target, item, test_scope);
      return Truth(Evaluate(*statement.condition, test_scope));
    });
  }
  auto loop = std::make_shared<Loop>(statement, scope, std::move(source), length, depth);
  if (statement.uses_loop) {
    ChargeBytes(sizeof(Loop));
    loops_.push_back(loop);
  }
  std::shared_ptr<Scope> inner;
  for (Value item; loop->Advance(&item);) {
    Charge(1);
    if (inner && inner.use_count() == 1) {
      inner->variables.clear();
    } else {
      inner = std::make_shared<Scope>(Scope{scope, {}});
    }
    if (statement.uses_loop) SetVariable(*inner, kLoopSymbol, Value::MakeObject(loop));
    Assign(statement.target, std::move(item), inner);
    if (RunBody(statement.body, inner) == Flow::kBreak) break;
    item = Value();
  }
  if (!loop->started() && !statement.otherwise.empty()) {
    return RunBody(statement.otherwise, std::make_shared<Scope>(Scope{scope, {}}));
  }
  return Flow::kNext;
}

Value Interpreter::RenderLoop(const Statement& loop, const std::shared_ptr<Scope>& scope,
                              const Value& iterable, int depth) {
  const DepthGuard guard(*this);
  TracedString text;
  TracedString* const before = std::exchange(output_, &text);
  try {
    RunFor(loop, scope, iterable, depth);
  } catch (...) {
    output_ = before;
    throw;
  }
  output_ = before;
  return Value::Str(std::move(text));
}

TracedString Interpreter::Capture(const Body& body, const std::shared_ptr<Scope>& scope) {
  TracedString text;
  TracedString* const before = std::exchange(output_, &text);
  Flow flow{};
  try {
    flow = RunBody(body, std::make_shared<Scope>(Scope{scope, {}}));
  } catch (...) {
    output_ = before;
    throw;
  }
  output_ = before;
  if (flow != Flow::kNext) RaiseRuntime("'break' inside of a captured block");
  return text;
}

void Interpreter::RunSetBlock(const Statement& statement, const std::shared_ptr<Scope>& scope) {
  Value text = Value::Str(Capture(statement.body, scope));
  if (statement.expression) text = EvaluateFilter(*statement.expression, scope, &text);
  Assign(statement.target, std::move(text), scope);
}

void Interpreter::RunCallBlock(const Statement& statement, const std::shared_ptr<Scope>& scope) {
  const Expression& call = *statement.expression;
  const Value callee = Evaluate(*call.operands[0], scope);
  CallArguments arguments = EvaluateArguments(*call.arguments, scope);
  arguments.keyword.emplace_back("caller", MakeMacro(*statement.macro, scope));
  Emit(Str(Call(callee, std::move(arguments))));
}

void Interpreter::RunScoped(const Statement& statement, const std::shared_ptr<Scope>& scope) {
  const bool block = statement.kind == Statement::Kind::kBlock;
  auto inner = std::make_shared<Scope>(Scope{block && !statement.scoped ? root_ : scope, {}});
  for (const auto& [target, expression] : statement.assignments) {
    Assign(target, Evaluate(*expression, scope), inner);
  }
  if (RunBody(statement.body, inner) != Flow::kNext) {
    RaiseRuntime("'break' or 'continue' out of a block");
  }
}

void Interpreter::Assign(const Target& target, Value value, const std::shared_ptr<Scope>& scope) {
  switch (target.kind) {
    case Target::Kind::kName:
      SetVariable(*scope, target.symbol, std::move(value));
      return;
    case Target::Kind::kNamespaceMember: {
      Expression name;
      name.kind = Expression::Kind::kName;
      name.symbol = target.symbol;
      name.name = parsed_.symbols[target.symbol];
      const Value object = EvaluateName(name, *scope);
      auto* space = object.IsObject() ? dynamic_cast<Namespace*>(&object.object()) : nullptr;
      if (space == nullptr) RaiseRuntime("cannot assign attribute on non-namespace object");
      space->Set(target.member, std::move(value));
      return;
    }
    case Target::Kind::kTuple: {
      const auto source = Iterate(value);
      List items;
      for (Value item; items.size() <= target.parts.size() && source->Next(&item);) {
        items.push_back(item);
      }
      if (items.size() > target.parts.size()) {
        RaiseRuntime(fmt::format("too many values to unpack (expected {})", target.parts.size()));
      }
      if (items.size() < target.parts.size()) {
        RaiseRuntime(fmt::format("not enough values to unpack (expected {}, got {})",
                                 target.parts.size(), items.size()));
      }
      for (size_t i = 0; i < items.size(); ++i) Assign(target.parts[i], std::move(items[i]), scope);
      return;
    }
  }
}

void Interpreter::SetVariable(Scope& scope, Symbol symbol, Value value) {
  for (auto& [name, current] : scope.variables) {
    if (name == symbol) {
      current = std::move(value);
      return;
    }
  }
  scope.variables.emplace_back(symbol, std::move(value));
}

// ---- expressions

Value Interpreter::Evaluate(const Expression& node, const std::shared_ptr<Scope>& scope) {
  using Kind = Expression::Kind;
  const DepthGuard guard(*this);
  Charge(1);
  line_ = node.line;
  const auto operand = [&](size_t i) { return Evaluate(*node.operands[i], scope); };
  switch (node.kind) {
    case Kind::kLiteral:
      return node.literal;
    case Kind::kName:
      return EvaluateName(node, *scope);
    case Kind::kList:
    case Kind::kTuple: {
      List items;
      for (const ExpressionPtr& item : node.operands) items.push_back(Evaluate(*item, scope));
      return Charged(node.kind == Kind::kList ? Value::MakeList(std::move(items))
                                              : Value::MakeTuple(std::move(items)));
    }
    case Kind::kDict: {
      Dict dict;
      for (size_t i = 0; i < node.operands.size(); i += 2) {
        Value key = operand(i);
        Charge(key.weight());
        dict.Set(std::move(key), operand(i + 1));
      }
      return Charged(Value::MakeDict(std::move(dict)));
    }
    case Kind::kAttribute:
      return GetAttribute(operand(0), node.name);
    case Kind::kItem: {
      const Value object = operand(0);
      return GetItem(object, operand(1));
    }
    case Kind::kSlice:
      return EvaluateSlice(node, scope);
    case Kind::kCall: {
      const Value callee = operand(0);
      CallArguments arguments = EvaluateArguments(*node.arguments, scope);
      line_ = node.line;
      return Call(callee, std::move(arguments));
    }
    case Kind::kFilter:
      return EvaluateFilter(node, scope, nullptr);
    case Kind::kTest: {
      const Value input = operand(0);
      CallArguments arguments = EvaluateArguments(*node.arguments, scope);
      line_ = node.line;
      if (node.test == nullptr) RaiseRuntime(fmt::format("No test named '{}' found.", node.name));
      return Value::Bool(node.test->apply(*this, input, arguments));
    }
    case Kind::kNot:
      return Value::Bool(!Truth(operand(0)));
    case Kind::kNegate:
      return Negate(operand(0));
    case Kind::kPlus:
      return Plus(operand(0));
    case Kind::kAnd: {
      Value left = operand(0);
      return Truth(left) ? operand(1) : left;
    }
    case Kind::kOr: {
      Value left = operand(0);
      return Truth(left) ? left : operand(1);
    }
    case Kind::kBinary: {
      const Value left = operand(0);
      const Value right = operand(1);
      line_ = node.line;
      if (left.IsInt() && right.IsInt()) Charge(left.IsSmallInt() && right.IsSmallInt() ? 1 : 1000);
      return Charged(Binary(node.op, left, right));
    }
    case Kind::kConcat:
      return EvaluateConcat(node, scope);
    case Kind::kCompare:
      return EvaluateCompare(node, scope);
    case Kind::kConditional:
      if (Truth(operand(1))) return operand(0);
      if (node.operands[2]) return operand(2);
      return Value::MakeUndefined(
          "the inline if-expression evaluated to false and no else section was defined.", "");
  }
  RaiseRuntime("unknown expression");
}

Value Interpreter::EvaluateName(const Expression& node, const Scope& scope) {
  for (const Scope* level = &scope; level != nullptr; level = level->parent.get()) {
    for (const auto& [symbol, value] : level->variables) {
      if (symbol == node.symbol) return value;
    }
  }
  std::optional<Value>& outer = outer_[node.symbol];
  if (!outer) {
    if (const Value* found = context_.dict().Find(node.name)) {
      outer = *found;
    } else if (auto global = FindGlobal(node.name)) {
      outer = *global;
    } else {
      outer = Value::MakeUndefined(fmt::format("'{}' is undefined", node.name), node.name);
    }
  }
  return *outer;
}

Value Interpreter::EvaluateSlice(const Expression& node, const std::shared_ptr<Scope>& scope) {
  const Value object = Evaluate(*node.operands[0], scope);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (node.operands[i + 1]) bounds[i] = Evaluate(*node.operands[i + 1], scope);
  }
  line_ = node.line;
  if (object.IsUndefined()) RaiseUndefined(object);
  const bool sliceable = object.IsString() || object.IsList() || object.IsTuple();
  const bool indices = std::all_of(std::begin(bounds), std::end(bounds), [](const Value& bound) {
    return bound.IsNone() || bound.IsInt() || bound.IsBool();
  });
  if (!sliceable || !indices) {
    return Value::MakeUndefined(fmt::format("{} has no such slice", ObjectDescription(object)), "");
  }
  if (object.IsString()) Charge(object.text().size());
  return Charged(Slice(object, bounds[0], bounds[1], bounds[2]));
}

Value Interpreter::EvaluateConcat(const Expression& node, const std::shared_ptr<Scope>& scope) {
  TracedString text;
  for (const ExpressionPtr& part : node.operands) {
    const Value value = Evaluate(*part, scope);
    text.Append(TextOf(value));
  }
  return Charged(Value::Str(std::move(text)));
}

bool Interpreter::HoldsComparison(Comparison comparison, const Value& a, const Value& b) {
  Charge(std::min(a.weight(), b.weight()) + (comparison >= Comparison::kIn ? b.weight() : 0));
  switch (comparison) {
    case Comparison::kEqual:
      return Equal(a, b);
    case Comparison::kNotEqual:
      return !Equal(a, b);
    case Comparison::kLess:
      return Compare(a, b, Order::kLess);
    case Comparison::kLessEqual:
      return Compare(a, b, Order::kLessEqual);
    case Comparison::kGreater:
      return Compare(a, b, Order::kGreater);
    case Comparison::kGreaterEqual:
      return Compare(a, b, Order::kGreaterEqual);
    case Comparison::kIn:
      return Contains(b, a);
    case Comparison::kNotIn:
      return !Contains(b, a);
  }
  return false;
}

Value Interpreter::EvaluateCompare(const Expression& node, const std::shared_ptr<Scope>& scope) {
  Value left = Evaluate(*node.operands[0], scope);
  for (size_t i = 0; i < node.comparisons.size(); ++i) {
    Value right = Evaluate(*node.operands[i + 1], scope);
    line_ = node.line;
    if (!HoldsComparison(node.comparisons[i], left, right)) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value Interpreter::EvaluateFilter(const Expression& node, const std::shared_ptr<Scope>& scope,
                                  const Value* block_input) {
  // In filter and set blocks the innermost filter of the chain has no operand: the block is it.
  const Expression* operand = node.operands[0].get();
  Value input;
  if (operand == nullptr) {
    input = *block_input;
  } else if (operand->kind == Expression::Kind::kFilter) {
    const DepthGuard guard(*this);
    input = EvaluateFilter(*operand, scope, block_input);
  } else {
    input = Evaluate(*operand, scope);
  }
  CallArguments arguments = EvaluateArguments(*node.arguments, scope);
  line_ = node.line;
  if (node.filter == nullptr) RaiseRuntime(fmt::format("No filter named '{}' found.", node.name));
  Charge(1 + (input.IsString() ? input.weight() : 0));
  return Charged(node.filter->apply(*this, input, arguments));
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
