// Weight matrices times activations rounded to 8 bits: against the definition in double precision,
// exactly where nothing rounds, and the same bytes however the work is cut.
#include "kernels/test_matrix.h"

namespace mference::cpu {
namespace {

// Both widths of blocks. Odd numbers of groups, one group, rows that end inside a vector of words
// and inside a tile of 1,024 columns, several tiles, few and odd rows.
struct QuantisedShape : MatrixShape {
  int block;
};
const QuantisedShape kShapes[] = {
    {{WeightFormat::kAffine4, 37, 704, 64}, kFineBlock},
    {{WeightFormat::kAffine4, 37, 704, 64}, kCoarseBlock},
    {{WeightFormat::kAffine4, 5, 2112, 64}, kFineBlock},
    {{WeightFormat::kAffine4, 5, 2112, 64}, kCoarseBlock},
    {{WeightFormat::kAffine4, 70, 64, 64}, kFineBlock},
    {{WeightFormat::kAffine4, 70, 64, 64}, kCoarseBlock},
    {{WeightFormat::kAffine4, 33, 192, 64}, kFineBlock},
    {{WeightFormat::kAffine4, 33, 192, 64}, kCoarseBlock},
    {{WeightFormat::kAffine4, 31, 288, 32}, kFineBlock},
    {{WeightFormat::kAffine4, 9, 32, 32}, kFineBlock},
    {{WeightFormat::kAffine4, 34, 640, 128}, kFineBlock},
    {{WeightFormat::kAffine4, 34, 640, 128}, kCoarseBlock},
    {{WeightFormat::kAffine4, 40, 1152, 128}, kFineBlock},
    {{WeightFormat::kAffine4, 40, 1152, 128}, kCoarseBlock},
    {{WeightFormat::kAffine2, 38, 704, 64}, kFineBlock},
    {{WeightFormat::kAffine2, 38, 704, 64}, kCoarseBlock},
    {{WeightFormat::kAffine2, 33, 160, 32}, kFineBlock},
    {{WeightFormat::kAffine2, 7, 1280, 128}, kFineBlock},
    {{WeightFormat::kAffine2, 7, 1280, 128}, kCoarseBlock},
    {{WeightFormat::kAffine2, 1, 64, 64}, kFineBlock},
    {{WeightFormat::kAffine2, 1, 64, 64}, kCoarseBlock},
};

// Every panel height, several panels, uneven panels.
const int kBatches[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 24, 50};

// What a block of activations becomes, by the definition in kernels.h.
std::vector<double> Rounded(const float* x, int block) {
  const auto [low, high] = std::minmax_element(x, x + block);
  const float range = *high - *low;
  const float f = range / 255.0f;
  const float z = *low + 128.0f * f;
  std::vector<double> values;
  for (int i = 0; i < block; ++i) {
    const float units = range > 0 ? std::nearbyint((x[i] - *low) * (255.0f / range)) : 0.0f;
    values.push_back(static_cast<double>(f) * (static_cast<double>(units) - 128) +
                     static_cast<double>(z));
  }
  return values;
}

class QuantisedMatmulTest : public KernelTest {
 protected:
  std::vector<float> Multiply(const WeightMatrix& w, const std::vector<float>& x, int n,
                              const std::vector<int>& splits = {}) {
    return MultiplyWith(k(), w, x, n, splits);
  }
  static std::vector<float> MultiplyWith(const Kernels& k, const WeightMatrix& w,
                                         const std::vector<float>& x, int n,
                                         const std::vector<int>& splits = {}) {
    GuardedBuffer<float> guarded_x(x);
    GuardedBuffer<std::byte> prepared(k.quantised_prepared_bytes(w, n));
    const int middle = n / 3;
    k.quantised_prepare(w, guarded_x.data(), w.cols, n, middle, n, prepared.data());
    k.quantised_prepare(w, guarded_x.data(), w.cols, n, 0, middle, prepared.data());
    GuardedBuffer<float> y(static_cast<size_t>(n * w.rows));
    for (size_t i = 0; i < y.size(); ++i) y[i] = NAN;
    int begin = 0;
    for (const int split : splits) {
      k.quantised_matmul(w, prepared.data(), n, y.data(), w.rows, begin, split);
      begin = split;
    }
    k.quantised_matmul(w, prepared.data(), n, y.data(), w.rows, begin, w.rows);
    return {y.data(), y.data() + y.size()};
  }

  void FillRandom(TestMatrix& m) {
    for (size_t g = 0; g < m.scales.size(); ++g) {
      m.scales[g] = Bf16FromFloat(Uniform(-0.02f, 0.02f));
      m.biases[g] = Bf16FromFloat(Uniform(-0.1f, 0.1f));
    }
    const int top = (1 << BitsPerValue(m.view.format)) - 1;
    for (size_t i = 0; i < m.values.size(); ++i) {
      m.Put(i, static_cast<unsigned>(UniformInt(0, top)));
    }
  }

  // Rows with blocks of every kind: centred, far from zero, all equal, one outlier.
  std::vector<float> Activations(int n, int cols) {
    std::vector<float> x;
    while (x.size() < static_cast<size_t>(n) * static_cast<size_t>(cols)) {
      const int kind = UniformInt(0, 3);
      const float centre = kind == 1 ? Uniform(-5, 5) : 0.0f;
      const float width = kind == 2 ? 0.0f : Uniform(0.01f, 2);
      for (int i = 0; i < kFineBlock; ++i) x.push_back(centre + Uniform(-width, width));
      if (kind == 3) x.back() *= 50;
    }
    return x;
  }
};

TEST_P(QuantisedMatmulTest, AgreesWithTheDefinition) {
  for (const QuantisedShape& shape : kShapes) {
    TestMatrix m(shape.format, shape.rows, shape.cols, shape.group);
    m.view.activation_block = shape.block;
    FillRandom(m);
    const auto rows = static_cast<size_t>(shape.rows);
    const auto cols = static_cast<size_t>(shape.cols);
    for (const int n : kBatches) {
      const std::vector<float> x = Activations(n, shape.cols);
      const std::vector<float> y = Multiply(m.view, x, n);
      std::vector<double> expected(y.size());
      std::vector<double> norm(y.size());
      const auto width = static_cast<size_t>(shape.block);
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        for (size_t block = 0; block < cols; block += width) {
          const std::vector<double> rounded = Rounded(&x[i * cols + block], shape.block);
          // f q and z may both be larger than their sum.
          const double largest =
              *std::max_element(rounded.begin(), rounded.end(),
                                [](double a, double b) { return std::abs(a) < std::abs(b); });
          for (size_t r = 0; r < rows; ++r) {
            for (size_t c = 0; c < width; ++c) {
              const size_t at = r * cols + block + c;
              expected[i * rows + r] += m.values[at] * rounded[c];
              norm[i * rows + r] += 3 * m.magnitudes[at] * std::abs(largest);
            }
          }
        }
      }
      // A few roundings per group, and one per group in the sum.
      const double depth = shape.cols / shape.group * 2 + 16;
      ExpectWithin(
          expected, y, [&](size_t i) { return depth * kUnitRoundoff * norm[i]; },
          Describe(shape, n));
      if (HasFailure()) return;
    }
  }
}

// Blocks that span -128 to 127 times a power of two round nothing, and with scales and biases that
// are powers of two neither do the sums: a single wrong code shows.
TEST_P(QuantisedMatmulTest, IsExactWhereArithmeticIs) {
  for (const QuantisedShape& shape : kShapes) {
    TestMatrix m(shape.format, shape.rows, shape.cols, shape.group);
    m.view.activation_block = shape.block;
    for (size_t g = 0; g < m.scales.size(); ++g) {
      m.scales[g] = Bf16FromFloat(UniformInt(0, 1) == 0 ? 0.5f : -0.25f);
      m.biases[g] = Bf16FromFloat(static_cast<float>(UniformInt(-4, 4)) * 0.25f);
    }
    const int top = (1 << BitsPerValue(shape.format)) - 1;
    for (size_t i = 0; i < m.values.size(); ++i) {
      m.Put(i, static_cast<unsigned>(UniformInt(0, top)));
    }
    const auto rows = static_cast<size_t>(shape.rows);
    const auto cols = static_cast<size_t>(shape.cols);
    for (const int n : kBatches) {
      std::vector<float> x(static_cast<size_t>(n) * cols);
      const auto width = static_cast<size_t>(shape.block);
      for (size_t i = 0; i < x.size(); i += width) {
        const float unit = UniformInt(0, 1) == 0 ? 0.5f : 1.0f;
        for (size_t c = 0; c < width; ++c) {
          x[i + c] = static_cast<float>(UniformInt(-128, 127)) * unit;
        }
        const auto at = static_cast<size_t>(UniformInt(0, shape.block - 2));
        x[i + at] = -128 * unit;
        x[i + at + 1] = 127 * unit;
      }
      const std::vector<float> y = Multiply(m.view, x, n);
      std::vector<double> expected(y.size());
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

TEST_P(QuantisedMatmulTest, EqualValuesAreNotRounded) {
  TestMatrix m(WeightFormat::kAffine4, 3, 128, 64);
  FillRandom(m);
  for (const float value : {0.0f, 1.5f, -1e-30f, 1e20f}) {
    const std::vector<float> y = Multiply(m.view, std::vector<float>(128, value), 1);
    for (size_t r = 0; r < 3; ++r) {
      double expected = 0;
      double norm = 0;
      for (size_t c = 0; c < 128; ++c) {
        expected += m.values[r * 128 + c] * static_cast<double>(value);
        norm += m.magnitudes[r * 128 + c] * std::abs(static_cast<double>(value));
      }
      EXPECT_NEAR(static_cast<double>(y[r]), expected, 20 * kUnitRoundoff * norm) << value;
    }
  }
}

TEST_P(QuantisedMatmulTest, NeitherSplitsNorOtherRowsChangeBytes) {
  for (const QuantisedShape& shape : kShapes) {
    if (shape.rows < 20) continue;
    TestMatrix m(shape.format, shape.rows, shape.cols, shape.group);
    m.view.activation_block = shape.block;
    FillRandom(m);
    const auto rows = static_cast<size_t>(shape.rows);
    const std::vector<float> x = Activations(50, shape.cols);
    const std::vector<float> all = Multiply(m.view, x, 50);
    for (const int n : kBatches) {
      const std::vector<float> first(x.begin(), x.begin() + ptrdiff_t{n} * shape.cols);
      const std::vector<float> some = Multiply(m.view, first, n, {1, 4, 4, 11, 19});
      EXPECT_EQ(std::memcmp(all.data(), some.data(), static_cast<size_t>(n) * rows * 4), 0)
          << Describe(shape, n);
    }
  }
}

TEST_P(QuantisedMatmulTest, RowsPreparedAloneCanBePlaced) {
  for (const QuantisedShape& shape : kShapes) {
    TestMatrix m(shape.format, shape.rows, shape.cols, shape.group);
    m.view.activation_block = shape.block;
    for (const int n : kBatches) {
      const std::vector<float> x = Activations(n, shape.cols);
      const size_t bytes = k().quantised_prepared_bytes(m.view, n);
      GuardedBuffer<std::byte> together(bytes);
      k().quantised_prepare(m.view, x.data(), shape.cols, n, 0, n, together.data());
      GuardedBuffer<std::byte> placed(bytes);
      GuardedBuffer<std::byte> alone(k().quantised_prepared_bytes(m.view, 1));
      for (int i = 0; i < n; ++i) {
        k().quantised_prepare(m.view, x.data() + ptrdiff_t{i} * shape.cols, 0, 1, 0, 1,
                              alone.data());
        k().quantised_place(m.view, alone.data(), n, i, placed.data());
      }
      EXPECT_EQ(std::memcmp(together.data(), placed.data(), bytes), 0) << Describe(shape, n);
    }
  }
}

// Products of bytes have exact sums: who forms them, and how many at once, changes no result.
TEST_P(QuantisedMatmulTest, FasterProductsAreTheSameBytes) {
  const std::string name = k().name;
  const size_t suffix = name.find('-');
  if (suffix == std::string::npos) GTEST_SKIP() << "no variant of another table";
  const KernelChoice plain = SelectKernels(name.substr(0, suffix));
  ASSERT_NE(plain.kernels, nullptr) << plain.error;
  for (const QuantisedShape& shape : kShapes) {
    TestMatrix m(shape.format, shape.rows, shape.cols, shape.group);
    m.view.activation_block = shape.block;
    FillRandom(m);
    for (const int n : kBatches) {
      const std::vector<float> x = Activations(n, shape.cols);
      const std::vector<float> expected = MultiplyWith(*plain.kernels, m.view, x, n);
      const std::vector<float> got = Multiply(m.view, x, n);
      EXPECT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)), 0)
          << Describe(shape, n);
    }
  }
}

TEST_P(QuantisedMatmulTest, WritesOnlyTheRowsAskedFor) {
  TestMatrix m(WeightFormat::kAffine4, 70, 1088, 64);
  FillRandom(m);
  for (const int n : kBatches) {
    const std::vector<float> x = Activations(n, 1088);
    std::vector<std::byte> prepared(k().quantised_prepared_bytes(m.view, n));
    k().quantised_prepare(m.view, x.data(), 1088, n, 0, n, prepared.data());
    std::vector<float> y(static_cast<size_t>(n) * 80, 7.0f);
    k().quantised_matmul(m.view, prepared.data(), n, y.data(), 80, 3, 50);
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(y[i] != 7.0f, i % 80 >= 3 && i % 80 < 50) << "n " << n << " at " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantisedMatmulTest, ::testing::ValuesIn(RunnableKernels()),
                         KernelsName);

}  // namespace
}  // namespace mference::cpu
