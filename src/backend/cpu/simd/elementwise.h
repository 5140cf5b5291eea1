// Operations on vectors of floats, for any instruction set.
#pragma once

#include <cmath>
#include <limits>

#include "backend/cpu/simd/math.h"

namespace mference::cpu::simd {

template <typename V>
struct Elementwise {
  using F = typename V::F;
  static constexpr int kLanes = V::kLanes;

  // out[i] = f(inputs[i]...) over n elements.
  template <typename Function, typename... Inputs>
  [[gnu::always_inline]] static void Map(int n, float* out, Function f, const Inputs*... inputs) {
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) V::Store(out + i, f(V::Load(inputs + i)...));
    if (i < n) V::StorePartial(out + i, f(V::LoadPartial(inputs + i, n - i)...), n - i);
  }

  // Sum of a[i] * b[i] in 4 interleaved vectors of partial sums.
  static float Dot(const float* a, const float* b, int n) {
    F sums[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
    int i = 0;
    for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
      Unroll<4>([&](auto j) __attribute__((always_inline)) {
        sums[j] = V::Fma(V::Load(a + i + j * kLanes), V::Load(b + i + j * kLanes), sums[j]);
      });
    }
    for (; i + kLanes <= n; i += kLanes) {
      sums[0] = V::Fma(V::Load(a + i), V::Load(b + i), sums[0]);
    }
    if (i < n) {
      sums[1] = V::Fma(V::LoadPartial(a + i, n - i), V::LoadPartial(b + i, n - i), sums[1]);
    }
    return V::Sum(V::Add(V::Add(sums[0], sums[1]), V::Add(sums[2], sums[3])));
  }

  static F InverseRms(const float* x, float eps, int n) {
    return V::Set(1.0f / std::sqrt(Dot(x, x, n) / static_cast<float>(n) + eps));
  }

  static void RmsNorm(const float* x, const float* weight, float eps, int n, float* out) {
    const F factor = InverseRms(x, eps, n);
    if (weight == nullptr) {
      Map(
          n, out, [&](F v) { return V::Mul(v, factor); }, x);
    } else {
      Map(
          n, out, [&](F v, F w) { return V::Mul(V::Mul(v, factor), w); }, x, weight);
    }
  }

  static void AddRmsNorm(const float* x, const float* weight, float eps, float scale, int n,
                         float* residual) {
    const F factor = InverseRms(x, eps, n);
    const F s = V::Set(scale);
    if (weight == nullptr) {
      Map(
          n, residual, [&](F v, F r) { return V::Mul(V::Add(r, V::Mul(v, factor)), s); }, x,
          residual);
    } else {
      Map(
          n, residual,
          [&](F v, F w, F r) { return V::Mul(V::Add(r, V::Mul(V::Mul(v, factor), w)), s); }, x,
          weight, residual);
    }
  }

  static void AddScaled(const float* a, const float* b, float scale, int n, float* out) {
    const F s = V::Set(scale);
    Map(
        n, out, [&](F u, F v) { return V::Mul(V::Add(u, v), s); }, a, b);
  }

  static void Accumulate(float w, const float* y, int n, float* acc) {
    const F weight = V::Set(w);
    Map(
        n, acc, [&](F v, F sum) { return V::Fma(weight, v, sum); }, y, acc);
  }

  // x sigmoid(a) as x / (1 + exp(-a)), which does not cancel where sigmoid is small.
  [[gnu::always_inline]] static F TimesSigmoid(F x, F minus_a) {
    return V::Div(x, V::Add(V::Set(1.0f), Exp<V>(minus_a)));
  }

  static void GeluProduct(const float* gate, const float* up, int n, float* out) {
    // x/2 (1 + tanh(a)) = x sigmoid(2a), 2a = 2 sqrt(2/pi) x (1 + 0.044715 x^2).
    const F minus_two_k = V::Set(-1.59576912160573f);
    Map(
        n, out,
        [&](F x, F u) {
          const F inner = V::Fma(V::Mul(V::Set(0.044715f), x), x, V::Set(1.0f));
          return V::Mul(TimesSigmoid(x, V::Mul(V::Mul(minus_two_k, x), inner)), u);
        },
        gate, up);
  }

  static void SiluProduct(const float* gate, const float* up, float limit, int n, float* out) {
    const F high = V::Set(limit);
    const F low = V::Set(-limit);
    Map(
        n, out,
        [&](F g, F u) {
          g = V::Min(high, g);
          u = V::Min(high, V::Max(low, u));
          return V::Mul(TimesSigmoid(g, V::Sub(V::Zero(), g)), u);
        },
        gate, up);
  }

  static void SigmoidProduct(const float* x, const float* gate, int n, float* out) {
    Map(
        n, out, [&](F v, F g) { return TimesSigmoid(v, V::Sub(V::Zero(), g)); }, x, gate);
  }

  static void L2Normalise(const float* x, float eps, float scale, int n, float* out) {
    const F factor = V::Set(scale / std::sqrt(Dot(x, x, n) + eps));
    Map(
        n, out, [&](F v) { return V::Mul(v, factor); }, x);
  }

  // The largest element, NaNs left out; -infinity if there is none.
  static float Largest(const float* x, int n) {
    const F lowest = V::Set(-std::numeric_limits<float>::infinity());
    F best[4] = {lowest, lowest, lowest, lowest};
    int i = 0;
    for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
      Unroll<4>([&](auto j) __attribute__((always_inline)) {
        best[j] = V::Max(V::Load(x + i + j * kLanes), best[j]);
      });
    }
    float largest = V::Largest(V::Max(V::Max(best[0], best[1]), V::Max(best[2], best[3])));
    for (; i < n; ++i) {
      if (x[i] > largest) largest = x[i];
    }
    return largest;
  }

  static void Softmax(const float* x, int n, float* out) {
    const F max = V::Set(Largest(x, n));
    F sums = V::Zero();
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const F e = Exp<V>(V::Sub(V::Load(x + i), max));
      V::Store(out + i, e);
      sums = V::Add(sums, e);
    }
    float sum = V::Sum(sums);
    if (i < n) {
      V::StorePartial(out + i, Exp<V>(V::Sub(V::LoadPartial(x + i, n - i), max)), n - i);
      for (; i < n; ++i) sum += out[i];
    }
    const F divisor = V::Set(sum);
    Map(
        n, out, [&](F e) { return V::Div(e, divisor); }, out);
  }

  static void SoftCap(const float* x, float cap, int n, float* out) {
    const F c = V::Set(cap);
    Map(
        n, out, [&](F v) { return V::Mul(c, Tanh<V>(V::Div(v, c))); }, x);
  }

  static void Rope(float* x, int half, int pairs, const float* cosines, const float* sines) {
    const auto rotate = [](F a, F b, F c, F s, F& first, F& second) {
      first = V::Fma(a, c, V::Sub(V::Zero(), V::Mul(b, s)));
      second = V::Fma(b, c, V::Mul(a, s));
    };
    F first;
    F second;
    int i = 0;
    for (; i + kLanes <= pairs; i += kLanes) {
      rotate(V::Load(x + i), V::Load(x + half + i), V::Load(cosines + i), V::Load(sines + i), first,
             second);
      V::Store(x + i, first);
      V::Store(x + half + i, second);
    }
    if (const int rest = pairs - i; rest > 0) {
      rotate(V::LoadPartial(x + i, rest), V::LoadPartial(x + half + i, rest),
             V::LoadPartial(cosines + i, rest), V::LoadPartial(sines + i, rest), first, second);
      V::StorePartial(x + i, first, rest);
      V::StorePartial(x + half + i, second, rest);
    }
  }

  // The first position of the largest value: its value first, then where it stands.
  static int Argmax(const float* x, int n) {
    const float largest = Largest(x, n);
    const F wanted = V::Set(largest);
    int i = 0;
    while (i + kLanes <= n && !V::AnyEqual(V::Load(x + i), wanted)) i += kLanes;
    for (; i < n; ++i) {
      if (x[i] == largest) return i;
    }
    return -1;  // nothing but NaNs
  }

  // Converts whole vectors, and the rest through a padded copy.
  template <typename From, typename To, typename Convert>
  [[gnu::always_inline]] static void ConvertAll(const From* x, int n, To* out, Convert convert) {
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) convert(x + i, out + i);
    if (i < n) {
      From padded[kLanes] = {};
      To converted[kLanes];
      for (int j = i; j < n; ++j) padded[j - i] = x[j];
      convert(padded, converted);
      for (int j = i; j < n; ++j) out[j] = converted[j - i];
    }
  }

  static void F16FromF32(const float* x, int n, uint16_t* out) {
    ConvertAll(x, n, out, [](const float* p, uint16_t* q) { V::StoreF16(q, V::Load(p)); });
  }
  static void F32FromF16(const uint16_t* x, int n, float* out) {
    ConvertAll(x, n, out, [](const uint16_t* p, float* q) { V::Store(q, V::LoadF16(p)); });
  }
  static void Bf16FromF32(const float* x, int n, uint16_t* out) {
    ConvertAll(x, n, out, [](const float* p, uint16_t* q) { V::StoreBf16(q, V::Load(p)); });
  }
  static void F32FromBf16(const uint16_t* x, int n, float* out) {
    ConvertAll(x, n, out, [](const uint16_t* p, float* q) { V::Store(q, V::LoadBf16(p)); });
  }

  static void Fill(Kernels& table) {
    table.rms_norm = RmsNorm;
    table.add_rms_norm = AddRmsNorm;
    table.add_scaled = AddScaled;
    table.accumulate = Accumulate;
    table.gelu_product = GeluProduct;
    table.silu_product = SiluProduct;
    table.sigmoid_product = SigmoidProduct;
    table.l2_normalise = L2Normalise;
    table.softmax = Softmax;
    table.soft_cap = SoftCap;
    table.rope = Rope;
    table.dot = Dot;
    table.argmax = Argmax;
    table.f16_from_f32 = F16FromF32;
    table.f32_from_f16 = F32FromF16;
    table.bf16_from_f32 = Bf16FromF32;
    table.f32_from_bf16 = F32FromBf16;
  }
};

}  // namespace mference::cpu::simd
