// Random numbers by position: the n-th word of a stream costs the same wherever one begins.
//
// The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", 2014) with its counter as an argument. That makes any piece of a tensor computable
// alone, and the bytes of a checkpoint independent of how it is cut into pieces.
#pragma once

#include <cstdint>
#include <string_view>

namespace mference {

inline uint64_t RandomWord(uint64_t stream, uint64_t index) {
  uint64_t z = stream + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// In [0, 1).
inline double RandomUnit(uint64_t stream, uint64_t index) {
  return static_cast<double>(RandomWord(stream, index) >> 11) * 0x1p-53;
}
inline double RandomBetween(uint64_t stream, uint64_t index, double least, double most) {
  return least + RandomUnit(stream, index) * (most - least);
}

// The stream called `name` (FNV-1a over its bytes).
inline uint64_t RandomStream(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return RandomWord(seed, hash);
}

}  // namespace mference
