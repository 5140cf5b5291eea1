// Short convolutions and the gated delta rule against double precision, both forms of the rule
// alike, with gates at the ends of their range and over long sequences.
#include <cstdio>
#include <limits>
#include <map>

#include "kernels/kernel_testing.h"

namespace mference::cpu {
namespace {

constexpr double kU = kUnitRoundoff;

double SigmoidReference(double x) { return 1 / (1 + std::exp(-x)); }

// ---- Vectors.

class GateTest : public KernelTest {};

// 1 + exp and exp itself add 3 u to a relative error of |gate| u where exp dominates; beyond 88 the
// result is zero instead of at most |x| 2^-126.
TEST_P(GateTest, SigmoidProduct) {
  for (const int n : {1, 7, 16, 33, 4096}) {
    GuardedBuffer<float> x(UniformVector(n, -3, 3));
    GuardedBuffer<float> gate(UniformVector(n, -110, 110));
    gate[0] = 0;
    GuardedBuffer<float> out(static_cast<size_t>(n));
    k().sigmoid_product(x.data(), gate.data(), n, out.data());
    std::vector<double> expected(static_cast<size_t>(n));
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] = double{x[i]} * SigmoidReference(double{gate[i]});
    }
    ExpectWithin(
        expected, {out.data(), out.size()},
        [&](size_t i) {
          return (std::abs(double{gate[i]}) + 6) * kU * std::abs(expected[i]) + 0x1p-124;
        },
        "sigmoid_product " + std::to_string(n));
    k().sigmoid_product(x.data(), gate.data(), n, x.data());
    EXPECT_TRUE(std::equal(x.data(), x.data() + n, out.data())) << "in place";
  }
}

TEST_P(GateTest, L2Normalise) {
  for (const int n : {1, 7, 16, 33, 128, 256}) {
    for (const float magnitude : {1e-4f, 1.0f, 1e4f}) {
      GuardedBuffer<float> x(UniformVector(n, -magnitude, magnitude));
      GuardedBuffer<float> out(static_cast<size_t>(n));
      k().l2_normalise(x.data(), 1e-6f, 0.25f, n, out.data());
      double squares = 0;
      for (int i = 0; i < n; ++i) squares += double{x[i]} * double{x[i]};
      const double factor = 0.25 / std::sqrt(squares + double{1e-6f});
      std::vector<double> expected(static_cast<size_t>(n));
      for (size_t i = 0; i < expected.size(); ++i) expected[i] = double{x[i]} * factor;
      ExpectWithin(
          expected, {out.data(), out.size()},
          [&](size_t i) { return (0.5 * (n + 2) + 4) * kU * std::abs(expected[i]); },
          "l2_normalise " + std::to_string(n));
    }
  }
}

// ---- Short convolution.

class ConvolutionTest : public KernelTest {};

TEST_P(ConvolutionTest, AgainstDoublePrecision) {
  constexpr int kHistory = kConvolutionTaps - 1;
  for (const int channels : {1, 5, 16, 37, 64}) {
    for (const int rows : {1, 2, 3, 4, 8, 9, 20}) {
      const GuardedBuffer<float> weights(UniformVector(channels * kConvolutionTaps, -2, 2));
      // The history and x apart, each at the end of its page.
      const GuardedBuffer<float> history(UniformVector(channels * kHistory, -2, 2));
      const GuardedBuffer<float> x(UniformVector(channels * rows, -2, 2));
      GuardedBuffer<float> out(x.size());
      const ConvolutionRows convolution{.rows = rows,
                                        .stride = channels,
                                        .weights = weights.data(),
                                        .history = history.data(),
                                        .x = x.data(),
                                        .out = out.data()};
      k().short_convolution(convolution, 0, channels);
      std::vector<double> expected(x.size());
      std::vector<double> bound(x.size());
      for (int i = 0; i < rows; ++i) {
        for (int c = 0; c < channels; ++c) {
          double sum = 0;
          double norm = 0;
          for (int j = 0; j < kConvolutionTaps; ++j) {
            const int row = i - kHistory + j;
            const double input =
                double{row < 0 ? history[(row + kHistory) * channels + c] : x[row * channels + c]};
            const double product = double{weights[c * kConvolutionTaps + j]} * input;
            sum += product;
            norm += std::abs(product);
          }
          expected[i * channels + c] = sum * SigmoidReference(sum);
          // silu's slope is at most 1.1; four roundings of the sum, six of silu.
          bound[i * channels + c] = (1.1 * 4 + 6) * kU * norm + 0x1p-120;
        }
      }
      const std::string what = std::to_string(channels) + " channels, " + std::to_string(rows);
      ExpectWithin(
          expected, {out.data(), out.size()}, [&](size_t i) { return bound[i]; }, what);

      // Any split over ranges, and any split of the rows, gives the same bytes.
      GuardedBuffer<float> split(x.size());
      ConvolutionRows pieces = convolution;
      pieces.out = split.data();
      k().short_convolution(pieces, channels / 3, channels);
      k().short_convolution(pieces, 0, channels / 3);
      EXPECT_TRUE(std::equal(out.data(), out.data() + out.size(), split.data())) << what;
      if (rows > kHistory) {
        pieces.rows = rows - kHistory;
        pieces.history = x.data();
        pieces.x = x.data() + kHistory * channels;
        pieces.out = split.data() + kHistory * channels;
        std::fill_n(pieces.out, pieces.rows * channels, 0.0f);
        k().short_convolution(pieces, 0, channels);
        EXPECT_TRUE(std::equal(out.data(), out.data() + out.size(), split.data())) << what;
      }
    }
  }
}

// ---- The delta rule.

// How gates are drawn.
enum class Gates { kTypical, kKeep, kForget, kIgnore, kExtremes };
constexpr Gates kAllGates[] = {Gates::kTypical, Gates::kKeep, Gates::kForget, Gates::kIgnore,
                               Gates::kExtremes};
const char* NameOf(Gates gates) {
  static const char* const kNames[] = {"typical", "keep", "forget", "ignore", "extremes"};
  return kNames[static_cast<int>(gates)];
}

// Rows of one head: inputs, and what the rule gives in double precision.
struct DeltaCase {
  int rows = 0, key_dim = 0, value_dim = 0;
  std::vector<float> q = {}, k = {}, v = {}, decay = {}, beta = {}, initial = {};
  std::vector<double> out = {}, state = {};

  void Draw(Gates gates, bool similar_keys, uint32_t seed) {
    std::mt19937 random(seed);
    const auto uniform = [&](float low, float high) {
      return std::uniform_real_distribution<float>(low, high)(random);
    };
    const auto fill = [&](std::vector<float>& values, int n, float low, float high) {
      values.resize(static_cast<size_t>(n));
      for (float& value : values) value = uniform(low, high);
    };
    fill(q, rows * key_dim, -1, 1);
    fill(k, rows * key_dim, -1, 1);
    fill(v, rows * value_dim, -2, 2);
    fill(initial, value_dim * key_dim, -1, 1);
    for (int i = 0; i < rows; ++i) {
      // Keys that hardly differ couple all rows of a chunk.
      if (similar_keys) {
        for (int d = 0; d < key_dim; ++d) {
          float& value = k[i * key_dim + d];
          value = k[d] + (i > 0 ? 0.05f * value : 0.0f);
        }
      }
      Normalise(&q[i * key_dim], 1 / std::sqrt(static_cast<float>(key_dim)));
    }
    for (int i = 0; i < rows; ++i) Normalise(&k[i * key_dim], 1);
    for (int i = 0; i < rows; ++i) {
      switch (gates) {
        case Gates::kTypical:
          decay.push_back(uniform(0.7f, 1));
          beta.push_back(uniform(0, 1));
          break;
        case Gates::kKeep:
          decay.push_back(1 - uniform(0, 1e-4f));
          beta.push_back(1 - uniform(0, 1e-4f));
          break;
        case Gates::kForget:
          decay.push_back(uniform(0, 1e-4f));
          beta.push_back(1 - uniform(0, 1e-4f));
          break;
        case Gates::kIgnore:
          decay.push_back(1 - uniform(0, 1e-6f));
          beta.push_back(uniform(0, 1e-4f));
          break;
        case Gates::kExtremes:
          decay.push_back(i % 7 == 3 ? uniform(0, 1) : Extreme(random() % 5));
          beta.push_back(i % 5 == 2 ? uniform(0, 1) : Extreme(random() % 5));
          break;
      }
    }
    Compute();
  }

  static float Extreme(size_t which) {
    const float values[] = {0.0f, 1e-30f, 1e-6f, 1 - 0x1p-24f, 1.0f};
    return values[which];
  }

  void Normalise(float* x, float scale) const {
    double squares = 0;
    for (int d = 0; d < key_dim; ++d) squares += double{x[d]} * double{x[d]};
    for (int d = 0; d < key_dim; ++d) {
      x[d] = static_cast<float>(double{x[d]} * double{scale} / std::sqrt(squares));
    }
  }

  // The definition, a row of S at a time.
  void Compute() {
    state.assign(initial.begin(), initial.end());
    out.resize(static_cast<size_t>(rows) * static_cast<size_t>(value_dim));
    for (int r = 0; r < value_dim; ++r) {
      double* s = &state[r * key_dim];
      for (int i = 0; i < rows; ++i) {
        double predicted = 0;
        for (int d = 0; d < key_dim; ++d) {
          s[d] *= double{decay[i]};
          predicted += s[d] * double{k[i * key_dim + d]};
        }
        const double correction = double{beta[i]} * (double{v[i * value_dim + r]} - predicted);
        double y = 0;
        for (int d = 0; d < key_dim; ++d) {
          s[d] += correction * double{k[i * key_dim + d]};
          y += s[d] * double{q[i * key_dim + d]};
        }
        out[i * value_dim + r] = y;
      }
    }
  }

  DeltaRows Rows(int first, int count, float* into) const {
    return {.rows = count,
            .key_dim = key_dim,
            .value_dim = value_dim,
            .q = &q[first * key_dim],
            .k = &k[first * key_dim],
            .v = &v[first * value_dim],
            .v_stride = value_dim,
            .decay = &decay[first],
            .beta = &beta[first],
            .out = into + first * value_dim,
            .out_stride = value_dim};
  }
};

struct DeltaResult {
  std::vector<float> out, state;
  bool operator==(const DeltaResult&) const = default;
};

class DeltaTest : public KernelTest {
 protected:
  // In calls of at most `step` rows.
  DeltaResult Steps(const DeltaCase& c, int step) const {
    DeltaResult result{std::vector<float>(c.out.size()), c.initial};
    for (int first = 0; first < c.rows; first += step) {
      k().delta_steps(c.Rows(first, std::min(step, c.rows - first), result.out.data()),
                      result.state.data());
    }
    return result;
  }
  DeltaResult Chunks(const DeltaCase& c, int step) const {
    GuardedBuffer<float> out(c.out.size());
    GuardedBuffer<float> state(c.initial);
    GuardedBuffer<float> scratch(k().delta_chunk_floats(c.key_dim, c.value_dim));
    // What an earlier chunk left must not matter.
    std::fill_n(scratch.data(), scratch.size(), std::numeric_limits<float>::quiet_NaN());
    for (int first = 0; first < c.rows; first += step) {
      k().delta_chunk(c.Rows(first, std::min(step, c.rows - first), out.data()), state.data(),
                      scratch.data());
    }
    return {{out.data(), out.data() + out.size()}, {state.data(), state.data() + state.size()}};
  }

  struct Error {
    double max = 0;
    double rms = 0;
  };
  // Relative to the largest expected value.
  static Error ErrorOf(const std::vector<double>& expected, const std::vector<float>& got) {
    double largest = 0;
    Error error;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference = std::abs(double{got[i]} - expected[i]);
      if (!(difference <= error.max)) error.max = difference;  // keeps a NaN
      error.rms += difference * difference;
      largest = std::max(largest, std::abs(expected[i]));
    }
    return {error.max / largest,
            std::sqrt(error.rms / static_cast<double>(expected.size())) / largest};
  }

  // A row maps errors of the state by decay (I - beta k k^T), which never lengthens them, and adds
  // roundings of its own: some products over key_dim, taken as independent.
  static double Tolerance(const DeltaCase& c) {
    return 16 * kU * std::sqrt(static_cast<double>(c.rows)) + 64 * kU;
  }
  static void ExpectNear(const DeltaCase& c, const DeltaResult& got, const std::string& what) {
    ExpectNear(c, got, what, Tolerance(c));
  }
  static void ExpectNear(const DeltaCase& c, const DeltaResult& got, const std::string& what,
                         double tolerance) {
    EXPECT_LE(ErrorOf(c.out, got.out).max, tolerance) << what << ", outputs";
    EXPECT_LE(ErrorOf(c.state, got.state).max, tolerance) << what << ", state";
  }
};

// qwen36.md section 3.2, in the corner of a larger head: keys and values of zero change nothing.
TEST_P(DeltaTest, ToyOracle) {
  constexpr int kDim = kDeltaDimMultiple;
  constexpr float kQueries[3][2] = {{1, 2}, {0.5f, -1}, {2, 1}};
  constexpr float kKeys[3][2] = {{1, 1}, {2, 0}, {-1, 1}};
  constexpr float kValues[3][2] = {{1, -1}, {0.5f, 2}, {3, 1}};
  constexpr double kLogDecays[] = {-1.1428065, -0.7212957, -1.0624305};
  constexpr double kBetas[] = {0.5744425, 0.7310586, 0.3775407};
  constexpr double kOutputs[3][2] = {
      {0.3853476, -0.3853476}, {0.0074998, 0.5704525}, {-0.1447366, 0.1688452}};
  constexpr double kState[2][2] = {{-0.6706282, 0.8835591}, {0.1152049, 0.3035258}};
  DeltaCase c{.rows = 3, .key_dim = kDim, .value_dim = kDim};
  c.q.resize(3 * kDim);
  c.k.resize(3 * kDim);
  c.v.resize(3 * kDim);
  c.initial.resize(kDim * kDim);
  c.out.resize(3 * kDim);
  for (int i = 0; i < 3; ++i) {
    for (int d = 0; d < 2; ++d) {
      c.q[i * kDim + d] = kQueries[i][d];
      c.k[i * kDim + d] = kKeys[i][d];
      c.v[i * kDim + d] = kValues[i][d];
    }
    k().l2_normalise(&c.q[i * kDim], 1e-6f, std::sqrt(0.5f), kDim, &c.q[i * kDim]);
    k().l2_normalise(&c.k[i * kDim], 1e-6f, 1, kDim, &c.k[i * kDim]);
    c.decay.push_back(static_cast<float>(std::exp(kLogDecays[i])));
    c.beta.push_back(static_cast<float>(kBetas[i]));
  }
  for (const DeltaResult& got :
       {Steps(c, 1), Steps(c, 3), Chunks(c, 1), Chunks(c, 2), Chunks(c, 3)}) {
    for (int i = 0; i < 3; ++i) {
      for (int d = 0; d < kDim; ++d) {
        EXPECT_NEAR(got.out[i * kDim + d], d < 2 ? kOutputs[i][d] : 0, 2e-7) << i << ", " << d;
      }
    }
    for (int r = 0; r < kDim; ++r) {
      for (int d = 0; d < kDim; ++d) {
        EXPECT_NEAR(got.state[r * kDim + d], r < 2 && d < 2 ? kState[r][d] : 0, 2e-7)
            << r << ", " << d;
      }
    }
  }
}

TEST_P(DeltaTest, ChunksOfEveryLength) {
  for (int rows = 1; rows <= kMaxDeltaRows; ++rows) {
    DeltaCase c{.rows = rows, .key_dim = 64, .value_dim = 32};
    c.Draw(Gates::kTypical, rows % 2 == 0, static_cast<uint32_t>(rows));
    ExpectNear(c, Chunks(c, rows), "chunk of " + std::to_string(rows));
    ExpectNear(c, Steps(c, rows), "steps of " + std::to_string(rows));
  }
}

TEST_P(DeltaTest, EveryShape) {
  for (int key_dim = kDeltaDimMultiple; key_dim <= kMaxDeltaDim; key_dim += kDeltaDimMultiple) {
    for (int value_dim = kDeltaDimMultiple; value_dim <= kMaxDeltaDim;
         value_dim += kDeltaDimMultiple) {
      DeltaCase c{.rows = 50, .key_dim = key_dim, .value_dim = value_dim};
      c.Draw(Gates::kTypical, false, 1);
      const std::string what = std::to_string(value_dim) + " x " + std::to_string(key_dim);
      ExpectNear(c, Chunks(c, 64), what);
      ExpectNear(c, Steps(c, 64), what);
    }
  }
}

TEST_P(DeltaTest, ExtremeGates) {
  for (const Gates gates : kAllGates) {
    for (const bool similar_keys : {false, true}) {
      DeltaCase c{.rows = 200, .key_dim = 128, .value_dim = 64};
      c.Draw(gates, similar_keys, 11);
      for (const int step : {3, 17, 64}) {
        const std::string what = std::string(NameOf(gates)) + (similar_keys ? ", similar" : "") +
                                 ", calls of " + std::to_string(step);
        ExpectNear(c, Chunks(c, step), "chunks, " + what);
        ExpectNear(c, Steps(c, step), "steps, " + what);
      }
    }
  }
}

TEST_P(DeltaTest, AnySplitOfStepsGivesTheSameBytes) {
  DeltaCase c{.rows = 64, .key_dim = 128, .value_dim = 128};
  c.Draw(Gates::kExtremes, false, 5);
  const DeltaResult whole = Steps(c, 64);
  EXPECT_EQ(Steps(c, 1), whole);
  EXPECT_EQ(Steps(c, 7), whole);
}

// What a row adds to the error decays or is corrected. With one exception: a state that is only
// multiplied by values just below one is rounded the same way row after row, so that half a unit
// in the last place may add up. A chunk rounds once for all its rows.
TEST_P(DeltaTest, LongSequences) {
#ifdef MFERENCE_EMULATED
  constexpr int kRows = 2048;  // an emulated processor takes minutes for what shows nothing new
#else
  constexpr int kRows = 16384;
#endif
  for (const Gates gates : kAllGates) {
    static std::map<Gates, DeltaCase> cases;
    DeltaCase& c = cases[gates];
    if (c.out.empty()) {
      c.rows = kRows;
      c.key_dim = 64;
      c.value_dim = 32;
      c.Draw(gates, false, 17);
    }
    for (const bool chunks : {false, true}) {
      const DeltaResult got = chunks ? Chunks(c, 64) : Steps(c, 64);
      const std::string what = std::string(NameOf(gates)) + (chunks ? ".chunks" : ".steps");
      const bool rounds_alike = gates == Gates::kIgnore && !chunks;
      ExpectNear(c, got, what, rounds_alike ? c.rows * kU : Tolerance(c));
      const Error out = ErrorOf(c.out, got.out);
      const Error state = ErrorOf(c.state, got.state);
      char line[120];
      std::snprintf(line, sizeof line, "out max %.2e rms %.2e state max %.2e rms %.2e", out.max,
                    out.rms, state.max, state.rms);
      RecordProperty(what, line);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, GateTest, ::testing::ValuesIn(RunnableKernels()), KernelsName);
INSTANTIATE_TEST_SUITE_P(Tables, ConvolutionTest, ::testing::ValuesIn(RunnableKernels()),
                         KernelsName);
INSTANTIATE_TEST_SUITE_P(Tables, DeltaTest, ::testing::ValuesIn(RunnableKernels()), KernelsName);

}  // namespace
}  // namespace mference::cpu
