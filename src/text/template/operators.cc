#include "text/template/operators.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstring>
#include <limits>
#include <utility>

#include "text/template/python_text.h"
#include "text/template/template.h"
#include "text/template/unicode.h"

namespace mference::jinja {
namespace {

// Longest string or list that one operation may make.
constexpr size_t kMaxRepeated = 64ULL << 20;

bool IsIntegral(const Value& value) { return value.IsInt() || value.IsBool(); }

BigInt ToBigInt(const Value& value) {
  return value.IsBool() ? BigInt(value.boolean() ? 1 : 0) : value.big_int();
}

// The value as int64_t where it is one.
std::optional<int64_t> ToInt64(const Value& value) {
  if (value.IsBool()) return value.boolean() ? 1 : 0;
  if (value.IsSmallInt()) return value.small_int();
  return std::nullopt;
}

// Exact comparison of two numbers, also between integers and doubles.
std::partial_ordering CompareNumbers(const Value& a, const Value& b) {
  if (a.IsFloat() && b.IsFloat()) return a.number().number <=> b.number().number;
  if (b.IsFloat()) {
    const double number = b.number().number;
    if (std::isnan(number)) return std::partial_ordering::unordered;
    if (std::isinf(number)) {
      return number > 0 ? std::partial_ordering::less : std::partial_ordering::greater;
    }
    const double whole = std::floor(number);
    const int order = BigInt::Compare(ToBigInt(a), *BigInt::FromDouble(whole));
    if (order != 0) return order <=> 0;
    return whole < number ? std::partial_ordering::less : std::partial_ordering::equivalent;
  }
  if (a.IsFloat()) return 0 <=> CompareNumbers(b, a);
  const auto x = ToInt64(a);
  const auto y = ToInt64(b);
  if (x && y) return *x <=> *y;
  return BigInt::Compare(ToBigInt(a), ToBigInt(b)) <=> 0;
}

bool EqualDicts(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const Dict::Entry& entry) {
    const Value* other = b.Find(entry.key);
    return other != nullptr && Equal(entry.value, *other);
  });
}

const char* OrderSymbol(Order order) {
  switch (order) {
    case Order::kLess:
      return "<";
    case Order::kLessEqual:
      return "<=";
    case Order::kGreater:
      return ">";
    case Order::kGreaterEqual:
      return ">=";
  }
  return "?";
}

bool Holds(std::partial_ordering ordering, Order order) {
  switch (order) {
    case Order::kLess:
      return ordering < 0;
    case Order::kLessEqual:
      return ordering <= 0;
    case Order::kGreater:
      return ordering > 0;
    case Order::kGreaterEqual:
      return ordering >= 0;
  }
  return false;
}

const char* OperatorSymbol(BinaryOperator op) {
  constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  return kSymbols[static_cast<size_t>(op)];
}

[[noreturn]] void RaiseOperands(BinaryOperator op, const Value& a, const Value& b) {
  RaiseRuntime(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", OperatorSymbol(op),
                           TypeName(a), TypeName(b)));
}

[[noreturn]] void RaiseZeroDivision() { RaiseRuntime("division by zero"); }

Value PowerOfIntegers(const Value& a, const Value& b) {
  BigInt base = ToBigInt(a);
  const BigInt exponent = ToBigInt(b);
  if (exponent.negative()) {
    if (base.zero()) RaiseRuntime("0.0 cannot be raised to a negative power");
    return Value::Number(std::pow(base.ToDouble(), exponent.ToDouble()));
  }
  const bool unit = base.zero() || base == BigInt(1) || base == BigInt(-1);
  const auto small = exponent.ToInt64();
  if (!unit && (!small || static_cast<uint64_t>(*small) > BigInt::kMaxBits)) {
    throw TemplateError(TemplateErrorKind::kLimit, "the result of a power is too large");
  }
  if (unit) {
    BigInt quotient;
    BigInt odd;
    BigInt::FloorDivide(exponent, BigInt(2), &quotient, &odd);
    if (exponent.zero()) return Value::Int(1);
    return Value::Int(odd.zero() ? base * base : base);
  }
  BigInt result(1);
  for (int64_t rest = *small; rest > 0; rest >>= 1) {
    if ((rest & 1) != 0) result = result * base;
    if (rest > 1) base = base * base;
  }
  return Value::Int(std::move(result));
}

Value IntegerOperation(BinaryOperator op, const Value& a, const Value& b) {
  const auto x = ToInt64(a);
  const auto y = ToInt64(b);
  int64_t small = 0;
  switch (op) {
    case BinaryOperator::kAdd:
      if (x && y && !__builtin_add_overflow(*x, *y, &small)) return Value::Int(small);
      return Value::Int(ToBigInt(a) + ToBigInt(b));
    case BinaryOperator::kSubtract:
      if (x && y && !__builtin_sub_overflow(*x, *y, &small)) return Value::Int(small);
      return Value::Int(ToBigInt(a) - ToBigInt(b));
    case BinaryOperator::kMultiply:
      if (x && y && !__builtin_mul_overflow(*x, *y, &small)) return Value::Int(small);
      return Value::Int(ToBigInt(a) * ToBigInt(b));
    case BinaryOperator::kDivide: {
      if (ToBigInt(b).zero()) RaiseZeroDivision();
      // A long double holds every int64_t exactly, so that only the division rounds.
      if (x && y) {
        return Value::Number(
            static_cast<double>(static_cast<long double>(*x) / static_cast<long double>(*y)));
      }
      const double quotient = ToBigInt(a).ToDouble() / ToBigInt(b).ToDouble();
      if (!std::isfinite(quotient)) RaiseRuntime("integer division result too large for a float");
      return Value::Number(quotient);
    }
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo: {
      const BigInt divisor = ToBigInt(b);
      if (divisor.zero()) RaiseRuntime("integer division or modulo by zero");
      BigInt quotient;
      BigInt remainder;
      BigInt::FloorDivide(ToBigInt(a), divisor, &quotient, &remainder);
      return Value::Int(op == BinaryOperator::kModulo ? std::move(remainder) : std::move(quotient));
    }
    case BinaryOperator::kPower:
      return PowerOfIntegers(a, b);
  }
  RaiseOperands(op, a, b);
}

Value FloatOperation(BinaryOperator op, double x, double y) {
  switch (op) {
    case BinaryOperator::kAdd:
      return Value::Number(x + y);
    case BinaryOperator::kSubtract:
      return Value::Number(x - y);
    case BinaryOperator::kMultiply:
      return Value::Number(x * y);
    case BinaryOperator::kDivide:
      if (y == 0) RaiseRuntime("float division by zero");
      return Value::Number(x / y);
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo: {
      if (y == 0) RaiseRuntime("float floor division by zero");
      double remainder = std::fmod(x, y);
      double quotient = (x - remainder) / y;
      if (remainder != 0 && (remainder < 0) != (y < 0)) {
        remainder += y;
        quotient -= 1;
      }
      if (remainder == 0) remainder = std::copysign(0.0, y);
      if (op == BinaryOperator::kModulo) return Value::Number(remainder);
      if (quotient == 0) return Value::Number(std::copysign(0.0, x / y));
      const double whole = std::floor(quotient);
      return Value::Number(quotient - whole > 0.5 ? whole + 1 : whole);
    }
    case BinaryOperator::kPower: {
      if (x == 0 && y < 0) RaiseRuntime("0.0 cannot be raised to a negative power");
      if (x < 0 && std::isfinite(x) && std::isfinite(y) && y != std::floor(y)) {
        RaiseRuntime("the result of a power is complex");
      }
      const double result = std::pow(x, y);
      if (std::isinf(result) && std::isfinite(x) && std::isfinite(y)) {
        RaiseRuntime("(34, 'Numerical result out of range')");
      }
      return Value::Number(result);
    }
  }
  RaiseRuntime("unknown operator");
}

Value AddStrings(const String& a, const String& b) {
  const bool markup = a.markup || b.markup;
  TracedString sum = markup && !a.markup ? EscapeHtml(a.traced) : a.traced;
  sum.Append(markup && !b.markup ? EscapeHtml(b.traced) : b.traced);
  return Value::Str(std::move(sum), markup);
}

Value Repeat(const Value& sequence, const Value& times) {
  const auto count64 = ToInt64(times);
  if (!count64) RaiseRuntime("cannot fit 'int' into an index-sized integer");
  const uint64_t count = *count64 > 0 ? static_cast<uint64_t>(*count64) : 0;
  const size_t size = sequence.IsString() ? sequence.text().size() : sequence.items().size();
  if (count != 0 && size > kMaxRepeated / count) {
    throw TemplateError(TemplateErrorKind::kLimit, "a repeated string or list is too long");
  }
  if (sequence.IsString()) {
    TracedString repeated;
    for (uint64_t i = 0; i < (size == 0 ? 0 : count); ++i) {
      repeated.Append(sequence.string().traced);
    }
    return Value::Str(std::move(repeated), sequence.string().markup);
  }
  List items;
  if (size * count > kMaxRepeated / sizeof(Value)) {
    throw TemplateError(TemplateErrorKind::kLimit, "a repeated list is too long");
  }
  for (uint64_t i = 0; i < (size == 0 ? 0 : count); ++i) {
    items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  }
  return sequence.IsList() ? Value::MakeList(std::move(items)) : Value::MakeTuple(std::move(items));
}

// Strings that are not markup yet, escaped: what markup makes of the arguments of its `%`.
Value Escaped(const Value& value) {
  if (value.IsString() && !value.string().markup) {
    return Value::Str(EscapeHtml(value.string().traced), true);
  }
  if (value.IsTuple()) {
    List items;
    for (const Value& item : value.items()) items.push_back(Escaped(item));
    return Value::MakeTuple(std::move(items));
  }
  if (value.IsDict()) {
    Dict dict;
    for (const auto& [key, member] : value.dict().entries()) dict.Set(key, Escaped(member));
    return Value::MakeDict(std::move(dict));
  }
  return value;
}

bool IsRepeatable(const Value& value) {
  return value.IsString() || value.IsList() || value.IsTuple();
}

}  // namespace

void RaiseRuntime(const std::string& message) {
  throw TemplateError(TemplateErrorKind::kRuntime, message);
}

void RaiseUndefined(const Value& undefined) {
  throw TemplateError(undefined.undefined().forbidden ? TemplateErrorKind::kSecurity
                                                      : TemplateErrorKind::kUndefined,
                      undefined.undefined().message);
}

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return "Undefined";
    case Value::Kind::kNone:
      return "NoneType";
    case Value::Kind::kBool:
      return "bool";
    case Value::Kind::kInt:
      return "int";
    case Value::Kind::kFloat:
      return "float";
    case Value::Kind::kString:
      return value.string().markup ? "Markup" : "str";
    case Value::Kind::kList:
      return "list";
    case Value::Kind::kTuple:
      return "tuple";
    case Value::Kind::kDict:
      return "dict";
    case Value::Kind::kObject:
      return value.object().type_name();
  }
  return "object";
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return false;
    case Value::Kind::kBool:
      return value.boolean();
    case Value::Kind::kInt:
      return !value.IsSmallInt() || value.small_int() != 0;
    case Value::Kind::kFloat:
      return value.number().number != 0;
    case Value::Kind::kString:
      return !value.text().empty();
    case Value::Kind::kList:
    case Value::Kind::kTuple:
      return !value.items().empty();
    case Value::Kind::kDict:
      return !value.dict().empty();
    case Value::Kind::kObject:
      return value.object().Length().value_or(1) != 0;
  }
  return false;
}

bool IsNumber(const Value& value) { return IsIntegral(value) || value.IsFloat(); }

double ToDouble(const Value& value) {
  if (value.IsFloat()) return value.number().number;
  if (const auto small = ToInt64(value)) return static_cast<double>(*small);
  const double number = value.big_int().ToDouble();
  if (std::isinf(number)) RaiseRuntime("int too large to convert to float");
  return number;
}

Value RoundToInt(double value) {
  auto integer = BigInt::FromDouble(value);
  if (!integer) {
    RaiseRuntime(std::isnan(value) ? "cannot convert float NaN to integer"
                                   : "cannot convert float infinity to integer");
  }
  return Value::Int(std::move(*integer));
}

bool Equal(const Value& a, const Value& b) {
  if (IsNumber(a) && IsNumber(b)) return CompareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::kString:
      return a.text() == b.text();
    case Value::Kind::kList:
    case Value::Kind::kTuple:
      return a.identity() == b.identity() ||
             std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                        [](const Value& x, const Value& y) { return Equal(x, y); });
    case Value::Kind::kDict:
      return a.identity() == b.identity() || EqualDicts(a.dict(), b.dict());
    case Value::Kind::kObject:
      return a.object().Equals(b.object());
    default:
      return true;  // None, Undefined
  }
}

bool Identical(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::kNone:
      return true;
    case Value::Kind::kBool:
      return a.boolean() == b.boolean();
    case Value::Kind::kInt:
    case Value::Kind::kFloat:
    case Value::Kind::kString:
      return Equal(a, b);  // Python interns small ones; nothing can rely on the others
    default:
      return a.identity() == b.identity();
  }
}

bool Compare(const Value& a, const Value& b, Order order) {
  if (a.IsUndefined()) RaiseUndefined(a);
  if (b.IsUndefined()) RaiseUndefined(b);
  if (IsNumber(a) && IsNumber(b)) return Holds(CompareNumbers(a, b), order);
  if (a.IsString() && b.IsString()) return Holds(a.text() <=> b.text(), order);
  if (a.kind() == b.kind() && (a.IsList() || a.IsTuple())) {
    const List& x = a.items();
    const List& y = b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!Equal(x[i], y[i])) return Compare(x[i], y[i], order);
    }
    return Holds(x.size() <=> y.size(), order);
  }
  RaiseRuntime(fmt::format("'{}' not supported between instances of '{}' and '{}'",
                           OrderSymbol(order), TypeName(a), TypeName(b)));
}

size_t FindText(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  // memmem is a two-way search; std::string::find may take the product of the lengths.
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

bool Contains(const Value& container, const Value& item) {
  if (container.IsString()) {
    if (!item.IsString()) {
      RaiseRuntime(
          fmt::format("'in <string>' requires string as left operand, not {}", TypeName(item)));
    }
    return FindText(container.text(), item.text()) != std::string_view::npos;
  }
  if (container.IsDict()) return container.dict().Find(item) != nullptr;
  const auto source = TryIterate(container);
  if (!source) {
    RaiseRuntime(fmt::format("argument of type '{}' is not iterable", TypeName(container)));
  }
  for (Value candidate; source->Next(&candidate);) {
    if (Equal(candidate, item)) return true;
  }
  return false;
}

Value Binary(BinaryOperator op, const Value& a, const Value& b) {
  if (a.IsString() && op == BinaryOperator::kModulo) {
    const bool markup = a.string().markup;
    return Value::Str(PercentFormat(a.string().traced, markup ? Escaped(b) : b), markup);
  }
  if (a.IsUndefined()) RaiseUndefined(a);
  if (b.IsUndefined()) RaiseUndefined(b);
  if (IsIntegral(a) && IsIntegral(b)) return IntegerOperation(op, a, b);
  if (IsNumber(a) && IsNumber(b)) return FloatOperation(op, ToDouble(a), ToDouble(b));
  if (op == BinaryOperator::kMultiply) {
    if (IsRepeatable(a) && IsIntegral(b)) return Repeat(a, b);
    if (IsIntegral(a) && IsRepeatable(b)) return Repeat(b, a);
  }
  if (op != BinaryOperator::kAdd) RaiseOperands(op, a, b);
  if (a.IsString() && b.IsString()) return AddStrings(a.string(), b.string());
  if (a.kind() == b.kind() && (a.IsList() || a.IsTuple())) {
    List items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.IsList() ? Value::MakeList(std::move(items)) : Value::MakeTuple(std::move(items));
  }
  if (IsRepeatable(a)) {
    RaiseRuntime(
        fmt::format("can only concatenate {0} (not \"{1}\") to {0}", TypeName(a), TypeName(b)));
  }
  RaiseOperands(op, a, b);
}

Value Negate(const Value& value) {
  if (value.IsUndefined()) RaiseUndefined(value);
  if (value.IsFloat()) return Value::Number(-value.number().number);
  if (IsIntegral(value)) return Value::Int(-ToBigInt(value));
  RaiseRuntime(fmt::format("bad operand type for unary -: '{}'", TypeName(value)));
}

Value Plus(const Value& value) {
  if (value.IsUndefined()) RaiseUndefined(value);
  if (value.IsFloat()) return value;
  if (IsIntegral(value)) return Value::Int(ToBigInt(value));
  RaiseRuntime(fmt::format("bad operand type for unary +: '{}'", TypeName(value)));
}

std::optional<int64_t> AsIndex(const Value& value) { return ToInt64(value); }

std::optional<int64_t> Length(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return 0;
    case Value::Kind::kString:
      return static_cast<int64_t>(CountCodePoints(value.text()));
    case Value::Kind::kList:
    case Value::Kind::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Value::Kind::kDict:
      return static_cast<int64_t>(value.dict().size());
    case Value::Kind::kObject:
      return value.object().Length();
    default:
      return std::nullopt;
  }
}

std::optional<Value> At(const Value& sequence, int64_t index) {
  const auto length = Length(sequence);
  if (index < 0) index += *length;
  if (index < 0 || index >= *length) return std::nullopt;
  if (!sequence.IsString()) return sequence.items()[static_cast<size_t>(index)];
  const std::string& text = sequence.text();
  size_t position = 0;
  if (static_cast<size_t>(*length) == text.size()) {
    position = static_cast<size_t>(index);
  } else {
    for (int64_t i = 0; i < index; ++i) position += CodePointBytes(text, position);
  }
  const String& string = sequence.string();
  return Value::Str(string.traced.Slice(position, position + CodePointBytes(text, position)),
                    string.markup);
}

SliceRange ResolveSlice(const Value& start, const Value& stop, const Value& step, int64_t length) {
  const auto bound = [](const Value& value, int64_t open) -> int64_t {
    if (value.IsNone()) return open;
    if (value.IsInt() && !value.IsSmallInt()) {
      return value.big_int().negative() ? std::numeric_limits<int64_t>::min()
                                        : std::numeric_limits<int64_t>::max();
    }
    const auto index = AsIndex(value);
    if (!index) RaiseRuntime("slice indices must be integers or None");
    return *index;
  };
  SliceRange range{};
  range.step = bound(step, 1);
  if (range.step == 0) RaiseRuntime("slice step cannot be zero");
  if (range.step == std::numeric_limits<int64_t>::min()) ++range.step;
  const bool forward = range.step > 0;
  const auto clamp = [&](int64_t index) {
    if (index < 0) index = index < -length ? -1 : index + length;
    if (index < 0) return forward ? int64_t{0} : int64_t{-1};
    if (index >= length) return forward ? length : length - 1;
    return index;
  };
  range.start = clamp(bound(start, forward ? 0 : length - 1));
  // An open end of a backward slice lies before the first element, which no index can say.
  const int64_t end = stop.IsNone() ? (forward ? length : -1) : clamp(bound(stop, 0));
  const int64_t distance = forward ? end - range.start : range.start - end;
  const int64_t stride = forward ? range.step : -range.step;
  range.count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  return range;
}

Value Slice(const Value& sequence, const Value& start, const Value& stop, const Value& step) {
  if (sequence.IsList() || sequence.IsTuple()) {
    const List& all = sequence.items();
    const SliceRange range = ResolveSlice(start, stop, step, static_cast<int64_t>(all.size()));
    List items;
    for (int64_t i = 0; i < range.count; ++i) {
      items.push_back(all[static_cast<size_t>(range.start + i * range.step)]);
    }
    return sequence.IsList() ? Value::MakeList(std::move(items))
                             : Value::MakeTuple(std::move(items));
  }
  if (!sequence.IsString()) {
    RaiseRuntime(fmt::format("'{}' object cannot be sliced", TypeName(sequence)));
  }
  const TracedString& traced = sequence.string().traced;
  std::vector<size_t> offsets;  // of every code point, and the end
  for (size_t i = 0; i < traced.size(); i += CodePointBytes(traced.text(), i)) offsets.push_back(i);
  offsets.push_back(traced.size());
  const SliceRange range =
      ResolveSlice(start, stop, step, static_cast<int64_t>(offsets.size()) - 1);
  TracedString slice;
  if (range.step == 1 && range.count > 0) {
    slice = traced.Slice(offsets[static_cast<size_t>(range.start)],
                         offsets[static_cast<size_t>(range.start + range.count)]);
  } else {
    for (int64_t i = 0; i < range.count; ++i) {
      const auto at = static_cast<size_t>(range.start + i * range.step);
      slice.AppendSlice(traced, offsets[at], offsets[at + 1]);
    }
  }
  return Value::Str(std::move(slice), sequence.string().markup);
}

}  // namespace mference::jinja
