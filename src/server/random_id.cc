#include "server/random_id.h"

#include <random>

namespace mference::server {

std::string RandomId(std::string_view prefix, int digits) {
  constexpr char kHex[] = "0123456789abcdef";
  static thread_local std::mt19937_64 generator{[] {
    std::random_device entropy;
    return (uint64_t{entropy()} << 32) | entropy();
  }()};
  std::string id(prefix);
  uint64_t bits = 0;
  for (int i = 0; i < digits; ++i) {
    if (i % 16 == 0) bits = generator();
    id += kHex[bits & 15];
    bits >>= 4;
  }
  return id;
}

}  // namespace mference::server
