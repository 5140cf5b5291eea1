// Reference: online softmax, one position at a time.
//
// For each query the state carries m, the largest score so far, l, the sum of exp(score - m), and
// the sum of exp(score - m) * v. A larger score rescales both sums.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/tables.h"
#include "base/float16.h"

namespace mference::cpu::scalar {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// One query vector's part of the state: the query, the maximum, the sum of weights, and the
// weighted sum of values.
struct QueryState {
  float* q;  // [head_dim], scaled
  float* m;
  float* l;
  float* acc;  // [head_dim]
};

size_t FloatsPerQuery(const AttentionTile& tile) {
  return 2 * static_cast<size_t>(tile.head_dim) + 2;
}

QueryState StateOf(const AttentionTile& tile, int query, float* state) {
  float* base = state + static_cast<size_t>(query) * FloatsPerQuery(tile);
  return {base, base + tile.head_dim, base + tile.head_dim + 1, base + tile.head_dim + 2};
}

float Element(KvType type, const void* data, ptrdiff_t index) {
  switch (type) {
    case KvType::kF16:
      return FloatFromFp16(static_cast<const uint16_t*>(data)[index]);
    case KvType::kBf16:
      return FloatFromBf16(static_cast<const uint16_t*>(data)[index]);
    case KvType::kF32:
      return static_cast<const float*>(data)[index];
  }
  return 0;
}

// Makes `max` the reference of the exponentials; no-op if it already is.
void Rescale(const AttentionTile& tile, float max, const QueryState& s) {
  if (max == *s.m) return;
  const float factor = std::exp(*s.m - max);
  *s.m = max;
  *s.l *= factor;
  for (int d = 0; d < tile.head_dim; ++d) s.acc[d] *= factor;
}

size_t StateFloats(const AttentionTile& tile) {
  return static_cast<size_t>(tile.rows * tile.heads) * FloatsPerQuery(tile);
}

void Begin(const AttentionTile& tile, const float* q, ptrdiff_t q_stride, const float* sinks,
           float* state) {
  for (int i = 0; i < tile.rows; ++i) {
    for (int h = 0; h < tile.heads; ++h) {
      const QueryState s = StateOf(tile, i * tile.heads + h, state);
      *s.m = sinks != nullptr ? sinks[h] : kMinusInfinity;
      *s.l = sinks != nullptr ? 1.0f : 0.0f;
      for (int d = 0; d < tile.head_dim; ++d) {
        s.q[d] = q[i * q_stride + h * tile.head_dim + d] * tile.scale;
        s.acc[d] = 0.0f;
      }
    }
  }
}

void Run(const AttentionTile& tile, const KeyValueRun& run, float* state) {
  for (int query = 0; query < tile.rows * tile.heads; ++query) {
    const QueryState s = StateOf(tile, query, state);
    const int row = query / tile.heads;
    const int begin = std::max(tile.visible_begin[row] - run.first_position, 0);
    const int end = std::min(tile.visible_end[row] - run.first_position, run.count);
    for (int p = begin; p < end; ++p) {
      float score = 0;
      for (int d = 0; d < tile.head_dim; ++d) {
        score = std::fma(s.q[d], Element(run.type, run.k, p * run.k_stride + d), score);
      }
      Rescale(tile, std::max(*s.m, score), s);
      const float weight = std::exp(score - *s.m);
      *s.l += weight;
      for (int d = 0; d < tile.head_dim; ++d) {
        s.acc[d] = std::fma(weight, Element(run.type, run.v, p * run.v_stride + d), s.acc[d]);
      }
    }
  }
}

void Merge(const AttentionTile& tile, const float* from, float* into) {
  for (int query = 0; query < tile.rows * tile.heads; ++query) {
    const QueryState a = StateOf(tile, query, into);
    const QueryState b = StateOf(tile, query, const_cast<float*>(from));  // only read
    if (*b.m == kMinusInfinity) continue;
    Rescale(tile, std::max(*a.m, *b.m), a);
    const float factor = std::exp(*b.m - *a.m);
    *a.l = std::fma(factor, *b.l, *a.l);
    for (int d = 0; d < tile.head_dim; ++d) a.acc[d] = std::fma(factor, b.acc[d], a.acc[d]);
  }
}

void End(const AttentionTile& tile, float* state, float* out, ptrdiff_t out_stride) {
  for (int i = 0; i < tile.rows; ++i) {
    for (int h = 0; h < tile.heads; ++h) {
      const QueryState s = StateOf(tile, i * tile.heads + h, state);
      for (int d = 0; d < tile.head_dim; ++d) {
        out[i * out_stride + h * tile.head_dim + d] = *s.l > 0 ? s.acc[d] / *s.l : 0.0f;
      }
    }
  }
}

}  // namespace

void FillAttention(Kernels& table) {
  table.attention_state_floats = StateFloats;
  table.attention_begin = Begin;
  table.attention_run = Run;
  table.attention_merge = Merge;
  table.attention_end = End;
}

}  // namespace mference::cpu::scalar
