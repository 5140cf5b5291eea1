// Schemas for the tests: some written by hand, the rest made from a seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace mference::testing_support {

// A generator whose values are the same on every platform.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 0x1234567) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  size_t Below(size_t limit) { return static_cast<size_t>(Next() % limit); }
  bool Chance(size_t percent) { return Below(100) < percent; }

 private:
  uint64_t state_;
};

// 200 schemas that can be satisfied: nested objects, enums, arrays, Unicode, numbers, patterns,
// recursion.
std::vector<OrderedJson> SchemaCorpus();

// A value for `schema`: mostly valid, members in the schema's order; broken somewhere with the
// given chance (in percent, at every node).
OrderedJson RandomValue(const OrderedJson& schema, const OrderedJson& document, size_t broken,
                        Dice* dice, int depth = 0);

}  // namespace mference::testing_support
