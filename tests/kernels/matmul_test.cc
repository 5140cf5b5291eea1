// Weight matrices times activations, against double precision and exactly on integers.
#include "kernels/test_matrix.h"

namespace mference::cpu {
namespace {

// The shapes of real matrices are there in miniature: odd numbers of groups (704 = 11 * 64,
// 2112 = 33 * 64), one group, blocks that end in the middle of a vector, few and odd rows.
const MatrixShape kShapes[] = {
    {WeightFormat::kAffine4, 37, 704, 64},  {WeightFormat::kAffine4, 5, 2112, 64},
    {WeightFormat::kAffine4, 70, 64, 64},   {WeightFormat::kAffine4, 33, 192, 64},
    {WeightFormat::kAffine4, 8, 1024, 64},  {WeightFormat::kAffine4, 31, 288, 32},
    {WeightFormat::kAffine4, 9, 32, 32},    {WeightFormat::kAffine4, 34, 640, 128},
    {WeightFormat::kAffine8, 35, 704, 64},  {WeightFormat::kAffine8, 3, 96, 32},
    {WeightFormat::kAffine8, 65, 384, 128}, {WeightFormat::kAffine8, 16, 64, 64},
    {WeightFormat::kAffine2, 38, 704, 64},  {WeightFormat::kAffine2, 33, 160, 32},
    {WeightFormat::kAffine2, 7, 640, 128},  {WeightFormat::kAffine2, 1, 64, 64},
    {WeightFormat::kBf16, 33, 720, 0},      {WeightFormat::kBf16, 6, 16, 0},
    {WeightFormat::kBf16, 20, 256, 0},      {WeightFormat::kF32, 35, 528, 0},
    {WeightFormat::kF32, 24, 16, 0},
};

// On both sides of every switch between paths and of every panel height.
const int kBatches[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 24, 50};

class MatmulTest : public KernelTest {
 protected:
  // y [n, rows] with everything guarded; x has a stride of its own.
  std::vector<float> Multiply(const WeightMatrix& w, const std::vector<float>& x, int n,
                              const std::vector<int>& splits = {}) {
    const auto stride = static_cast<size_t>(w.cols) + 16;
    GuardedBuffer<float> guarded_x((static_cast<size_t>(n) - 1) * stride +
                                   static_cast<size_t>(w.cols));
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      std::memcpy(guarded_x.data() + i * stride, x.data() + i * static_cast<size_t>(w.cols),
                  static_cast<size_t>(w.cols) * 4);
    }
    GuardedBuffer<float> prepared(k().matmul_prepared_floats(w, n));
    const int middle = n / 3;
    k().matmul_prepare(w, guarded_x.data(), static_cast<ptrdiff_t>(stride), n, middle, n,
                       prepared.data());
    k().matmul_prepare(w, guarded_x.data(), static_cast<ptrdiff_t>(stride), n, 0, middle,
                       prepared.data());
    GuardedBuffer<float> y(static_cast<size_t>(n * w.rows));
    for (size_t i = 0; i < y.size(); ++i) y[i] = NAN;
    int begin = 0;
    for (const int split : splits) {
      k().matmul(w, prepared.data(), n, y.data(), w.rows, begin, split);
      begin = split;
    }
    k().matmul(w, prepared.data(), n, y.data(), w.rows, begin, w.rows);
    return {y.data(), y.data() + y.size()};
  }

  void FillRandom(TestMatrix& m) {
    for (size_t g = 0; g < m.scales.size(); ++g) {
      m.scales[g] = Bf16FromFloat(Uniform(-0.02f, 0.02f));
      m.biases[g] = Bf16FromFloat(Uniform(-0.1f, 0.1f));
    }
    const int top = IsAffine(m.view.format) ? 1 << BitsPerValue(m.view.format) : 1;
    for (size_t i = 0; i < m.values.size(); ++i) {
      if (IsAffine(m.view.format)) {
        m.Put(i, static_cast<unsigned>(UniformInt(0, top - 1)));
      } else {
        m.Put(i, Uniform(-1, 1));
      }
    }
  }
};

// Each product passes through at most `depth` roundings on its way into the sum, each of relative
// size u: |y - exact| <= depth u sum |w||x| (1 + O(depth u)). The scalar reference sums one after
// the other: depth = cols. The others sum in lanes of at least 4, or in blocks of 256 columns; the
// constant covers decoding, scaling, and the sums of lanes and blocks. |w| is |scale code| +
// |bias|, because the two are summed apart.
double Depth(bool scalar, int cols) { return scalar ? cols + 4 : std::max(cols / 4, 256) + 48; }

TEST_P(MatmulTest, AgreesWithDoublePrecision) {
  for (const MatrixShape& shape : kShapes) {
    TestMatrix m(shape.format, shape.rows, shape.cols, shape.group);
    FillRandom(m);
    for (const int n : kBatches) {
      const std::vector<float> x = UniformVector(n * shape.cols, -1, 1);
      const std::vector<float> y = Multiply(m.view, x, n);
      std::vector<double> expected(y.size());
      std::vector<double> norm(y.size());
      const auto rows = static_cast<size_t>(shape.rows);
      const auto cols = static_cast<size_t>(shape.cols);
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        for (size_t r = 0; r < rows; ++r) {
          for (size_t c = 0; c < cols; ++c) {
            const auto v = static_cast<double>(x[i * cols + c]);
            expected[i * rows + r] += m.values[r * cols + c] * v;
            norm[i * rows + r] += m.magnitudes[r * cols + c] * std::abs(v);
          }
        }
      }
      ExpectWithin(
          expected, y,
          [&](size_t i) { return Depth(IsScalar(), shape.cols) * kUnitRoundoff * norm[i]; },
          Describe(shape, n));
      if (HasFailure()) return;
    }
  }
}

// Small integers times powers of two: no rounding anywhere, so every order of summation gives the
// same bits, and a single wrong code shows.
TEST_P(MatmulTest, IsExactWhereArithmeticIs) {
  for (const MatrixShape& shape : kShapes) {
    TestMatrix m(shape.format, shape.rows, shape.cols, shape.group);
    for (size_t g = 0; g < m.scales.size(); ++g) {
      m.scales[g] =
          Bf16FromFloat(std::ldexp(UniformInt(0, 1) == 0 ? 1.0f : -1.0f, UniformInt(-2, 1)));
      m.biases[g] = Bf16FromFloat(static_cast<float>(UniformInt(-8, 8)) * 0.25f);
    }
    for (size_t i = 0; i < m.values.size(); ++i) {
      if (IsAffine(shape.format)) {
        m.Put(i, static_cast<unsigned>(UniformInt(0, (1 << BitsPerValue(shape.format)) - 1)));
      } else {
        m.Put(i, static_cast<float>(UniformInt(-60, 60)) * 0.25f);
      }
    }
    for (const int n : kBatches) {
      std::vector<float> x(static_cast<size_t>(n * shape.cols));
      for (float& v : x) v = static_cast<float>(UniformInt(-3, 3));
      const std::vector<float> y = Multiply(m.view, x, n);
      std::vector<double> expected(y.size());
      const auto rows = static_cast<size_t>(shape.rows);
      const auto cols = static_cast<size_t>(shape.cols);
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        for (size_t r = 0; r < rows; ++r) {
          for (size_t c = 0; c < cols; ++c) {
            expected[i * rows + r] += m.values[r * cols + c] * static_cast<double>(x[i * cols + c]);
          }
        }
      }
      ExpectWithin(
          expected, y, [](size_t) { return 0.0; }, Describe(shape, n));
      if (HasFailure()) return;
    }
  }
}

TEST_P(MatmulTest, SplitsOfTheRowsNeverChangeBytes) {
  for (const MatrixShape& shape : kShapes) {
    if (shape.rows < 20) continue;
    TestMatrix m(shape.format, shape.rows, shape.cols, shape.group);
    FillRandom(m);
    for (const int n : kBatches) {
      const std::vector<float> x = UniformVector(n * shape.cols, -1, 1);
      const std::vector<float> whole = Multiply(m.view, x, n);
      const std::vector<float> parts = Multiply(m.view, x, n, {1, 4, 4, 11, 19});
      EXPECT_EQ(std::memcmp(whole.data(), parts.data(), whole.size() * 4), 0) << Describe(shape, n);
    }
  }
}

// A row of activations gives the same bytes whatever other rows share the decoded tile.
TEST_P(MatmulTest, WideBatchesAreIndependentRows) {
  TestMatrix m(WeightFormat::kAffine4, 37, 704, 64);
  FillRandom(m);
  const std::vector<float> x = UniformVector(70 * 704, -1, 1);
  const std::vector<float> all = Multiply(m.view, x, 70);
  for (const int n : {49, 50, 61}) {
    const std::vector<float> some = Multiply(m.view, {x.begin(), x.begin() + n * 704}, n);
    EXPECT_EQ(std::memcmp(all.data(), some.data(), some.size() * 4), 0) << n;
  }
}

TEST_P(MatmulTest, WritesOnlyTheRowsAskedFor) {
  TestMatrix m(WeightFormat::kAffine4, 70, 192, 64);
  FillRandom(m);
  for (const int n : kBatches) {
    const std::vector<float> x = UniformVector(n * 192, -1, 1);
    std::vector<float> prepared(k().matmul_prepared_floats(m.view, n));
    k().matmul_prepare(m.view, x.data(), 192, n, 0, n, prepared.data());
    std::vector<float> y(static_cast<size_t>(n) * 80, 7.0f);
    k().matmul(m.view, prepared.data(), n, y.data(), 80, 3, 50);
    for (size_t i = 0; i < y.size(); ++i) {
      const bool inside = i % 80 >= 3 && i % 80 < 50;
      EXPECT_EQ(y[i] != 7.0f, inside) << "n " << n << " at " << i;
    }
  }
}

// gemma4.md 2.1: bytes 98 BA DC FE are the codes below.
TEST_P(MatmulTest, ReadsCodesInTheSpecifiedOrder) {
  const std::byte bytes[] = {std::byte{0x98}, std::byte{0xba}, std::byte{0xdc}, std::byte{0xfe}};
  const struct {
    WeightFormat format;
    std::vector<float> codes;
  } cases[] = {
      {WeightFormat::kAffine4, {8, 9, 10, 11, 12, 13, 14, 15}},
      {WeightFormat::kAffine8, {152, 186, 220, 254}},
      {WeightFormat::kAffine2, {0, 2, 1, 2, 2, 2, 3, 2, 0, 3, 1, 3, 2, 3, 3, 3}},
  };
  const uint16_t scale = Bf16FromFloat(-0.5f);
  const uint16_t bias = Bf16FromFloat(3.0f);
  for (const auto& c : cases) {
    std::vector<std::byte> row(static_cast<size_t>(32 * BitsPerValue(c.format) / 8));
    std::copy(std::begin(bytes), std::end(bytes), row.begin());
    const WeightMatrix w{c.format, 1, 32, 32, row.data(), &scale, &bias};
    std::vector<float> out(32);
    k().dequantize_row(w, 0, 2.0f, out.data());
    for (size_t i = 0; i < c.codes.size(); ++i) EXPECT_EQ(out[i], 2 * (3 - c.codes[i] / 2)) << i;
    for (size_t i = c.codes.size(); i < 32; ++i) EXPECT_EQ(out[i], 6.0f) << i;
    // The same by multiplication with unit vectors.
    for (const int n : {1, 32}) {
      std::vector<float> x(static_cast<size_t>(n) * 32);
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) x[i * 32 + i] = 1;
      const std::vector<float> y = Multiply(w, x, n);
      for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i] * 2, out[i]) << i;
    }
  }
}

TEST_P(MatmulTest, DequantizesRows) {
  for (const MatrixShape& shape : kShapes) {
    TestMatrix m(shape.format, shape.rows, shape.cols, shape.group);
    FillRandom(m);
    const auto cols = static_cast<size_t>(shape.cols);
    for (const int row : {0, shape.rows / 2, shape.rows - 1}) {
      GuardedBuffer<float> out(cols);
      k().dequantize_row(m.view, row, 53.066f, out.data());
      std::vector<double> expected(cols);
      for (size_t c = 0; c < cols; ++c) {
        expected[c] = m.values[static_cast<size_t>(row) * cols + c] * static_cast<double>(53.066f);
      }
      // Two roundings: of the value and of the product.
      ExpectWithin(
          expected, {out.data(), cols},
          [&](size_t c) { return 2.001 * kUnitRoundoff * std::abs(expected[c]); },
          Describe(shape, row));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MatmulTest, ::testing::ValuesIn(RunnableKernels()), KernelsName);

}  // namespace
}  // namespace mference::cpu
