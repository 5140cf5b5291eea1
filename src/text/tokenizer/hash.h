// The one hash function of the tokenizer's tables. Not for untrusted keys by itself: the tables
// bound their probes instead, so that a file made to collide is refused and cannot make them slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace mference {

// Multiplies to 128 bits and folds the halves: every input bit reaches every output bit.
inline uint64_t HashMix(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{a ^ 0x9E3779B97F4A7C15} * (b ^ 0xD6E8FEB86659FD93);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

template <typename Word>
uint64_t LoadWord(const char* data) {
  Word word;
  std::memcpy(&word, data, sizeof(word));
  return word;
}

// Loads overlap instead of looping over a tail; the size in the seed keeps that injective enough.
inline uint64_t HashBytes(const char* data, size_t size) {
  uint64_t hash = size;
  if (size >= 8) {
    const char* last = data + size - 8;
    for (; data < last; data += 8) hash = HashMix(hash, LoadWord<uint64_t>(data));
    return HashMix(hash, LoadWord<uint64_t>(last));
  }
  uint64_t word = 0;
  if (size >= 4) {
    word = LoadWord<uint32_t>(data) << 32 | LoadWord<uint32_t>(data + size - 4);
  } else if (size > 0) {
    word = LoadWord<uint8_t>(data) << 16 | LoadWord<uint8_t>(data + size / 2) << 8 |
           LoadWord<uint8_t>(data + size - 1);
  }
  return HashMix(hash, word);
}

}  // namespace mference
