// The tests of the language: `value is NAME`.
#include <algorithm>
#include <array>

#include "text/template/builtins.h"
#include "text/template/interpreter.h"
#include "text/template/operators.h"
#include "text/template/python_text.h"

namespace mference::jinja {
namespace {

using Arguments = CallArguments;

bool OfKind(const Value& value, Value::Kind kind) { return value.kind() == kind; }

template <Value::Kind kind>
bool HasKind(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("test", arguments, {});
  return OfKind(input, kind);
}

bool IsDefined(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("defined", arguments, {});
  return !input.IsUndefined();
}

template <bool wanted>
bool IsBoolean(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("test", arguments, {});
  return input.IsBool() && input.boolean() == wanted;
}

bool IsMapping(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("mapping", arguments, {});
  return input.IsDict() || (input.IsObject() && input.object().mapping());
}

bool IsNumberTest(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("number", arguments, {});
  return IsNumber(input);
}

bool IsSequence(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("sequence", arguments, {});
  if (input.IsObject()) return input.object().Length() && input.object().subscriptable();
  return Length(input).has_value();
}

bool IsIterable(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("iterable", arguments, {});
  return TryIterate(input) != nullptr;
}

bool IsCallable(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("callable", arguments, {});
  return input.IsUndefined() || (input.IsObject() && input.object().callable());
}

bool IsSameAs(Interpreter&, const Value& input, Arguments& arguments) {
  return Identical(input, *Bind("sameas", arguments, {"other"}, 1)[0]);
}

bool IsEscaped(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("escaped", arguments, {});
  return input.IsString() && input.string().markup;
}

template <bool lower>
bool HasCase(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  Bind("test", arguments, {});
  CallArguments none;
  return Truth(
      CallStringMethod(interpreter, Value::Str(Str(input)), lower ? "islower" : "isupper", none));
}

bool RemainderIs(const Value& input, const Value& divisor, int64_t remainder) {
  return Equal(Binary(BinaryOperator::kModulo, input, divisor), Value::Int(remainder));
}

template <int64_t remainder>
bool HasParity(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("test", arguments, {});
  return RemainderIs(input, Value::Int(2), remainder);
}

bool IsDivisibleBy(Interpreter&, const Value& input, Arguments& arguments) {
  return RemainderIs(input, *Bind("divisibleby", arguments, {"num"}, 1)[0], 0);
}

bool IsIn(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("in", arguments, {"seq"}, 1);
  interpreter.Charge(bound[0]->weight());
  return Contains(*bound[0], input);
}

template <bool wanted>
bool IsEqual(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("eq", arguments, {"other"}, 1);
  interpreter.Charge(std::min(input.weight(), bound[0]->weight()));
  return Equal(input, *bound[0]) == wanted;
}

template <Order order>
bool IsOrdered(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto bound = Bind("compare", arguments, {"other"}, 1);
  interpreter.Charge(std::min(input.weight(), bound[0]->weight()));
  return Compare(input, *bound[0], order);
}

bool IsFilter(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("filter", arguments, {});
  return input.IsString() && FindFilter(input.text()) != nullptr;
}

bool IsTest(Interpreter&, const Value& input, Arguments& arguments) {
  Bind("test", arguments, {});
  return input.IsString() && FindTest(input.text()) != nullptr;
}

constexpr auto kTests = std::to_array<TestEntry>({
    {"!=", IsEqual<false>},
    {"<", IsOrdered<Order::kLess>},
    {"<=", IsOrdered<Order::kLessEqual>},
    {"==", IsEqual<true>},
    {">", IsOrdered<Order::kGreater>},
    {">=", IsOrdered<Order::kGreaterEqual>},
    {"boolean", HasKind<Value::Kind::kBool>},
    {"callable", IsCallable},
    {"defined", IsDefined},
    {"divisibleby", IsDivisibleBy},
    {"eq", IsEqual<true>},
    {"equalto", IsEqual<true>},
    {"escaped", IsEscaped},
    {"even", HasParity<0>},
    {"false", IsBoolean<false>},
    {"filter", IsFilter},
    {"float", HasKind<Value::Kind::kFloat>},
    {"ge", IsOrdered<Order::kGreaterEqual>},
    {"greaterthan", IsOrdered<Order::kGreater>},
    {"gt", IsOrdered<Order::kGreater>},
    {"in", IsIn},
    {"integer", HasKind<Value::Kind::kInt>},
    {"iterable", IsIterable},
    {"le", IsOrdered<Order::kLessEqual>},
    {"lessthan", IsOrdered<Order::kLess>},
    {"lower", HasCase<true>},
    {"lt", IsOrdered<Order::kLess>},
    {"mapping", IsMapping},
    {"ne", IsEqual<false>},
    {"none", HasKind<Value::Kind::kNone>},
    {"number", IsNumberTest},
    {"odd", HasParity<1>},
    {"sameas", IsSameAs},
    {"sequence", IsSequence},
    {"string", HasKind<Value::Kind::kString>},
    {"test", IsTest},
    {"true", IsBoolean<true>},
    {"undefined", HasKind<Value::Kind::kUndefined>},
    {"upper", HasCase<false>},
});

}  // namespace

const TestEntry* FindTest(std::string_view name) {
  const auto* test = std::find_if(kTests.begin(), kTests.end(),
                                  [&](const TestEntry& entry) { return name == entry.name; });
  return test != kTests.end() ? &*test : nullptr;
}

}  // namespace mference::jinja
