// Vector exponentials.
//
// exp(x) = 2^n (1 + p) with n = round(x / ln 2), r = x - n ln 2 and p = exp(r) - 1. |r| <= 0.3466,
// where the Taylor series of degree 7 leaves r^8/8! < 5.2e-9 < 2^-27. ln 2 is split in two so that
// n * kLn2High is exact. Together: exp within 1.5 ulp, expm1 within 3 ulp.
#pragma once

#include "backend/cpu/simd/vec_concept.h"

namespace mference::cpu::simd {

// exp(x) = 2^n (1 + p), for x in [-110, 90].
template <typename V>
struct ReducedExp {
  typename V::F n;
  typename V::F p;
};

template <typename V>
[[gnu::always_inline]] inline ReducedExp<V> ReduceExp(typename V::F x) {
  using F = typename V::F;
  constexpr float kLn2High = 0x1.62e4p-1f;    // 15 bits: times |n| < 2^8 stays exact
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;  // ln 2 - kLn2High
  const F n = V::Round(V::Mul(x, V::Set(1.44269504088896f)));
  F r = V::Fma(n, V::Set(-kLn2High), x);
  r = V::Fma(n, V::Set(-kLn2Low), r);
  F p = V::Set(1.0f / 5040);
  p = V::Fma(p, r, V::Set(1.0f / 720));
  p = V::Fma(p, r, V::Set(1.0f / 120));
  p = V::Fma(p, r, V::Set(1.0f / 24));
  p = V::Fma(p, r, V::Set(1.0f / 6));
  p = V::Fma(p, r, V::Set(0.5f));
  p = V::Fma(V::Mul(p, r), r, r);
  return {n, p};
}

// Below -104 the result is zero, above 89 infinity; NaN stays NaN.
template <typename V>
[[gnu::always_inline]] inline typename V::F Exp(typename V::F x) {
  const auto clamped = V::Min(V::Set(89.0f), V::Max(V::Set(-104.0f), x));
  const ReducedExp<V> e = ReduceExp<V>(clamped);
  return V::ScaleByPowerOfTwo(V::Add(V::Set(1.0f), e.p), e.n);
}

// tanh(|x|) = t / (t + 2) with t = exp(2|x|) - 1, which keeps full relative accuracy near zero.
template <typename V>
[[gnu::always_inline]] inline typename V::F Tanh(typename V::F x) {
  // tanh(10) rounds to 1.
  const auto twice = V::Min(V::Set(20.0f), V::Mul(V::Set(2.0f), V::Abs(x)));
  const ReducedExp<V> e = ReduceExp<V>(twice);
  const auto power = V::ScaleByPowerOfTwo(V::Set(1.0f), e.n);
  const auto t = V::Fma(power, e.p, V::Sub(power, V::Set(1.0f)));
  return V::CopySign(V::Div(t, V::Add(t, V::Set(2.0f))), x);
}

}  // namespace mference::cpu::simd
