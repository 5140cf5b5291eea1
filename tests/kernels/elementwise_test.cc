// Operations on vectors of floats against double precision.
#include <limits>

#include "base/float16.h"
#include "kernels/kernel_testing.h"

namespace mference::cpu {
namespace {

constexpr double kU = kUnitRoundoff;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Below, at, and past multiples of every vector width and unrolling.
const int kLengths[] = {1, 3, 4, 7, 8, 15, 16, 17, 31, 63, 64, 65, 100, 192, 255, 704, 2816};

double GeluReference(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double SiluReference(double x) { return x / (1 + std::exp(-x)); }

class ElementwiseTest : public KernelTest {
 protected:
  // Runs kernel(out) on a guarded output of n floats.
  template <typename Kernel>
  static std::vector<float> Output(int n, Kernel kernel) {
    GuardedBuffer<float> out(static_cast<size_t>(n));
    kernel(out.data());
    return {out.data(), out.data() + n};
  }
};

// The mean of n squares: each square passes at most n + 1 roundings and all are positive, so the
// relative error is (n + 1) u, half of it after the root; root, quotient and two products add 4 u.
double NormBound(int n) { return (0.5 * (n + 2) + 5) * kU; }

TEST_P(ElementwiseTest, RmsNorm) {
  for (const int n : kLengths) {
    GuardedBuffer<float> x(UniformVector(n, -5, 5));
    GuardedBuffer<float> weight(UniformVector(n, -20, 600));
    GuardedBuffer<float> residual(UniformVector(n, -5, 5));
    const auto size = static_cast<size_t>(n);
    double squares = 0;
    for (size_t i = 0; i < size; ++i)
      squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    const double factor = 1 / std::sqrt(squares / n + static_cast<double>(1e-6f));
    for (const bool weighted : {false, true}) {
      const float* w = weighted ? weight.data() : nullptr;
      std::vector<double> normed(size);
      std::vector<double> added(size);
      const auto scale = static_cast<double>(0.0703f);
      for (size_t i = 0; i < size; ++i) {
        normed[i] =
            static_cast<double>(x[i]) * factor * (weighted ? static_cast<double>(weight[i]) : 1);
        added[i] = (static_cast<double>(residual[i]) + normed[i]) * scale;
      }
      ExpectWithin(
          normed, Output(n, [&](float* out) { k().rms_norm(x.data(), w, 1e-6f, n, out); }),
          [&](size_t i) { return NormBound(n) * std::abs(normed[i]); },
          "rms_norm " + std::to_string(n));
      ExpectWithin(
          added,
          Output(n,
                 [&](float* out) {
                   std::copy_n(residual.data(), n, out);
                   k().add_rms_norm(x.data(), w, 1e-6f, 0.0703f, n, out);
                 }),
          [&](size_t i) {
            return scale * (NormBound(n) + 3 * kU) *
                   (std::abs(normed[i]) + std::abs(static_cast<double>(residual[i])));
          },
          "add_rms_norm " + std::to_string(n));
    }
    // In place.
    std::vector<float> in_place(x.data(), x.data() + n);
    k().rms_norm(in_place.data(), weight.data(), 1e-6f, n, in_place.data());
    EXPECT_EQ(in_place,
              Output(n, [&](float* out) { k().rms_norm(x.data(), weight.data(), 1e-6f, n, out); }));
  }
}

TEST_P(ElementwiseTest, SumsAndProducts) {
  for (const int n : kLengths) {
    GuardedBuffer<float> a(UniformVector(n, -5, 5));
    GuardedBuffer<float> b(UniformVector(n, -5, 5));
    // One rounding each: the same bits as the definition in FP32.
    const auto size = static_cast<size_t>(n);
    std::vector<float> scaled(size);
    std::vector<float> accumulated(size);
    double dot = 0;
    double norm = 0;
    for (size_t i = 0; i < size; ++i) {
      scaled[i] = (a[i] + b[i]) * 0.3f;
      accumulated[i] = std::fma(0.3f, a[i], b[i]);
      const double product = static_cast<double>(a[i]) * static_cast<double>(b[i]);
      dot += product;
      norm += std::abs(product);
    }
    EXPECT_EQ(scaled,
              Output(n, [&](float* out) { k().add_scaled(a.data(), b.data(), 0.3f, n, out); }));
    EXPECT_EQ(accumulated, Output(n, [&](float* out) {
                std::copy_n(b.data(), n, out);
                k().accumulate(0.3f, a.data(), n, out);
              }));
    EXPECT_NEAR(static_cast<double>(k().dot(a.data(), b.data(), n)), dot, (n + 1) * kU * norm) << n;
  }
}

// gelu(x) = x / (1 + exp(z)), z = -2 sqrt(2/pi) x (1 + 0.044715 x^2). z carries 4 roundings (and
// those of two constants), which exp turns into a relative error of 6 |z| u where exp(z) dominates;
// exp itself, sum, quotient and product add 6 u. Where exp(z) overflows (2^128 and above) the
// result is zero instead of at most |x| 2^-128; other results that underflow are within the
// smallest normal number.
TEST_P(ElementwiseTest, GeluProduct) {
  std::vector<float> gate = {-1, 0.5f, 2, 0, -0.0f, 30, -30, 1e-20f, -9.5f, 400, -410};
  while (gate.size() < 2000) gate.push_back(Uniform(-14, 14));
  std::vector<float> up(gate.size());
  for (float& u : up) u = Uniform(-3, 3);
  std::vector<double> expected(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) {
    // Evaluated without cancellation for negative x.
    const auto x = static_cast<double>(gate[i]);
    const double z = -2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    expected[i] = x / (1 + std::exp(z)) * static_cast<double>(up[i]);
  }
  for (const int n : kLengths) {
    if (n > 2000) continue;
    const auto got =
        Output(n, [&](float* out) { k().gelu_product(gate.data(), up.data(), n, out); });
    ExpectWithin(
        {expected.data(), static_cast<size_t>(n)}, got,
        [&](size_t i) {
          const auto x = static_cast<double>(gate[i]);
          const double z = x < 0 ? 1.6 * (-x - 0.044715 * x * x * x) : 1.0;
          return (6 * z + 6) * kU * std::abs(expected[i]) +
                 std::abs(x * static_cast<double>(up[i])) * 0x1p-127 + 0x1p-126;
        },
        "gelu_product " + std::to_string(n));
  }
  // gemma4.md section 9.
  const float one[] = {1, 1, 1};
  const auto known = Output(3, [&](float* out) { k().gelu_product(gate.data(), one, 3, out); });
  EXPECT_NEAR(known[0], -0.158808, 1e-6);
  EXPECT_NEAR(known[1], 0.345714, 1e-6);
  EXPECT_NEAR(known[2], 1.954598, 1e-6);
  EXPECT_NEAR(GeluReference(2), 1.954598, 1e-6);
}

TEST_P(ElementwiseTest, SiluProductWithAndWithoutClamp) {
  std::vector<float> gate = {12, 3, -20, 0.5f, 0, -100, 100};
  std::vector<float> up = {3, -12, 5, 0.25f, 1, 1, 1};
  while (gate.size() < 1000) {
    gate.push_back(Uniform(-20, 20));
    up.push_back(Uniform(-15, 15));
  }
  for (const float limit : {10.0f, kInfinity}) {
    std::vector<double> expected(gate.size());
    for (size_t i = 0; i < gate.size(); ++i) {
      const auto l = static_cast<double>(limit);
      expected[i] = SiluReference(std::min(static_cast<double>(gate[i]), l)) *
                    std::clamp(static_cast<double>(up[i]), -l, l);
    }
    for (const int n : {1, 5, 16, 33, 1000}) {
      const auto got =
          Output(n, [&](float* out) { k().silu_product(gate.data(), up.data(), limit, n, out); });
      // As gelu, but z = -x is exact.
      ExpectWithin(
          {expected.data(), static_cast<size_t>(n)}, got,
          [&](size_t i) { return 7 * kU * std::abs(expected[i]) + 0x1p-120; },
          "silu_product " + std::to_string(n));
    }
  }
  // DeepSeek's clamped values, deepseek_v4_flash.md.
  const auto known =
      Output(4, [&](float* out) { k().silu_product(gate.data(), up.data(), 10, 4, out); });
  EXPECT_NEAR(known[0], 29.998638, 1e-5);
  EXPECT_NEAR(known[1], -28.577224, 1e-5);
  EXPECT_NEAR(known[2], -2.061154e-7, 1e-12);
  EXPECT_NEAR(known[3], 0.07780742, 1e-7);
}

// exp(x - max): the difference has one rounding, relative to at most |x - max| <= range; exp 3 u;
// the sum of n positive terms n u; the quotient u.
TEST_P(ElementwiseTest, Softmax) {
  for (const int n : kLengths) {
    for (const float range : {1.0f, 40.0f, 300.0f}) {
      GuardedBuffer<float> x(UniformVector(n, -range, range));
      const auto size = static_cast<size_t>(n);
      const auto max = static_cast<double>(*std::max_element(x.data(), x.data() + n));
      std::vector<double> expected(size);
      double sum = 0;
      for (size_t i = 0; i < size; ++i) {
        expected[i] = std::exp(static_cast<double>(x[i]) - max);
        sum += expected[i];
      }
      for (double& e : expected) e /= sum;
      const auto bound = [&](size_t i) {
        return (n + 5 + 2 * static_cast<double>(range)) * kU * expected[i] + 0x1p-126;
      };
      ExpectWithin(expected, Output(n, [&](float* out) { k().softmax(x.data(), n, out); }), bound,
                   "softmax " + std::to_string(n));
      k().softmax(x.data(), n, x.data());
      ExpectWithin(expected, {x.data(), size}, bound, "softmax in place " + std::to_string(n));
    }
  }
}

// cap tanh(x / cap): quotient u, tanh and its argument's error (amplified by at most 1) 8 u,
// product u.
TEST_P(ElementwiseTest, SoftCap) {
  std::vector<float> x = {10, 30, 60, 0, -0.0f, 1e-30f, -1e-8f, 1e30f, -1e30f, kInfinity};
  while (x.size() < 1000) x.push_back(Uniform(-200, 200));
  std::vector<double> expected(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    expected[i] = 30 * std::tanh(static_cast<double>(x[i]) / 30);
  for (const int n : {1, 7, 16, 50, 1000}) {
    const auto got = Output(n, [&](float* out) { k().soft_cap(x.data(), 30, n, out); });
    ExpectWithin(
        {expected.data(), static_cast<size_t>(n)}, got,
        [&](size_t i) { return 10 * kU * std::abs(expected[i]); }, "soft_cap " + std::to_string(n));
  }
  // gemma4.md 3.4.
  EXPECT_NEAR(expected[0], 9.645382, 1e-6);
  EXPECT_NEAR(expected[1], 22.847825, 1e-6);
  EXPECT_NEAR(expected[2], 28.920827, 1e-6);
}

TEST_P(ElementwiseTest, RopeTurnsTheFirstPairsOnly) {
  for (const int half : {8, 16, 128, 256}) {
    for (const int pairs : {half, half / 4, half / 2 + 1}) {
      const auto size = static_cast<size_t>(2 * half);
      GuardedBuffer<float> x(UniformVector(2 * half, -3, 3));
      GuardedBuffer<float> cosines(static_cast<size_t>(pairs));
      GuardedBuffer<float> sines(static_cast<size_t>(pairs));
      std::vector<double> expected(x.data(), x.data() + size);
      std::vector<double> norm(size, 0.0);
      for (size_t i = 0; i < static_cast<size_t>(pairs); ++i) {
        const float angle = Uniform(-3, 3);
        cosines[i] = std::cos(angle);
        sines[i] = std::sin(angle);
        const auto c = static_cast<double>(cosines[i]);
        const auto s = static_cast<double>(sines[i]);
        const auto j = i + static_cast<size_t>(half);
        const auto a = static_cast<double>(x[i]);
        const auto b = static_cast<double>(x[j]);
        expected[i] = a * c - b * s;
        expected[j] = b * c + a * s;
        norm[i] = norm[j] = std::abs(a) + std::abs(b);
      }
      k().rope(x.data(), half, pairs, cosines.data(), sines.data());
      ExpectWithin(
          expected, {x.data(), size}, [&](size_t i) { return 2 * kU * norm[i]; },
          "rope " + std::to_string(half) + " pairs " + std::to_string(pairs));
    }
  }
}

TEST_P(ElementwiseTest, ArgmaxTakesTheLowestIndexAndSkipsNan) {
  for (const int n : kLengths) {
    GuardedBuffer<float> x(static_cast<size_t>(n));
    for (int round = 0; round < 50; ++round) {
      int expected = -1;
      for (int i = 0; i < n; ++i) {
        // Few distinct values: ties everywhere.
        float& value = x[static_cast<size_t>(i)];
        value = UniformInt(0, 4) == 0 ? NAN : static_cast<float>(UniformInt(-n / 8 - 3, 2));
        if (UniformInt(0, 20) == 0) value = -kInfinity;
        if (!std::isnan(value) && (expected < 0 || value > x[static_cast<size_t>(expected)]))
          expected = i;
      }
      EXPECT_EQ(k().argmax(x.data(), n), expected) << n;
    }
    for (int i = 0; i < n; ++i) x[static_cast<size_t>(i)] = NAN;
    EXPECT_EQ(k().argmax(x.data(), n), -1);
    x[static_cast<size_t>(n) - 1] = -kInfinity;
    EXPECT_EQ(k().argmax(x.data(), n), n - 1);
  }
}

TEST_P(ElementwiseTest, HalfConversionsAgreeBitByBit) {
  // Every half, and the floats around every midpoint between neighbours.
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> f16(halves.size());
  std::vector<float> bf16(halves.size());
  k().f32_from_f16(halves.data(), 65536, f16.data());
  k().f32_from_bf16(halves.data(), 65536, bf16.data());
  std::vector<float> floats;
  for (size_t i = 0; i < halves.size(); ++i) {
    if (std::isnan(FloatFromFp16(halves[i]))) {
      EXPECT_TRUE(std::isnan(f16[i]));
    } else {
      EXPECT_EQ(f16[i], FloatFromFp16(halves[i])) << i;
      const uint32_t bits = std::bit_cast<uint32_t>(f16[i]);
      for (const uint32_t offset : {0u, 0xfffu, 0x1000u, 0x1001u}) {
        floats.push_back(std::bit_cast<float>(bits + offset));
      }
    }
    EXPECT_EQ(std::bit_cast<uint32_t>(bf16[i]), static_cast<uint32_t>(halves[i]) << 16);
    for (const uint32_t low : {0x7fffu, 0x8000u, 0x8001u}) {
      const auto value = std::bit_cast<float>(static_cast<uint32_t>(halves[i]) << 16 | low);
      if (!std::isnan(value)) floats.push_back(value);
    }
  }
  std::vector<uint16_t> got(floats.size());
  k().f16_from_f32(floats.data(), static_cast<int>(floats.size()), got.data());
  for (size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(got[i], Fp16FromFloat(floats[i])) << std::hexfloat << floats[i];
  }
  k().bf16_from_f32(floats.data(), static_cast<int>(floats.size()), got.data());
  for (size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(got[i], Bf16FromFloat(floats[i])) << std::hexfloat << floats[i];
  }
  const float nan[] = {NAN, -NAN};
  k().f16_from_f32(nan, 2, got.data());
  EXPECT_TRUE(std::isnan(FloatFromFp16(got[0])) && std::isnan(FloatFromFp16(got[1])));
  k().bf16_from_f32(nan, 2, got.data());
  EXPECT_TRUE(std::isnan(FloatFromBf16(got[0])) && std::isnan(FloatFromBf16(got[1])));
}

TEST_P(ElementwiseTest, ConversionsStayInsideTheirBuffers) {
  for (const int n : kLengths) {
    const auto size = static_cast<size_t>(n);
    GuardedBuffer<float> x(UniformVector(n, -5, 5));
    GuardedBuffer<uint16_t> half(size);
    GuardedBuffer<float> back(size);
    k().f16_from_f32(x.data(), n, half.data());
    k().f32_from_f16(half.data(), n, back.data());
    for (size_t i = 0; i < size; ++i) EXPECT_EQ(back[i], FloatFromFp16(Fp16FromFloat(x[i])));
    k().bf16_from_f32(x.data(), n, half.data());
    k().f32_from_bf16(half.data(), n, back.data());
    for (size_t i = 0; i < size; ++i) EXPECT_EQ(back[i], FloatFromBf16(Bf16FromFloat(x[i])));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ElementwiseTest, ::testing::ValuesIn(RunnableKernels()), KernelsName);

}  // namespace
}  // namespace mference::cpu
