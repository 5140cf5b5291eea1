// Short convolutions and the gated delta rule, for any instruction set.
//
// The delta rule comes in two forms. Row by row, S is read twice and written once for each row, a
// few rows of S at a time, so that they stay in the first cache over all rows of the call.
//
// As a chunk (Yang et al., "Gated Delta Networks", 2024): what row j adds to the state, x_j k_j^T
// with the correction x_j [value_dim], has decayed by Gamma[i, j] = decay_{j+1} ... decay_i at row
// i. With B = diag(beta), g_i = decay_0 ... decay_i and M the strictly lower triangle of
// B (K K^T o Gamma),
//   X = B (V - diag(g) K S^T) - M X                      by forward substitution
//   out = diag(g) Q S^T + (Q K^T o Gamma) X              lower triangle with the diagonal
//   S = g_last S + X^T diag(Gamma[last]) K
// Gamma is multiplied up row by row from the decays themselves: its upper triangle is never formed,
// nothing overflows, and no difference of logarithms cancels, however extreme the gates are.
#pragma once

#include "backend/cpu/simd/elementwise.h"
#include "backend/cpu/simd/micro_kernel.h"

namespace mference::cpu::simd {

template <typename V>
struct Recurrent {
  using F = typename V::F;
  using Micro = MicroKernel<V>;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kColumns = Micro::kColumns;
  static_assert(kMaxDeltaRows % kColumns == 0 && kDeltaDimMultiple % kColumns == 0);

  // ---- Short convolution.

  // Rows per pass over the channels: few enough that rows a power of two apart, which share a set
  // of the cache, stay in it.
  static constexpr int kPassRows = 8;

  static void ShortConvolution(const ConvolutionRows& rows, int begin, int end) {
    for (int first = 0; first < rows.rows; first += kPassRows) {
      const int last = first + kPassRows < rows.rows ? first + kPassRows : rows.rows;
      int c = begin;
      for (; c + kLanes <= end; c += kLanes) {
        ConvolveChannels(
            rows, first, last, c, rows.weights + ptrdiff_t{c} * kConvolutionTaps,
            [](const float* p) __attribute__((always_inline)) { return V::Load(p); },
            [](float* p, F x) __attribute__((always_inline)) { V::Store(p, x); });
      }
      if (const int rest = end - c; rest > 0) {
        float weights[kLanes * kConvolutionTaps] = {};
        for (int i = 0; i < rest * kConvolutionTaps; ++i) {
          weights[i] = rows.weights[ptrdiff_t{c} * kConvolutionTaps + i];
        }
        ConvolveChannels(
            rows, first, last, c, weights,
            [rest](const float* p)
                __attribute__((always_inline)) { return V::LoadPartial(p, rest); },
            [rest](float* p, F x) __attribute__((always_inline)) { V::StorePartial(p, x, rest); });
      }
    }
  }

  // Rows [first, last) of the kLanes channels from c on.
  template <typename LoadRow, typename StoreRow>
  [[gnu::always_inline]] static void ConvolveChannels(const ConvolutionRows& rows, int first,
                                                      int last, int c, const float* weights,
                                                      LoadRow load, StoreRow store) {
    static_assert(kConvolutionTaps == 4);
    constexpr int kHistory = kConvolutionTaps - 1;
    const auto row = [&](int i) __attribute__((always_inline)) {
      return load(c +
                  (i < 0 ? rows.history + (i + kHistory) * rows.stride : rows.x + i * rows.stride));
    };
    // The taps of a channel lie together: two stages part the four.
    F even[2];
    F odd[2];
    F tap[kConvolutionTaps];
    V::Deinterleave(V::Load(weights), V::Load(weights + kLanes), even[0], odd[0]);
    V::Deinterleave(V::Load(weights + 2 * kLanes), V::Load(weights + 3 * kLanes), even[1], odd[1]);
    V::Deinterleave(even[0], even[1], tap[0], tap[2]);
    V::Deinterleave(odd[0], odd[1], tap[1], tap[3]);
    F oldest = row(first - 3);
    F older = row(first - 2);
    F old = row(first - 1);
    for (int i = first; i < last; ++i) {
      const F now = row(i);
      F sum = V::Mul(tap[0], oldest);
      sum = V::Fma(tap[1], older, sum);
      sum = V::Fma(tap[2], old, sum);
      sum = V::Fma(tap[3], now, sum);
      store(rows.out + i * rows.stride + c,
            Elementwise<V>::TimesSigmoid(sum, V::Sub(V::Zero(), sum)));
      oldest = older;
      older = old;
      old = now;
    }
  }

  // ---- The delta rule, row by row.

  // S is taken by this many rows: as many products with k, and with q, fill a vector.
  static constexpr int kStateRows = kLanes / 2;

  static void DeltaSteps(const DeltaRows& rows, float* state) {
    const int dim = rows.key_dim;
    float key_query[kMaxDeltaRows];
    for (int i = 0; i < rows.rows; ++i) {
      key_query[i] =
          Elementwise<V>::Dot(rows.k + ptrdiff_t{i} * dim, rows.q + ptrdiff_t{i} * dim, dim);
    }
    for (int first = 0; first < rows.value_dim; first += kStateRows) {
      float* s = state + ptrdiff_t{first} * dim;
      for (int i = 0; i < rows.rows; ++i) {
        const float* k = rows.k + ptrdiff_t{i} * dim;
        float products[kLanes];  // with k, then with q, of the state before this row
        StateProducts(s, k, rows.q + ptrdiff_t{i} * dim, dim, products);
        const float decay = rows.decay[i];
        const float* v = rows.v + i * rows.v_stride + first;
        float* out = rows.out + i * rows.out_stride + first;
        F correction[kStateRows];
        for (int r = 0; r < kStateRows; ++r) {
          const float x = rows.beta[i] * (v[r] - decay * products[r]);
          // (decay S + x k^T) q, so that the new state need not be read again.
          out[r] = decay * products[kStateRows + r] + x * key_query[i];
          correction[r] = V::Set(x);
        }
        const F factor = V::Set(decay);
        for (int d = 0; d < dim; d += kLanes) {
          const F key = V::Load(k + d);
          Unroll<kStateRows>([&](auto r) __attribute__((always_inline)) {
            float* at = s + r * dim + d;
            V::Store(at, V::Fma(correction[r], key, V::Mul(factor, V::Load(at))));
          });
        }
      }
    }
  }

  [[gnu::always_inline]] static void StateProducts(const float* s, const float* k, const float* q,
                                                   int dim, float* products) {
    F sum[kLanes];
    Unroll<kLanes>([&](auto i) __attribute__((always_inline)) { sum[i] = V::Zero(); });
    for (int d = 0; d < dim; d += kLanes) {
      const F key = V::Load(k + d);
      const F query = V::Load(q + d);
      Unroll<kStateRows>([&](auto r) __attribute__((always_inline)) {
        const F x = V::Load(s + r * dim + d);
        sum[r] = V::Fma(x, key, sum[r]);
        sum[kStateRows + r] = V::Fma(x, query, sum[kStateRows + r]);
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
    V::Store(products, sum[0]);
  }

  // ---- The delta rule, a chunk at once.

  // Panels are all of one height that divides kLanes, so that their borders are borders of the
  // blocks in which a panel is packed.
  static constexpr int kHeight = [] {
    int height = kLanes;
    while (height > V::kTileRows) height /= 2;
    return height;
  }();

  // Matrices of a chunk. "Panels" are A of the micro kernel, "tiles" are B.
  struct Chunk {
    Chunk(const DeltaRows& rows, float* scratch)
        : panel_rows(RoundUp(rows.rows, kHeight)),
          padded_rows(RoundUp(rows.rows, kLanes)),
          columns(RoundUp(rows.rows, kColumns)),
          key_panels(scratch),
          query_panels(key_panels + kMaxDeltaRows * rows.key_dim),
          key_tiles(query_panels + kMaxDeltaRows * rows.key_dim),
          transposed(key_tiles + kMaxDeltaRows * rows.key_dim),
          feedback(transposed + kColumns * rows.key_dim),
          readout(feedback + kMaxDeltaRows * kMaxDeltaRows),
          corrections(readout + kMaxDeltaRows * kMaxDeltaRows),
          outputs(corrections + kMaxDeltaRows * kColumns),
          correction_panels(outputs + kMaxDeltaRows * kColumns) {}

    static size_t Floats(int key_dim) {
      return static_cast<size_t>(kMaxDeltaRows) *
                 (3 * static_cast<size_t>(key_dim) + 2 * kMaxDeltaRows + 3 * kColumns) +
             static_cast<size_t>(kColumns) * static_cast<size_t>(key_dim);
    }

    // Rows up to a whole panel, block of a panel, and tile. Those beyond the chunk are zero.
    int panel_rows;
    int padded_rows;
    int columns;

    float* key_panels;         // K [rows, key_dim]
    float* query_panels;       // Q [rows, key_dim]
    float* key_tiles;          // K [rows, key_dim], tile after tile of columns
    float* transposed;         // one tile of K^T or S^T, [key_dim, kColumns]
    float* feedback;           // -M [rows, columns], in panels
    float* readout;            // Q K^T o Gamma [rows, columns], in panels
    float* corrections;        // one tile of X
    float* outputs;            // one tile of the outputs
    float* correction_panels;  // X^T diag(Gamma[last]) [kColumns, padded_rows]

    alignas(64) float since[kMaxDeltaRows] = {};  // Gamma[row, j]; of the last row at the end
    float before[kMaxDeltaRows];                  // g
  };

  static size_t DeltaChunkFloats(int key_dim, int /*value_dim*/) { return Chunk::Floats(key_dim); }

  static void DeltaChunk(const DeltaRows& rows, float* state, float* scratch) {
    Chunk chunk(rows, scratch);
    PackKeysAndQueries(rows, chunk);
    MultiplyKeys(rows, chunk);
    ApplyGates(rows, chunk);
    for (int column = 0; column < rows.value_dim; column += kColumns) {
      float* s = state + ptrdiff_t{column} * rows.key_dim;
      ReadState(rows, s, column, chunk);
      Solve(chunk);
      WriteOutputs(rows, column, chunk);
      UpdateState(rows, s, chunk);
    }
  }

  static void PackKeysAndQueries(const DeltaRows& rows, const Chunk& chunk) {
    const int dim = rows.key_dim;
    for (int i = 0; i < chunk.padded_rows; ++i) {
      const bool real = i < rows.rows;
      const float* k = rows.k + ptrdiff_t{i} * dim;
      const float* q = rows.q + ptrdiff_t{i} * dim;
      float* key = chunk.key_panels + PanelOffset(i, dim);
      float* query = chunk.query_panels + PanelOffset(i, dim);
      for (int d = 0; d < dim; d += kLanes) {
        const F x = real ? V::Load(k + d) : V::Zero();
        V::Store(key + d * kHeight, x);
        V::Store(query + d * kHeight, real ? V::Load(q + d) : V::Zero());
        V::Store(chunk.key_tiles + d / kColumns * (kMaxDeltaRows * kColumns) + i * kColumns +
                     d % kColumns,
                 x);
      }
    }
  }

  // Where row i of a matrix in panels of k columns begins; its blocks of kLanes are kHeight apart.
  static ptrdiff_t PanelOffset(int i, int k) {
    return ptrdiff_t{i / kHeight} * kHeight * k + i % kHeight * kLanes;
  }

  // Rows [0, count) of x [count, dim] as a tile of columns; the rest of the tile is zero.
  static void Transpose(const float* x, int count, int dim, float* tile) {
    for (int half = 0; half < kColumns; half += kLanes) {
      for (int d = 0; d < dim; d += kLanes) {
        F square[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          square[i] = half + i < count ? V::Load(x + ptrdiff_t{half + i} * dim + d) : V::Zero();
        }
        simd::Transpose<V>(square);
        Unroll<kLanes>([&](auto i) __attribute__((always_inline)) {
          V::Store(tile + (d + i) * kColumns + half, square[i]);
        });
      }
    }
  }

  // K K^T and Q K^T, but for the tiles above the diagonal.
  static void MultiplyKeys(const DeltaRows& rows, const Chunk& chunk) {
    const int dim = rows.key_dim;
    for (int column = 0; column < chunk.columns; column += kColumns) {
      Transpose(rows.k + ptrdiff_t{column} * dim, rows.rows - column, dim, chunk.transposed);
      for (int first = column; first < chunk.panel_rows; first += kHeight) {
        const ptrdiff_t at = ptrdiff_t{first} * chunk.columns + column * kHeight;
        Micro::Run(kHeight, dim, chunk.key_panels + ptrdiff_t{first} * dim, chunk.transposed,
                   {chunk.feedback + at, kLanes, kHeight * kLanes}, false);
        Micro::Run(kHeight, dim, chunk.query_panels + ptrdiff_t{first} * dim, chunk.transposed,
                   {chunk.readout + at, kLanes, kHeight * kLanes}, false);
      }
    }
  }

  static void ApplyGates(const DeltaRows& rows, Chunk& chunk) {
    float before = 1;
    for (int i = 0; i < rows.rows; ++i) {
      before *= rows.decay[i];
      chunk.before[i] = before;
      const F decay = V::Set(rows.decay[i]);
      const F minus_beta = V::Set(-rows.beta[i]);
      float* feedback = chunk.feedback + PanelOffset(i, chunk.columns);
      float* readout = chunk.readout + PanelOffset(i, chunk.columns);
      for (int j = 0; j <= i; j += kLanes) {
        // Of the columns from i on, `since` is still zero: that is the mask.
        const F since = V::Mul(decay, V::Load(chunk.since + j));
        V::Store(chunk.since + j, since);
        float* at = feedback + j * kHeight;
        V::Store(at, V::Mul(minus_beta, V::Mul(since, V::Load(at))));
      }
      chunk.since[i] = 1;
      for (int j = 0; j <= i; j += kLanes) {
        float* at = readout + j * kHeight;
        V::Store(at, V::Mul(V::Load(chunk.since + j), V::Load(at)));
      }
    }
  }

  // corrections = B (V - diag(g) K S^T), outputs = diag(g) Q S^T, for kColumns rows of S.
  static void ReadState(const DeltaRows& rows, const float* s, int column, const Chunk& chunk) {
    const int dim = rows.key_dim;
    Transpose(s, kColumns, dim, chunk.transposed);
    for (int first = 0; first < chunk.panel_rows; first += kHeight) {
      Micro::Run(kHeight, dim, chunk.key_panels + ptrdiff_t{first} * dim, chunk.transposed,
                 {chunk.corrections + first * kColumns, kColumns, kLanes}, false);
      Micro::Run(kHeight, dim, chunk.query_panels + ptrdiff_t{first} * dim, chunk.transposed,
                 {chunk.outputs + first * kColumns, kColumns, kLanes}, false);
    }
    for (int i = 0; i < chunk.padded_rows; ++i) {
      float* correction = chunk.corrections + i * kColumns;
      if (i >= rows.rows) {
        for (int c = 0; c < kColumns; c += kLanes) V::Store(correction + c, V::Zero());
        continue;
      }
      float* output = chunk.outputs + i * kColumns;
      const float* v = rows.v + i * rows.v_stride + column;
      const F beta = V::Set(rows.beta[i]);
      const F before = V::Set(chunk.before[i]);
      for (int c = 0; c < kColumns; c += kLanes) {
        const F predicted = V::Mul(before, V::Load(correction + c));
        V::Store(correction + c, V::Mul(beta, V::Sub(V::Load(v + c), predicted)));
        V::Store(output + c, V::Mul(before, V::Load(output + c)));
      }
    }
  }

  // corrections = (I + M)^-1 corrections, a panel of rows at a time: first what the panels above
  // contribute, then the panel's own triangle. The panel stays in registers for both.
  static void Solve(const Chunk& chunk) {
    for (int first = 0; first < chunk.panel_rows; first += kHeight) {
      const float* feedback = chunk.feedback + ptrdiff_t{first} * chunk.columns;
      // -M[first + i, j] is at feedback + Block(j) + i * kLanes.
      const auto block = [](int j) { return j / kLanes * (kHeight * kLanes) + j % kLanes; };
      float* x = chunk.corrections + first * kColumns;
      F sum[kHeight][2];
      Unroll<kHeight>([&](auto i) __attribute__((always_inline)) {
        sum[i][0] = V::Load(x + i * kColumns);
        sum[i][1] = V::Load(x + i * kColumns + kLanes);
      });
      for (int j = 0; j < first; ++j) {
        const float* m = feedback + block(j);
        const F x0 = V::Load(chunk.corrections + j * kColumns);
        const F x1 = V::Load(chunk.corrections + j * kColumns + kLanes);
        Unroll<kHeight>([&](auto i) __attribute__((always_inline)) {
          const F factor = V::Set(m[i * kLanes]);
          sum[i][0] = V::Fma(factor, x0, sum[i][0]);
          sum[i][1] = V::Fma(factor, x1, sum[i][1]);
        });
      }
      const float* triangle = feedback + block(first);
      Unroll<kHeight>([&](auto j) __attribute__((always_inline)) {
        Unroll<kHeight - 1 - j>([&](auto below) __attribute__((always_inline)) {
          constexpr int kRow = decltype(j)::value + 1 + decltype(below)::value;
          const F factor = V::Set(triangle[kRow * kLanes + j]);
          sum[kRow][0] = V::Fma(factor, sum[j][0], sum[kRow][0]);
          sum[kRow][1] = V::Fma(factor, sum[j][1], sum[kRow][1]);
        });
      });
      Unroll<kHeight>([&](auto i) __attribute__((always_inline)) {
        V::Store(x + i * kColumns, sum[i][0]);
        V::Store(x + i * kColumns + kLanes, sum[i][1]);
      });
    }
  }

  static void WriteOutputs(const DeltaRows& rows, int column, const Chunk& chunk) {
    for (int first = 0; first < chunk.panel_rows; first += kHeight) {
      // To the end of the block that has the diagonal.
      Micro::Run(kHeight, RoundUp(first + kHeight, kLanes),
                 chunk.readout + ptrdiff_t{first} * chunk.columns, chunk.corrections,
                 {chunk.outputs + first * kColumns, kColumns, kLanes}, true);
    }
    for (int i = 0; i < rows.rows; ++i) {
      float* out = rows.out + i * rows.out_stride + column;
      V::Store(out, V::Load(chunk.outputs + i * kColumns));
      V::Store(out + kLanes, V::Load(chunk.outputs + i * kColumns + kLanes));
    }
  }

  // kColumns rows of S.
  static void UpdateState(const DeltaRows& rows, float* s, const Chunk& chunk) {
    const int dim = rows.key_dim;
    for (int row = 0; row < chunk.padded_rows; row += kLanes) {
      for (int half = 0; half < kColumns; half += kLanes) {
        F square[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          square[i] = V::Mul(V::Set(chunk.since[row + i]),
                             V::Load(chunk.corrections + (row + i) * kColumns + half));
        }
        simd::Transpose<V>(square);
        for (int i = 0; i < kLanes; ++i) {
          V::Store(
              chunk.correction_panels + PanelOffset(half + i, chunk.padded_rows) + row * kHeight,
              square[i]);
        }
      }
    }
    const F before = V::Set(chunk.before[rows.rows - 1]);
    for (int i = 0; i < kColumns * dim; i += kLanes) {
      V::Store(s + i, V::Mul(before, V::Load(s + i)));
    }
    for (int d = 0; d < dim; d += kColumns) {
      const float* keys = chunk.key_tiles + ptrdiff_t{d} * kMaxDeltaRows;
      for (int first = 0; first < kColumns; first += kHeight) {
        Micro::Run(kHeight, chunk.padded_rows, chunk.correction_panels + first * chunk.padded_rows,
                   keys, {s + ptrdiff_t{first} * dim + d, dim, kLanes}, true);
      }
    }
  }

  static void Fill(Kernels& table) {
    table.short_convolution = ShortConvolution;
    table.delta_steps = DeltaSteps;
    table.delta_chunk_floats = DeltaChunkFloats;
    table.delta_chunk = DeltaChunk;
  }
};

}  // namespace mference::cpu::simd
