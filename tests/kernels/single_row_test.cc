// One row of activations rounded to 16 bits: against the definition in double precision, exactly
// where nothing rounds, and the same bytes however the rows are cut.
#include "kernels/test_matrix.h"

namespace mference::cpu {
namespace {

// Odd numbers of groups, one group, rows that end inside a vector of words, an even and an odd
// number of rows that begin inside one, every group and width.
const MatrixShape kShapes[] = {
    {WeightFormat::kAffine4, 37, 704, 64},  {WeightFormat::kAffine4, 5, 2112, 64},
    {WeightFormat::kAffine4, 3, 64, 64},    {WeightFormat::kAffine4, 31, 288, 32},
    {WeightFormat::kAffine4, 9, 32, 32},    {WeightFormat::kAffine4, 34, 640, 128},
    {WeightFormat::kAffine8, 35, 704, 64},  {WeightFormat::kAffine8, 3, 96, 32},
    {WeightFormat::kAffine8, 65, 384, 128}, {WeightFormat::kAffine2, 38, 704, 64},
    {WeightFormat::kAffine2, 33, 160, 32},  {WeightFormat::kAffine2, 7, 640, 128},
    {WeightFormat::kAffine4, 38, 704, 64},  {WeightFormat::kAffine4, 22, 2112, 64},
    {WeightFormat::kAffine4, 24, 192, 32},  {WeightFormat::kAffine4, 21, 512, 64},
    {WeightFormat::kAffine2, 26, 640, 64},  {WeightFormat::kAffine2, 23, 1152, 128},
};

class SingleRowTest : public KernelTest {
 protected:
  std::vector<float> Multiply(const WeightMatrix& w, const std::vector<float>& x,
                              const std::vector<int>& splits = {}) {
    GuardedBuffer<float> guarded_x(x);
    GuardedBuffer<std::byte> prepared(k().single_row_prepared_bytes(w));
    k().single_row_prepare(w, guarded_x.data(), prepared.data());
    GuardedBuffer<float> y(static_cast<size_t>(w.rows));
    for (size_t i = 0; i < y.size(); ++i) y[i] = NAN;
    int begin = 0;
    for (const int split : splits) {
      k().single_row_matmul(w, prepared.data(), y.data(), begin, split);
      begin = split;
    }
    k().single_row_matmul(w, prepared.data(), y.data(), begin, w.rows);
    return {y.data(), y.data() + y.size()};
  }

  void Fill(TestMatrix& m, bool exact) {
    for (size_t g = 0; g < m.scales.size(); ++g) {
      m.scales[g] = Bf16FromFloat(exact ? 0.5f : Uniform(-0.02f, 0.02f));
      m.biases[g] =
          Bf16FromFloat(exact ? static_cast<float>(UniformInt(-1, 1)) : Uniform(-0.1f, 0.1f));
    }
    const int top = (1 << BitsPerValue(m.view.format)) - 1;
    for (size_t i = 0; i < m.values.size(); ++i) {
      m.Put(i, static_cast<unsigned>(UniformInt(0, top)));
    }
  }
};

TEST_P(SingleRowTest, AgreesWithTheDefinition) {
  for (const MatrixShape& shape : kShapes) {
    TestMatrix m(shape.format, shape.rows, shape.cols, shape.group);
    Fill(m, false);
    for (const float width : {1.0f, 1e-12f, 1e12f}) {
      std::vector<float> x = UniformVector(shape.cols, -width, width);
      x[0] *= 100;                                               // an outlier in one group
      std::fill(x.end() - shape.group, x.end(), width * 0.25f);  // another is constant
      const std::vector<float> y = Multiply(m.view, x);
      const auto cols = static_cast<size_t>(shape.cols);
      const auto group = static_cast<size_t>(shape.group);
      std::vector<double> expected(y.size());
      std::vector<double> norm(y.size());
      for (size_t begin = 0; begin < cols; begin += group) {
        float largest = 0;
        for (size_t c = begin; c < begin + group; ++c) largest = std::max(largest, std::abs(x[c]));
        const double f = static_cast<double>(largest / kSingleRowTop);
        for (size_t c = begin; c < begin + group; ++c) {
          const double q = static_cast<double>(std::nearbyint(x[c] * (kSingleRowTop / largest)));
          EXPECT_LE(std::abs(f * q - static_cast<double>(x[c])),
                    static_cast<double>(largest) / 65000);
          for (size_t r = 0; r < y.size(); ++r) {
            expected[r] += m.values[r * cols + c] * f * q;
            norm[r] += m.magnitudes[r * cols + c] * std::abs(f * q);
          }
        }
      }
      // A few roundings per group, and one per group in the sum.
      const double depth = shape.cols / shape.group + 16;
      ExpectWithin(
          expected, y, [&](size_t i) { return depth * kUnitRoundoff * norm[i]; }, Describe(shape));
      if (HasFailure()) return;
    }
  }
}

// Groups whose largest value is kSingleRowTop times a power of two round nothing; neither do the
// sums.
TEST_P(SingleRowTest, IsExactWhereArithmeticIs) {
  for (const MatrixShape& shape : kShapes) {
    if (shape.format == WeightFormat::kAffine8) continue;  // sums would pass 2^24
    TestMatrix m(shape.format, shape.rows, shape.cols, shape.group);
    Fill(m, true);
    std::vector<float> x(static_cast<size_t>(shape.cols));
    for (float& value : x) value = static_cast<float>(UniformInt(-50, 50));
    for (size_t i = 0; i < x.size(); i += static_cast<size_t>(shape.group)) x[i] = kSingleRowTop;
    const std::vector<float> y = Multiply(m.view, x);
    const auto cols = static_cast<size_t>(shape.cols);
    std::vector<double> expected(y.size());
    for (size_t r = 0; r < y.size(); ++r) {
      for (size_t c = 0; c < cols; ++c) {
        expected[r] += m.values[r * cols + c] * static_cast<double>(x[c]);
      }
    }
    ExpectWithin(
        expected, y, [](size_t) { return 0.0; }, Describe(shape));
    if (HasFailure()) return;
  }
}

TEST_P(SingleRowTest, ZerosGiveZeros) {
  TestMatrix m(WeightFormat::kAffine4, 3, 128, 64);
  Fill(m, false);
  EXPECT_EQ(Multiply(m.view, std::vector<float>(128)), std::vector<float>(3));
}

TEST_P(SingleRowTest, SplitsOfTheRowsNeverChangeBytes) {
  for (const MatrixShape& shape : kShapes) {
    if (shape.rows < 20) continue;
    TestMatrix m(shape.format, shape.rows, shape.cols, shape.group);
    Fill(m, false);
    const std::vector<float> x = UniformVector(shape.cols, -1, 1);
    EXPECT_EQ(Multiply(m.view, x), Multiply(m.view, x, {1, 4, 4, 11, 19})) << Describe(shape);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SingleRowTest, ::testing::ValuesIn(RunnableKernels()), KernelsName);

}  // namespace
}  // namespace mference::cpu
