// What the kernel bodies in this folder ask of a vector type, and the pieces they share.
//
// The bodies are templates over `V`, the `Vec` of an instruction set's folder: a struct of static
// functions, nearly all of them one instruction. Everything here is a template of V, so that each
// instruction set gets functions of its own name and the linker can never mix them.
//
//   F, I                     V::kLanes floats; as many 32-bit words
//   kTileRows                rows of activations a register tile takes (times 2 vectors of weights)
//   kStreams, kFewBatch      weight rows and activation rows of the register tile for few rows
//   kFewRows                 the most activation rows that count as few
//   *Partial(..., n)         the first n elements; the rest reads as zero, is not written
//   Min(a, b), Max(a, b)     b if either is NaN
//   ScaleByPowerOfTwo(a, n)  a * 2^n for integral n in [-160, 160]
//   Deinterleave(a, b)       the even and the odd elements of the sequence a, b
//   Code<bits>(words)        the lowest `bits` bits of each word, as a float; the rest is ignored
//   SpreadBf16<g>(p)         g BF16 values at p, each repeated over kLanes / g neighbouring lanes
//   kQuantisedRows           rows of activations of the register tile for 8-bit activations
//   AddDots(s, c, x, d, y)   s plus, in each word, the products of its 4 unsigned bytes of c (at
//                            most 15) with the signed ones of x, and of d with y
//   AddPairs(s, c, x)        s plus, in each word, the products of its two 16-bit halves of c and x
//   kByteDots                whether V has AddByteDots(s, c, x): s plus, in each word, the
//                            products of its 4 unsigned bytes of c with the signed ones of x; then
//                            also AddWords, ShiftLeft<bits>, and Permute(x, lanes), lane i of which
//                            is lane lanes[i] of x
//   StoreSignedBytes<k>(p, x)  16 integral floats of [-128, 127] in several vectors, as bytes; byte
//                            i of each 4 k comes to 4 (i % k) + i / k
#pragma once

#include <utility>

#include "backend/cpu/kernels.h"

namespace mference::cpu::simd {

// Calls f with the constants 0 .. kCount - 1, fully unrolled: arrays indexed by them stay in
// registers.
template <int kCount, typename F>
[[gnu::always_inline]] inline void Unroll(F&& f) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, kIndex>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

// Takes the kCount vectors as one sequence and moves the lowest kStages bits of each element's
// index to the top. With kCount = kLanes = 2^kStages that transposes a square; see Transpose.
template <typename V, int kCount, int kStages>
[[gnu::always_inline]] inline void Unshuffle(typename V::F (&x)[kCount]) {
  Unroll<kStages>([&](auto) __attribute__((always_inline)) {
    typename V::F next[kCount];
    Unroll<kCount / 2>([&](auto i) __attribute__((always_inline)) {
      V::Deinterleave(x[2 * i], x[2 * i + 1], next[i], next[kCount / 2 + i]);
    });
    Unroll<kCount>([&](auto i) __attribute__((always_inline)) { x[i] = next[i]; });
  });
}

constexpr int Log2(int n) { return n <= 1 ? 0 : 1 + Log2(n / 2); }

constexpr int RoundUp(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// Element i of vector j becomes element j of vector i; V may know a faster way.
template <typename V>
[[gnu::always_inline]] inline void Transpose(typename V::F (&x)[V::kLanes]) {
  if constexpr (requires { V::Transpose(x); }) {
    V::Transpose(x);
  } else {
    Unshuffle<V, V::kLanes, Log2(V::kLanes)>(x);
  }
}

}  // namespace mference::cpu::simd
