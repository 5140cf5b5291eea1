// An independent judge of JSON values against schemas: a plain recursive check, as JSON Schema
// defines it, of the keywords the tests use. It shares nothing with the grammar.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace mference::testing_support {

// What a constrained reply narrows, so that "accepted" can be compared exactly.
struct Narrowing {
  // Objects with `properties` have no other members unless `additionalProperties` says so, arrays
  // with `prefixItems` no further items unless `items` does; members stand in the schema's order,
  // others last; integers have no fraction, and given values are written as they are given.
  bool closed = true;
};

// Whether `value` is valid against `schema`, a part of `document`.
bool IsValid(const OrderedJson& value, const OrderedJson& schema, const OrderedJson& document,
             const Narrowing& narrowing = {});

// Whether a name occurs twice in an object. `text` is the JSON text: parsed values lose repeats.
bool HasRepeatedKeys(std::string_view text);

}  // namespace mference::testing_support
