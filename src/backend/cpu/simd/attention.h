// Online-softmax attention of a tile of queries that share one KV head, for any instruction set.
//
// Keys come in blocks of kKeyBlock positions. For each block: scores S = Q K^T, then per query the
// new maximum m, weights exp(S - m) in place of the scores, the sum l, and acc = acc * exp(m_old -
// m)
// + weights V.
//
// Few queries (decode): each row of K and V is converted in registers and used for all heads that
// share it, so memory is read once. Many queries (prefill): a block of K is converted and
// transposed into a tile, a block of V is converted, and both products go through the micro kernel.
#pragma once

#include <limits>

#include "backend/cpu/simd/math.h"
#include "backend/cpu/simd/micro_kernel.h"

namespace mference::cpu::simd {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

template <typename V>
struct Attention {
  using F = typename V::F;
  using Micro = MicroKernel<V>;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kColumns = Micro::kColumns;
  static_assert(kKeyBlock % kColumns == 0);

  // Most queries of the path that works in registers: above it the transposed tile pays.
  static constexpr int kFewQueries = 8;
  // Dimensions of a transposed tile of keys: 128 x 32 floats are 16 KiB.
  static constexpr int kTileDims = 128;

  static int Queries(const AttentionTile& tile) { return tile.rows * tile.heads; }
  static bool IsFew(const AttentionTile& tile) { return Queries(tile) <= kFewQueries; }

  // The parts of the opaque state.
  struct State {
    State(const AttentionTile& tile, float* state)
        : q(state),
          acc(q + Queries(tile) * tile.head_dim),
          m(acc + Queries(tile) * tile.head_dim),
          l(m + Queries(tile)) {}
    float* q;    // scaled: [queries, head_dim] for few, panels for many
    float* acc;  // [queries, head_dim]
    float* m;    // [queries], largest score so far
    float* l;    // [queries], sum of exp(score - m)
  };

  // Scores, then weights, of a block of positions. That of query i for position p is at
  // Row(i) + p / kLanes * block_stride + p % kLanes.
  struct Scores {
    alignas(64) float data[kMaxTileQueries * kKeyBlock];
    int block_stride[kMaxTileQueries];
    float* row[kMaxTileQueries];
    float rescale[kMaxTileQueries];
    bool any_visible[kMaxTileQueries];
  };

  template <KvType kType>
  [[gnu::always_inline]] static F LoadKv(const void* data, ptrdiff_t index) {
    if constexpr (kType == KvType::kF16) {
      return V::LoadF16(static_cast<const uint16_t*>(data) + index);
    } else if constexpr (kType == KvType::kBf16) {
      return V::LoadBf16(static_cast<const uint16_t*>(data) + index);
    } else {
      return V::Load(static_cast<const float*>(data) + index);
    }
  }

  static size_t StateFloats(const AttentionTile& tile) {
    return static_cast<size_t>(Queries(tile)) * (2 * static_cast<size_t>(tile.head_dim) + 2);
  }

  static void Begin(const AttentionTile& tile, const float* q, ptrdiff_t q_stride,
                    const float* sinks, float* state) {
    const State s(tile, state);
    const typename Micro::Panels panels(Queries(tile));
    for (int i = 0; i < Queries(tile); ++i) {
      const int head = i % tile.heads;
      const float* x = q + i / tile.heads * q_stride + head * tile.head_dim;
      if (IsFew(tile)) {
        const F scale = V::Set(tile.scale);
        for (int d = 0; d < tile.head_dim; d += kLanes) {
          V::Store(s.q + i * tile.head_dim + d, V::Mul(V::Load(x + d), scale));
        }
      } else {
        Micro::Pack(panels, i, x, tile.head_dim, tile.scale, s.q);
      }
      for (int d = 0; d < tile.head_dim; d += kLanes) {
        V::Store(s.acc + i * tile.head_dim + d, V::Zero());
      }
      s.m[i] = sinks != nullptr ? sinks[head] : kMinusInfinity;
      s.l[i] = sinks != nullptr ? 1.0f : 0.0f;
    }
  }

  // ---- Scores of few queries: kHeads queries by kLanes / kHeads positions at a time, so that the
  // kLanes sums over lanes reduce to one vector by pairwise sums.

  //
  // Rows are short streams, which hardware does not run ahead of. The first of several groups of
  // heads (`prefetch`) asks for the keys two steps ahead, and for the values of this block, which
  // are needed next.
  template <KvType kType, int kHeads>
  static void ScoreFewHeads(const AttentionTile& tile, const KeyValueRun& run, const float* q,
                            int first, int count, float* const* rows, bool prefetch) {
    constexpr int kPositions = kLanes / kHeads;
    constexpr ptrdiff_t kBytes = kType == KvType::kF32 ? 4 : 2;
    constexpr int kLine = 64 / kBytes;
    const auto* keys = static_cast<const char*>(run.k);
    const auto* values = static_cast<const char*>(run.v);
    for (int p = 0; p < count; p += kPositions) {
      F sum[kLanes];
      Unroll<kLanes>([&](auto i) __attribute__((always_inline)) { sum[i] = V::Zero(); });
      ptrdiff_t at[kPositions];
      for (int j = 0; j < kPositions; ++j) {
        at[j] = (first + (p + j < count ? p + j : count - 1)) * run.k_stride;  // repeats the last
      }
      for (int d = 0; d < tile.head_dim; d += kLanes) {
        if (prefetch && d % kLine == 0) {
          for (int j = 0; j < kPositions; ++j) {
            V::Prefetch(keys + (at[j] + 2 * kPositions * run.k_stride + d) * kBytes);
            V::Prefetch(values + ((first + p + j) * run.v_stride + d) * kBytes);
          }
        }
        F key[kPositions];
        Unroll<kPositions>([&](auto j) __attribute__((always_inline)) {
          key[j] = LoadKv<kType>(run.k, at[j] + d);
        });
        Unroll<kHeads>([&](auto h) __attribute__((always_inline)) {
          const F x = V::Load(q + h * tile.head_dim + d);
          Unroll<kPositions>([&](auto j) __attribute__((always_inline)) {
            sum[h * kPositions + j] = V::Fma(x, key[j], sum[h * kPositions + j]);
          });
        });
      }
      // Each stage adds neighbours: half as many vectors, in the same order.
      Unroll<Log2(kLanes)>([&](auto stage) __attribute__((always_inline)) {
        Unroll<(kLanes >> (stage + 1))>([&](auto i) __attribute__((always_inline)) {
          F even;
          F odd;
          V::Deinterleave(sum[2 * i], sum[2 * i + 1], even, odd);
          sum[i] = V::Add(even, odd);
        });
      });
      float scores[kLanes];
      V::Store(scores, sum[0]);
      for (int h = 0; h < kHeads; ++h) {
        for (int j = 0; j < kPositions; ++j) rows[h][p + j] = scores[h * kPositions + j];
      }
    }
  }

  template <KvType kType>
  static void ScoreFew(const AttentionTile& tile, const KeyValueRun& run, const State& s, int first,
                       int count, Scores& scores) {
    const int queries = Queries(tile);
    for (int i = 0; i < queries; ++i) {
      scores.row[i] = scores.data + i * kKeyBlock;
      scores.block_stride[i] = kLanes;
    }
    int i = 0;
    for (; i + 4 <= queries; i += 4) {
      ScoreFewHeads<kType, 4>(tile, run, s.q + i * tile.head_dim, first, count, scores.row + i,
                              i == 0);
    }
    for (; i + 2 <= queries; i += 2) {
      ScoreFewHeads<kType, 2>(tile, run, s.q + i * tile.head_dim, first, count, scores.row + i,
                              i == 0);
    }
    for (; i < queries; ++i) {
      ScoreFewHeads<kType, 1>(tile, run, s.q + i * tile.head_dim, first, count, scores.row + i,
                              i == 0);
    }
  }

  // acc = acc * rescale + weights V for kHeads queries, kVectors vectors of dimensions at a time.
  template <KvType kType, int kHeads>
  static void ValuesFewHeads(const AttentionTile& tile, const KeyValueRun& run, float* acc,
                             int first, int count, float* const* weights, const float* rescale) {
    constexpr int kVectors = kHeads == 4 ? 2 : 4;
    int d = 0;
    const auto dims = [&](auto vectors) __attribute__((always_inline)) {
      constexpr int kCount = decltype(vectors)::value;
      F sum[kHeads][kCount];
      Unroll<kHeads>([&](auto h) __attribute__((always_inline)) {
        Unroll<kCount>([&](auto v) __attribute__((always_inline)) {
          sum[h][v] = V::Mul(V::Load(acc + h * tile.head_dim + d + v * kLanes), V::Set(rescale[h]));
        });
      });
      for (int p = 0; p < count; ++p) {
        F value[kCount];
        Unroll<kCount>([&](auto v) __attribute__((always_inline)) {
          value[v] = LoadKv<kType>(run.v, (first + p) * run.v_stride + d + v * kLanes);
        });
        Unroll<kHeads>([&](auto h) __attribute__((always_inline)) {
          const F weight = V::Set(weights[h][p]);
          Unroll<kCount>([&](auto v) __attribute__((always_inline)) {
            sum[h][v] = V::Fma(weight, value[v], sum[h][v]);
          });
        });
      }
      Unroll<kHeads>([&](auto h) __attribute__((always_inline)) {
        Unroll<kCount>([&](auto v) __attribute__((always_inline)) {
          V::Store(acc + h * tile.head_dim + d + v * kLanes, sum[h][v]);
        });
      });
      d += kCount * kLanes;
    };
    while (d + kVectors * kLanes <= tile.head_dim) dims(std::integral_constant<int, kVectors>{});
    while (d < tile.head_dim) dims(std::integral_constant<int, 1>{});
  }

  template <KvType kType>
  static void ValuesFew(const AttentionTile& tile, const KeyValueRun& run, const State& s,
                        int first, int count, const Scores& scores) {
    const int queries = Queries(tile);
    int i = 0;
    for (; i + 4 <= queries; i += 4) {
      ValuesFewHeads<kType, 4>(tile, run, s.acc + i * tile.head_dim, first, count, scores.row + i,
                               scores.rescale + i);
    }
    for (; i + 2 <= queries; i += 2) {
      ValuesFewHeads<kType, 2>(tile, run, s.acc + i * tile.head_dim, first, count, scores.row + i,
                               scores.rescale + i);
    }
    for (; i < queries; ++i) {
      ValuesFewHeads<kType, 1>(tile, run, s.acc + i * tile.head_dim, first, count, scores.row + i,
                               scores.rescale + i);
    }
  }

  // ---- Many queries.

  // Scores land where the second product wants its A: in panels of blocks of kLanes positions.
  template <KvType kType>
  static void ScoreMany(const AttentionTile& tile, const KeyValueRun& run, const State& s,
                        int first, int count, Scores& scores) {
    alignas(64) float keys[kTileDims * kColumns];  // [dim][position]
    const typename Micro::Panels panels(Queries(tile));
    for (int p = 0; p < panels.count; ++p) {
      for (int i = 0; i < panels.Rows(p); ++i) {
        const int query = panels.First(p) + i;
        scores.row[query] = scores.data + panels.First(p) * kKeyBlock + i * kLanes;
        scores.block_stride[query] = panels.Rows(p) * kLanes;
      }
    }
    for (int column = 0; column < kKeyBlock; column += kColumns) {
      if (column >= count) break;
      for (int begin = 0; begin < tile.head_dim; begin += kTileDims) {
        const int dims = tile.head_dim - begin < kTileDims ? tile.head_dim - begin : kTileDims;
        for (int half = 0; half < 2; ++half) {
          for (int d = 0; d < dims; d += kLanes) {
            F square[kLanes];
            for (int i = 0; i < kLanes; ++i) {
              const int position = column + half * kLanes + i;
              const int clamped = position < count ? position : count - 1;
              square[i] = LoadKv<kType>(run.k, (first + clamped) * run.k_stride + begin + d);
            }
            Transpose<V>(square);
            Unroll<kLanes>([&](auto i) __attribute__((always_inline)) {
              V::Store(keys + (d + i) * kColumns + half * kLanes, square[i]);
            });
          }
        }
        for (int p = 0; p < panels.count; ++p) {
          const int height = panels.Rows(p);
          const float* a = s.q + panels.First(p) * tile.head_dim + height * begin;
          float* out = scores.data + panels.First(p) * kKeyBlock + column * height;
          Micro::Run(height, dims, a, keys, {out, kLanes, height * kLanes}, begin > 0);
        }
      }
    }
  }

  template <KvType kType>
  static void ValuesMany(const AttentionTile& tile, const KeyValueRun& run, const State& s,
                         int first, int count, const Scores& scores) {
    alignas(64) float values[kKeyBlock * kColumns];  // [position][dim]
    const typename Micro::Panels panels(Queries(tile));
    for (int i = 0; i < Queries(tile); ++i) {
      if (scores.rescale[i] == 1.0f) continue;
      const F factor = V::Set(scores.rescale[i]);
      float* acc = s.acc + i * tile.head_dim;
      for (int d = 0; d < tile.head_dim; d += kLanes)
        V::Store(acc + d, V::Mul(V::Load(acc + d), factor));
    }
    const int padded = RoundUp(count, kLanes);
    for (int d = 0; d < tile.head_dim; d += kColumns) {
      // head_dim is a multiple of 16: with 16 lanes the last tile may be half empty.
      const int vectors = d + kColumns <= tile.head_dim ? 2 : 1;
      for (int p = 0; p < padded; ++p) {
        for (int v = 0; v < 2; ++v) {
          const F value = p < count && v < vectors
                              ? LoadKv<kType>(run.v, (first + p) * run.v_stride + d + v * kLanes)
                              : V::Zero();
          V::Store(values + p * kColumns + v * kLanes, value);
        }
      }
      for (int p = 0; p < panels.count; ++p) {
        const int height = panels.Rows(p);
        const float* a = scores.data + panels.First(p) * kKeyBlock;
        float* out = s.acc + panels.First(p) * tile.head_dim + d;
        if (vectors == 2) {
          Micro::Run(height, padded, a, values, {out, tile.head_dim, kLanes}, true);
        } else {
          float edge[Micro::kMaxRows * kColumns];
          Micro::Run(height, padded, a, values, {edge, kColumns, kLanes}, false);
          for (int i = 0; i < height; ++i) {
            float* row = out + i * tile.head_dim;
            V::Store(row, V::Add(V::Load(row), V::Load(edge + i * kColumns)));
          }
        }
      }
    }
  }

  // ---- Both.

  // Turns the scores of query i into weights, for the positions [begin, end) of the block that it
  // sees; the rest of the block weighs nothing. Updates m and l, notes the factor for acc.
  static void Weigh(const State& s, int i, int begin, int end, Scores& scores) {
    float* row = scores.row[i];
    const ptrdiff_t stride = scores.block_stride[i];
    if (begin >= end) {
      for (int p = 0; p < kKeyBlock; p += kLanes) V::Store(row + p / kLanes * stride, V::Zero());
      scores.rescale[i] = 1.0f;
      return;
    }
    const auto hide = [&](int from, int to) {
      for (int p = from; p < to; ++p) row[p / kLanes * stride + p % kLanes] = kMinusInfinity;
    };
    hide(0, begin);
    hide(end, kKeyBlock);
    F largest = V::Set(s.m[i]);
    for (int p = 0; p < kKeyBlock; p += kLanes) {
      largest = V::Max(V::Load(row + p / kLanes * stride), largest);
    }
    const float m = V::Largest(largest);
    // Only scores of -infinity (an overflow of the inputs) leave m there.
    const float reference = m == kMinusInfinity ? 0.0f : m;
    const F shift = V::Set(reference);
    F sum = V::Zero();
    for (int p = 0; p < kKeyBlock; p += kLanes) {
      float* at = row + p / kLanes * stride;
      const F weight = Exp<V>(V::Sub(V::Load(at), shift));
      V::Store(at, weight);
      sum = V::Add(sum, weight);
    }
    scores.rescale[i] = m == s.m[i] ? 1.0f : ExpOne(s.m[i] - reference);
    s.m[i] = m;
    s.l[i] = s.l[i] * scores.rescale[i] + V::Sum(sum);
  }

  static float ExpOne(float x) {
    float lanes[kLanes];
    V::Store(lanes, Exp<V>(V::Set(x)));
    return lanes[0];
  }

  template <KvType kType>
  static void RunTyped(const AttentionTile& tile, const KeyValueRun& run, float* state) {
    const State s(tile, state);
    Scores scores;
    const auto clamp = [&](int32_t position) {
      const int64_t at = static_cast<int64_t>(position) - run.first_position;
      return static_cast<int>(at < 0 ? 0 : at > run.count ? run.count : at);
    };
    for (int block = 0; block < run.count; block += kKeyBlock) {
      const int block_end = block + kKeyBlock < run.count ? block + kKeyBlock : run.count;
      // What any row sees of this block; one that nobody sees is left out.
      int begin = block_end;
      int end = block;
      for (int i = 0; i < tile.rows; ++i) {
        const int row_begin = clamp(tile.visible_begin[i]);
        const int row_end = clamp(tile.visible_end[i]);
        if (row_begin < row_end) {
          begin = row_begin < begin ? row_begin : begin;
          end = row_end > end ? row_end : end;
        }
      }
      if (end > block_end) end = block_end;
      if (begin >= end || end <= block) continue;
      // Scores are indexed from the block's start, so that a block is the same for every tile.
      const int count = end - block;
      if (IsFew(tile)) {
        ScoreFew<kType>(tile, run, s, block, count, scores);
      } else {
        ScoreMany<kType>(tile, run, s, block, count, scores);
      }
      for (int i = 0; i < Queries(tile); ++i) {
        const int row_begin = clamp(tile.visible_begin[i / tile.heads]) - block;
        const int row_end = clamp(tile.visible_end[i / tile.heads]) - block;
        Weigh(s, i, row_begin < 0 ? 0 : row_begin, row_end < count ? row_end : count, scores);
      }
      if (IsFew(tile)) {
        ValuesFew<kType>(tile, run, s, block, count, scores);
      } else {
        ValuesMany<kType>(tile, run, s, block, count, scores);
      }
    }
  }

  static void Run(const AttentionTile& tile, const KeyValueRun& run, float* state) {
    switch (run.type) {
      case KvType::kF16:
        return RunTyped<KvType::kF16>(tile, run, state);
      case KvType::kBf16:
        return RunTyped<KvType::kBf16>(tile, run, state);
      case KvType::kF32:
        return RunTyped<KvType::kF32>(tile, run, state);
    }
  }

  static void Merge(const AttentionTile& tile, const float* from, float* into) {
    const State a(tile, into);
    const State b(tile, const_cast<float*>(from));  // only read
    for (int i = 0; i < Queries(tile); ++i) {
      if (b.m[i] == kMinusInfinity) continue;
      const float m = a.m[i] > b.m[i] ? a.m[i] : b.m[i];
      const float scale_a = ExpOne(a.m[i] - m);
      const float scale_b = ExpOne(b.m[i] - m);
      a.m[i] = m;
      a.l[i] = a.l[i] * scale_a + b.l[i] * scale_b;
      for (int d = 0; d < tile.head_dim; d += kLanes) {
        float* acc = a.acc + i * tile.head_dim + d;
        const F add = V::Mul(V::Load(b.acc + i * tile.head_dim + d), V::Set(scale_b));
        V::Store(acc, V::Fma(V::Load(acc), V::Set(scale_a), add));
      }
    }
  }

  static void End(const AttentionTile& tile, float* state, float* out, ptrdiff_t out_stride) {
    const State s(tile, state);
    for (int i = 0; i < Queries(tile); ++i) {
      float* to = out + i / tile.heads * out_stride + i % tile.heads * tile.head_dim;
      const F factor = V::Set(s.l[i] > 0 ? 1.0f / s.l[i] : 0.0f);
      for (int d = 0; d < tile.head_dim; d += kLanes) {
        V::Store(to + d, V::Mul(V::Load(s.acc + i * tile.head_dim + d), factor));
      }
    }
  }

  static void Fill(Kernels& table) {
    table.attention_state_floats = StateFloats;
    table.attention_begin = Begin;
    table.attention_run = Run;
    table.attention_merge = Merge;
    table.attention_end = End;
  }
};

}  // namespace mference::cpu::simd
