// How fast this CPU multiplies and adds: the wall that prefill meets.
#pragma once

#include <string>
#include <vector>

namespace mference::bench {

struct ArithmeticCeiling {
  std::string type;         // "fp32", "bf16", "int8"
  std::string instruction;  // "avx512 fma", "avx512-vnni dpbusd", ...
  int threads = 0;
  double per_second = 0;  // operations; a multiplication and its addition are two
};

// One entry for each number type and instruction that this CPU has, on `threads` threads together:
// independent chains in registers, the best of several passes. Some 50 ms each.
std::vector<ArithmeticCeiling> MeasureArithmetic(int threads);

}  // namespace mference::bench
