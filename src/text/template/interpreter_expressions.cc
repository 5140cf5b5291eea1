// The interpreter: expressions, names and members.
#include <algorithm>

#include "text/template/interpreter.h"
#include "text/template/operators.h"
#include "text/template/python_text.h"

namespace mference::jinja {
namespace {

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

}  // namespace

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

// ---- members

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

}  // namespace mference::jinja
