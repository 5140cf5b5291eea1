// The filters, tests, global functions and methods of the language.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "text/template/object.h"
#include "text/template/value.h"

namespace mference::jinja {

struct FilterEntry {
  const char* name;
  Value (*apply)(Interpreter& interpreter, const Value& input, CallArguments& arguments);
};

struct TestEntry {
  const char* name;
  bool (*apply)(Interpreter& interpreter, const Value& input, CallArguments& arguments);
};

// Null when there is none of that name.
const FilterEntry* FindFilter(std::string_view name);
const TestEntry* FindTest(std::string_view name);

// range, dict, namespace, cycler, joiner, lipsum, raise_exception, strftime_now.
std::optional<Value> FindGlobal(std::string_view name);

// A method or attribute of a string, list, tuple, dictionary or number. A method that the sandbox
// hides is a forbidden undefined value.
std::optional<Value> FindMethod(const Value& receiver, std::string_view name);

// Arguments matched to a function's parameters, in order; those not given are empty. Raises, naming
// `function`, for missing (the first `required` must be there), surplus and unknown arguments.
std::vector<std::optional<Value>> Bind(const char* function, CallArguments& arguments,
                                       std::initializer_list<const char*> parameters,
                                       size_t required = 0);

// Methods of strings by name; raises for a name that is none.
Value CallStringMethod(Interpreter& interpreter, const Value& receiver, std::string_view name,
                       CallArguments& arguments);
bool IsStringMethod(std::string_view name);

}  // namespace mference::jinja
