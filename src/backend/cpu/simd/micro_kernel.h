// The register tile of every matrix product here: C[m, N] (+)= A[m, k] B[k, N], N two vectors wide.
//
// A is packed in panels of m <= kTileRows rows: for each block of kLanes values of k, kLanes values
// of row 0, then of row 1, ... That is a copy of contiguous pieces, and the tile then reads A at
// constant offsets from one pointer, whatever the row stride of the source (strides of large powers
// of two would map all rows of a panel to the same cache set). B is [k][N], contiguous.
//
// Per value of k the tile issues 2 m multiply-adds against m broadcasts and 2 loads: with m = 12
// and two loads and two multiply-adds per cycle, the arithmetic is the bound.
#pragma once

#include "backend/cpu/simd/vec_concept.h"

namespace mference::cpu::simd {

// Rows of A are spread over as few panels as they need, as evenly as they go.
template <int kMaxRows>
struct Panels {
  explicit Panels(int rows)
      : count((rows + kMaxRows - 1) / kMaxRows), height(rows / count), taller(rows % count) {}

  int First(int panel) const { return panel * height + (panel < taller ? panel : taller); }
  int Rows(int panel) const { return height + (panel < taller ? 1 : 0); }
  int PanelOf(int row) const {
    const int in_taller = taller * (height + 1);
    return row < in_taller ? row / (height + 1) : taller + (row - in_taller) / height;
  }

  int count;
  int height;  // of the last panels; the first `taller` have one row more
  int taller;
};

template <typename V>
struct MicroKernel {
  using F = typename V::F;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kMaxRows = V::kTileRows;
  static constexpr int kColumns = 2 * V::kLanes;

  // Where C is: row i, vector v starts at data + i * row_stride + v * vector_stride.
  struct Output {
    float* data;
    ptrdiff_t row_stride;
    ptrdiff_t vector_stride;
  };

  // `k` is a multiple of kLanes. Sums over k start from zero and are then added to C (`add`) or
  // replace it: each element is a sum of block sums, whose error grows with the block's length, not
  // the row's.
  static void Run(int rows, int k, const float* a, const float* b, const Output& c, bool add) {
    kTiles[rows - 1](k, a, b, c, add);
  }

  using Panels = simd::Panels<kMaxRows>;

  // Copies row `row` of A, k values, times `factor`, into its place among panels of k values.
  static void Pack(const Panels& panels, int row, const float* x, int k, float factor,
                   float* packed) {
    const int panel = panels.PanelOf(row);
    const int first = panels.First(panel);
    const int rows = panels.Rows(panel);
    float* out = packed + static_cast<ptrdiff_t>(first) * k + (row - first) * kLanes;
    const F scale = V::Set(factor);
    for (int i = 0; i < k; i += kLanes, out += rows * kLanes) {
      V::Store(out, V::Mul(V::Load(x + i), scale));
    }
  }

 private:
  using Tile = void (*)(int k, const float* a, const float* b, const Output& c, bool add);

  template <int kRows>
  static void RunTile(int k, const float* a, const float* b, const Output& c, bool add) {
    F sum[kRows][2];
    Unroll<kRows>([&](auto i) __attribute__((always_inline)) {
      sum[i][0] = V::Zero();
      sum[i][1] = V::Zero();
    });
    for (int block = 0; block < k; block += kLanes, a += kRows * kLanes) {
      for (int lane = 0; lane < kLanes; ++lane, b += kColumns) {
        const F b0 = V::Load(b);
        const F b1 = V::Load(b + kLanes);
        Unroll<kRows>([&](auto i) __attribute__((always_inline)) {
          const F x = V::Set(a[i * kLanes + lane]);
          sum[i][0] = V::Fma(x, b0, sum[i][0]);
          sum[i][1] = V::Fma(x, b1, sum[i][1]);
        });
      }
    }
    Unroll<kRows>([&](auto i) __attribute__((always_inline)) {
      float* out = c.data + i * c.row_stride;
      if (add) {
        sum[i][0] = V::Add(V::Load(out), sum[i][0]);
        sum[i][1] = V::Add(V::Load(out + c.vector_stride), sum[i][1]);
      }
      V::Store(out, sum[i][0]);
      V::Store(out + c.vector_stride, sum[i][1]);
    });
  }

  template <typename Sequence>
  struct TileTable;
  template <int... kIndex>
  struct TileTable<std::integer_sequence<int, kIndex...>> {
    static constexpr Tile kEntries[] = {&RunTile<kIndex + 1>...};
  };
  static constexpr const Tile* kTiles =
      TileTable<std::make_integer_sequence<int, kMaxRows>>::kEntries;
};

}  // namespace mference::cpu::simd
