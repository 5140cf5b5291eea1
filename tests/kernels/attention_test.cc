// Online-softmax attention against the definition in double precision.
#include <limits>

#include "base/float16.h"
#include "kernels/kernel_testing.h"

namespace mference::cpu {
namespace {

struct Case {
  int rows;
  int heads;
  int head_dim;
  KvType type;
  int window;      // 0: everything before
  int history;     // positions before the chunk, in runs of their own
  int ring_split;  // where the history is cut into two runs, or 0
};

const Case kCases[] = {
    {1, 2, 256, KvType::kF16, 0, 300, 100},  // decode, sliding layer
    {1, 8, 512, KvType::kF16, 0, 200, 0},    // decode, full layer
    {1, 1, 32, KvType::kF16, 0, 0, 0},       // the first token
    {1, 5, 64, KvType::kBf16, 0, 77, 0},     // 4 + 1 heads
    {1, 3, 16, KvType::kF32, 0, 64, 0},      // 2 + 1 heads, one whole block
    {2, 3, 48, KvType::kF16, 20, 90, 33},    // few queries, rows that see different ranges
    {4, 2, 32, KvType::kF32, 0, 130, 0},      {9, 1, 32, KvType::kF16, 0, 40, 0},  // many queries
    {32, 2, 256, KvType::kF16, 100, 500, 70},  // prefill, sliding
    {8, 8, 512, KvType::kF16, 0, 150, 0},      // prefill, full
    {13, 3, 48, KvType::kBf16, 17, 100, 50},   // uneven panels, half of a tile of dimensions
    {64, 1, 64, KvType::kF32, 0, 0, 0},        // only the chunk's own rows
    {21, 3, 144, KvType::kF32, 33, 129, 1},    // more than one tile of dimensions
};

class AttentionTest : public KernelTest {
 protected:
  // Keys and values of one KV head in `type`; rows lie `stride` elements apart.
  struct KeyValues {
    KeyValues(AttentionTest& test, KvType kv_type, int count, int head_dim)
        : type(kv_type),
          dim(head_dim),
          stride(head_dim + 16),
          k16(static_cast<size_t>(count * stride)),
          v16(k16.size()),
          k32(k16.size()),
          v32(k16.size()) {
      for (size_t i = 0; i < k16.size(); ++i) {
        k32[i] = Round(test.Uniform(-1.5f, 1.5f), k16[i]);
        v32[i] = Round(test.Uniform(-1.5f, 1.5f), v16[i]);
      }
    }
    float Round(float value, uint16_t& bits) const {
      switch (type) {
        case KvType::kF16:
          bits = Fp16FromFloat(value);
          return FloatFromFp16(bits);
        case KvType::kBf16:
          bits = Bf16FromFloat(value);
          return FloatFromBf16(bits);
        case KvType::kF32:
          break;
      }
      return value;
    }
    KeyValueRun Run(int begin, int end, int first_position) const {
      KeyValueRun run;
      run.type = type;
      const auto at = static_cast<size_t>(begin * stride);
      const bool wide = type == KvType::kF32;
      run.k = wide ? static_cast<const void*>(k32.data() + at) : k16.data() + at;
      run.v = wide ? static_cast<const void*>(v32.data() + at) : v16.data() + at;
      run.k_stride = run.v_stride = stride;
      run.first_position = first_position;
      run.count = end - begin;
      return run;
    }
    double Key(int p, int d) const {
      return static_cast<double>(k32[static_cast<size_t>(p * stride + d)]);
    }
    double Value(int p, int d) const {
      return static_cast<double>(v32[static_cast<size_t>(p * stride + d)]);
    }

    KvType type;
    int dim;
    int stride;
    std::vector<uint16_t> k16, v16;
    std::vector<float> k32, v32;
  };

  // Runs a case; `first_row` and `rows` select a tile of its query rows.
  std::vector<float> Attend(const Case& c, const KeyValues& kv, const GuardedBuffer<float>& q,
                            const float* sinks, int first_row, int rows) {
    std::vector<int32_t> begin(static_cast<size_t>(rows));
    std::vector<int32_t> end(begin.size());
    for (int i = 0; i < rows; ++i) {
      end[static_cast<size_t>(i)] = kFirst + c.history + first_row + i + 1;
      begin[static_cast<size_t>(i)] = c.window == 0 ? 0 : end[static_cast<size_t>(i)] - c.window;
    }
    const AttentionTile tile{rows, c.heads, c.head_dim, kScale, begin.data(), end.data()};
    GuardedBuffer<float> state(k().attention_state_floats(tile));
    const int width = c.heads * c.head_dim;
    k().attention_begin(tile, q.data() + first_row * width, width, sinks, state.data());
    k().attention_run(tile, kv.Run(0, c.ring_split, kFirst), state.data());
    k().attention_run(tile, kv.Run(c.ring_split, c.history, kFirst + c.ring_split), state.data());
    k().attention_run(tile, kv.Run(c.history, c.history + c.rows, kFirst + c.history),
                      state.data());
    GuardedBuffer<float> out(static_cast<size_t>(rows * width));
    k().attention_end(tile, state.data(), out.data(), width);
    return {out.data(), out.data() + out.size()};
  }

  // Scores s = scale q k have error <= (dim + 2) u |q||k| and pass through exp, where an absolute
  // error e of a score (and of its difference to the maximum) is a relative one of the weight: so
  // weights carry r = e + (4 + range of scores) u, the sums over positions n u more, and the
  // result, a mean of v with such weights, at most (2 r + (2 n + 8) u) max|v| away from the exact
  // one.
  void Check(const Case& c, const float* sinks) {
    const int positions = c.history + c.rows;
    const KeyValues kv(*this, c.type, positions, c.head_dim);
    const int queries = c.rows * c.heads;
    const GuardedBuffer<float> q(UniformVector(queries * c.head_dim, -2, 2));
    std::vector<double> expected(q.size());
    std::vector<double> bound(q.size());
    for (int i = 0; i < queries; ++i) {
      const int end = c.history + i / c.heads + 1;
      const int begin = c.window == 0 ? 0 : std::max(end - c.window, 0);
      std::vector<double> weights;
      double max = sinks != nullptr ? static_cast<double>(sinks[i % c.heads]) : -1e300;
      double min = 1e300;
      double norm = 0;
      for (int p = begin; p < end; ++p) {
        double score = 0;
        double magnitude = 0;
        for (int d = 0; d < c.head_dim; ++d) {
          const double product =
              static_cast<double>(q[static_cast<size_t>(i * c.head_dim + d)]) * kv.Key(p, d);
          score += product;
          magnitude += std::abs(product);
        }
        weights.push_back(score * static_cast<double>(kScale));
        norm = std::max(norm, magnitude * static_cast<double>(kScale));
        max = std::max(max, weights.back());
        min = std::min(min, weights.back());
      }
      double sum = sinks != nullptr ? std::exp(static_cast<double>(sinks[i % c.heads]) - max) : 0;
      for (double& w : weights) sum += w = std::exp(w - max);
      const double e = (c.head_dim + 2) * kUnitRoundoff * norm;
      const double r = e + (4 + max - min) * kUnitRoundoff;
      for (int d = 0; d < c.head_dim; ++d) {
        double value = 0;
        for (int p = begin; p < end; ++p)
          value += weights[static_cast<size_t>(p - begin)] * kv.Value(p, d);
        const auto at = static_cast<size_t>(i * c.head_dim + d);
        expected[at] = value / sum;
        bound[at] = (2 * r + (2 * (end - begin) + 8) * kUnitRoundoff) * 1.5;
      }
    }
    const std::string what = "rows " + std::to_string(c.rows) + " heads " +
                             std::to_string(c.heads) + " dim " + std::to_string(c.head_dim);
    const std::vector<float> got = Attend(c, kv, q, sinks, 0, c.rows);
    ExpectWithin(
        expected, got, [&](size_t i) { return bound[i]; }, what);

    // A tile of some of the rows, of the same path, has the same bytes.
    if (c.rows > 8) {
      const int rows = c.rows - c.rows / 4;
      if (rows * c.heads > 8) {
        const std::vector<float> some = Attend(c, kv, q, sinks, c.rows - rows, rows);
        EXPECT_EQ(std::memcmp(some.data(), got.data() + got.size() - some.size(), some.size() * 4),
                  0)
            << what;
      }
    }
  }

  static constexpr int kFirst = 1000;  // position of the oldest key
  static constexpr float kScale = 0.25f;
};

TEST_P(AttentionTest, AgreesWithTheDefinition) {
  for (const Case& c : kCases) Check(c, nullptr);
}

TEST_P(AttentionTest, SinksJoinTheSoftmaxWithoutAValue) {
  const float sinks[] = {0.5f, -3, 20, 1, 0, 2, -40, 3};
  for (const Case& c : kCases) Check(c, sinks);
}

TEST_P(AttentionTest, SinkExtremes) {
  const KeyValues kv(*this, KvType::kF16, 10, 32);
  const std::vector<float> q = UniformVector(32, -1, 1);
  const int32_t begin = 0;
  const int32_t end = 10;
  const AttentionTile tile{1, 1, 32, 1.0f, &begin, &end};
  std::vector<float> state(k().attention_state_floats(tile));
  const auto attend = [&](const float* sink) {
    std::vector<float> out(32);
    k().attention_begin(tile, q.data(), 32, sink, state.data());
    k().attention_run(tile, kv.Run(0, 10, 0), state.data());
    k().attention_end(tile, state.data(), out.data(), 32);
    return out;
  };
  const float huge = 1e30f;
  const float tiny = -1e30f;
  EXPECT_EQ(attend(&huge), std::vector<float>(32, 0.0f));
  EXPECT_EQ(attend(&tiny), attend(nullptr));
}

TEST_P(AttentionTest, AQueryThatSeesNothingGivesZeros) {
  const KeyValues kv(*this, KvType::kF16, 100, 32);
  for (const int rows : {1, 12}) {
    const std::vector<float> q = UniformVector(rows * 32, -1, 1);
    const std::vector<int32_t> begin(static_cast<size_t>(rows), 100);
    const std::vector<int32_t> end(static_cast<size_t>(rows), 200);
    const AttentionTile tile{rows, 1, 32, 1.0f, begin.data(), end.data()};
    std::vector<float> state(k().attention_state_floats(tile));
    std::vector<float> out(q.size(), NAN);
    k().attention_begin(tile, q.data(), 32, nullptr, state.data());
    k().attention_run(tile, kv.Run(0, 100, 0), state.data());
    k().attention_end(tile, state.data(), out.data(), 32);
    EXPECT_EQ(out, std::vector<float>(q.size(), 0.0f));
  }
}

// Two halves of a history, each with a state of its own, then merged: the same as one after the
// other up to rounding (bound: as above with n positions, both factors within 3 u).
TEST_P(AttentionTest, MergedHalvesAgreeWithTheWhole) {
  for (const int heads : {2, 16}) {
    const int dim = 64;
    const int count = 300;
    const KeyValues kv(*this, KvType::kF16, count, dim);
    const std::vector<float> q = UniformVector(heads * dim, -1, 1);
    const float sinks[16] = {1, -2, 3};
    const int32_t begin = 0;
    const int32_t end = count;
    const AttentionTile tile{1, heads, dim, 0.125f, &begin, &end};
    const auto floats = k().attention_state_floats(tile);
    std::vector<float> whole(floats), first(floats), second(floats), nothing(floats);
    k().attention_begin(tile, q.data(), heads * dim, sinks, whole.data());
    k().attention_run(tile, kv.Run(0, count, 0), whole.data());
    k().attention_begin(tile, q.data(), heads * dim, sinks, first.data());
    k().attention_run(tile, kv.Run(0, 128, 0), first.data());
    k().attention_begin(tile, q.data(), heads * dim, nullptr, second.data());
    k().attention_run(tile, kv.Run(128, count, 128), second.data());
    k().attention_begin(tile, q.data(), heads * dim, nullptr, nothing.data());
    k().attention_merge(tile, second.data(), first.data());
    k().attention_merge(tile, nothing.data(), first.data());
    std::vector<float> merged(q.size());
    std::vector<float> expected(q.size());
    k().attention_end(tile, first.data(), merged.data(), heads * dim);
    k().attention_end(tile, whole.data(), expected.data(), heads * dim);
    const std::vector<double> wide(expected.begin(), expected.end());
    ExpectWithin(
        wide, merged, [&](size_t) { return (4 * count + 30) * kUnitRoundoff * 1.5; }, "merge");
  }
}

// Positions outside of the visible range may hold anything, as unused rows of a ring do.
TEST_P(AttentionTest, InvisiblePositionsAreNeverUsed) {
  for (const int rows : {1, 16}) {
    KeyValues kv(*this, KvType::kF32, 150, 32);
    const std::vector<float> q = UniformVector(rows * 32, -1, 1);
    const std::vector<int32_t> begin(static_cast<size_t>(rows), 20);
    const std::vector<int32_t> end(static_cast<size_t>(rows), 90);
    const AttentionTile tile{rows, 1, 32, 1.0f, begin.data(), end.data()};
    std::vector<float> state(k().attention_state_floats(tile));
    const auto attend = [&] {
      std::vector<float> out(q.size());
      k().attention_begin(tile, q.data(), 32, nullptr, state.data());
      k().attention_run(tile, kv.Run(0, 150, 0), state.data());
      k().attention_end(tile, state.data(), out.data(), 32);
      return out;
    };
    const std::vector<float> before = attend();
    for (int p = 0; p < 150; ++p) {
      if (p >= 20 && p < 90) continue;
      for (int d = 0; d < 32; ++d) {
        kv.k32[static_cast<size_t>(p * kv.stride + d)] = 1e30f;
        kv.v32[static_cast<size_t>(p * kv.stride + d)] = -1e30f;
      }
    }
    EXPECT_EQ(attend(), before) << rows;
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionTest, ::testing::ValuesIn(RunnableKernels()), KernelsName);

}  // namespace
}  // namespace mference::cpu
