// Filters on sequences and mappings, listed by filters.cc.
#pragma once

#include "text/template/object.h"
#include "text/template/value.h"

namespace mference::jinja::sequence_filters {

Value Batch(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value DictSort(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value First(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value GroupBy(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value Items(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value Join(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value Last(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value LengthOf(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value MakeList(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value Map(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value Max(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value Min(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value Reject(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value RejectAttribute(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value Reverse(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value Select(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value SelectAttribute(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value Slices(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value Sort(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value Sum(Interpreter& interpreter, const Value& input, CallArguments& arguments);
Value Unique(Interpreter& interpreter, const Value& input, CallArguments& arguments);

}  // namespace mference::jinja::sequence_filters
