// Python's operators, conversions and comparisons on values.
//
// Everything throws TemplateError without a line; the interpreter adds it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/template/object.h"
#include "text/template/value.h"

namespace mference::jinja {

[[noreturn]] void RaiseRuntime(const std::string& message);
// An undefined value was used: kUndefined, or kSecurity for a hidden attribute.
[[noreturn]] void RaiseUndefined(const Value& undefined);

// "str", "int", "NoneType", ...: type(value).__name__.
std::string TypeName(const Value& value);

bool Truth(const Value& value);
bool Equal(const Value& a, const Value& b);
bool Identical(const Value& a, const Value& b);  // `is`
// a < b for values that Python can order, `op` names the operator in the error otherwise.
enum class Order { kLess, kLessEqual, kGreater, kGreaterEqual };
bool Compare(const Value& a, const Value& b, Order order);
bool Contains(const Value& container, const Value& item);

// Offset of the first `wanted` at or after `from`, or npos, in linear time whatever the texts.
size_t FindText(std::string_view text, std::string_view wanted, size_t from = 0);

enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
Value Binary(BinaryOperator op, const Value& a, const Value& b);
Value Negate(const Value& value);
Value Plus(const Value& value);

// Int and bool as an index; nothing for other kinds, or beyond 64 bits.
std::optional<int64_t> AsIndex(const Value& value);
bool IsNumber(const Value& value);    // bool, int, float
double ToDouble(const Value& value);  // of a number
Value RoundToInt(double value);       // int(value); raises for infinities and NaN

// Null if `value` is not iterable.
std::unique_ptr<ItemSource> TryIterate(const Value& value);
std::unique_ptr<ItemSource> Iterate(const Value& value);  // raises
List ToList(const Value& value);                          // raises
std::optional<int64_t> Length(const Value& value);        // len(), nothing when it has none
std::optional<List> ReverseItems(const Value& value);     // reversed(), nothing when impossible

// Item `index` of a string, list or tuple; negative counts from the end.
std::optional<Value> At(const Value& sequence, int64_t index);
// sequence[start:stop:step]; None bounds are open. Raises when not sliceable.
Value Slice(const Value& sequence, const Value& start, const Value& stop, const Value& step);

// Applies a slice's bounds to a length, as Python's slice.indices().
struct SliceRange {
  int64_t start;
  int64_t step;
  int64_t count;
};
SliceRange ResolveSlice(const Value& start, const Value& stop, const Value& step, int64_t length);

}  // namespace mference::jinja
