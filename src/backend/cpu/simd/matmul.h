// Weight matrices times rows of activations, for any instruction set.
//
// All formats are read as 32-bit words that hold `kPerWord` consecutive values of a row: 16, 8 or 4
// codes, 2 BF16 values, one float. A vector of words, shifted by j values, gives value j of each
// word: so a block of kLanes * kPerWord values comes out in the order (j, word), and activations
// are brought into the same order once, by Unshuffle.
//
// Few rows of activations (n <= V::kFewRows): each weight vector is decoded into a register and
// used for the n rows. Affine weights use the identity, per group,
//   sum of (s code + b) x = s * (sum of code x) + b * (sum of x),
// with the sums of x prepared once.
//
// Many rows: kColumns weight rows by kBlock columns are decoded into a tile [kBlock][kColumns] that
// stays in the first-level cache while all panels of activations pass over it. Words of kLanes rows
// are transposed before they are decoded, 8 times less work than to transpose 4-bit values after.
#pragma once

#include "backend/cpu/simd/micro_kernel.h"

namespace mference::cpu::simd {

// One weight format with its group, as compile-time constants.
template <typename V, WeightFormat kFormat, int kGroupCols>
struct Weights {
  using F = typename V::F;
  using I = typename V::I;
  static constexpr bool kAffine = IsAffine(kFormat);
  static constexpr int kBits = BitsPerValue(kFormat);
  static constexpr int kPerWord = 32 / kBits;
  static constexpr int kBlock = V::kLanes * kPerWord;  // values in a vector of words
  static constexpr int kGroup = kGroupCols;
  // Groups that a block spans, and blocks that a group spans: one of them is 1.
  static constexpr int kGroupsPerBlock = kAffine && kBlock > kGroup ? kBlock / kGroup : 1;
  static constexpr int kBlocksPerGroup = kAffine && kGroup > kBlock ? kGroup / kBlock : 1;

  // Value j of each word; a code without scale and bias.
  template <int kIndex>
  [[gnu::always_inline]] static F Decode(I words) {
    if constexpr (kAffine) {
      return V::template Code<kBits>(V::template ShiftRight<kBits * kIndex>(words));
    } else if constexpr (kFormat == WeightFormat::kBf16) {
      return kIndex == 0 ? V::Bf16Low(words) : V::Bf16High(words);
    } else {
      return V::FloatBits(words);
    }
  }

  // The same, a code times 2^(kBits * kIndex); and the factor that undoes it.
  template <int kIndex>
  [[gnu::always_inline]] static F DecodeInPlace(I words) {
    if constexpr (kAffine) {
      return V::template CodeInPlace<kBits, kIndex>(words);
    } else {
      return Decode<kIndex>(words);
    }
  }
  template <int kIndex>
  static constexpr float kInPlaceFactor =
      kAffine ? 1.0f / static_cast<float>(1u << (kAffine ? kBits * kIndex : 0)) : 1.0f;
};

template <typename V, typename W>
struct Matmul {
  using F = typename V::F;
  using I = typename V::I;
  using Micro = MicroKernel<V>;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kColumns = Micro::kColumns;

  // Hardware does not recognise several short streams: without this two rows at a time read 11 GB/s
  // where one reads 28, with it both read 33. 250 ns of latency at 33 GB/s are 8 KiB.
  static constexpr int kPrefetchBytes = 8192;
  // Columns of a decoded tile. With 32 rows it takes 32 KiB, and a panel of activations 12 KiB:
  // both fit a first-level cache of 48 KiB.
  static constexpr int kTileCols = 256;
  static_assert(kTileCols % W::kBlock == 0);

  static const std::byte* Row(const WeightMatrix& w, int row) {
    return w.data + static_cast<size_t>(row) * RowBytes(w);
  }
  static int Groups(const WeightMatrix& w) { return W::kAffine ? w.cols / W::kGroup : 0; }

  // ---- Prepared activations. Few rows: for each, its blocks in decode order, zero-padded, then
  // the sums over its groups. Many rows: packed panels.

  static int PreparedCols(const WeightMatrix& shape) { return RoundUp(shape.cols, W::kBlock); }
  static int PreparedStride(const WeightMatrix& shape) {
    return PreparedCols(shape) + RoundUp(Groups(shape), 16);
  }

  static size_t PreparedFloats(const WeightMatrix& shape, int n) {
    return static_cast<size_t>(n) *
           static_cast<size_t>(n <= V::kFewRows ? PreparedStride(shape) : shape.cols);
  }

  static void PrepareFewRow(const WeightMatrix& shape, const float* x, float* out) {
    F block[W::kPerWord];
    for (int c = 0; c < shape.cols; c += W::kBlock) {
      Unroll<W::kPerWord>([&](auto j) __attribute__((always_inline)) {
        // Columns are a multiple of 16, and so of the vector's width.
        block[j] = c + j * kLanes < shape.cols ? V::Load(x + c + j * kLanes) : V::Zero();
      });
      Unshuffle<V, W::kPerWord, Log2(W::kPerWord)>(block);
      Unroll<W::kPerWord>([&](auto j) __attribute__((always_inline)) {
        V::Store(out + c + j * kLanes, V::Mul(block[j], V::Set(W::template kInPlaceFactor<j>)));
      });
    }
    if constexpr (W::kAffine) {
      float* sums = out + PreparedCols(shape);
      const int groups = Groups(shape);
      for (int g = 0; g < groups; ++g, x += W::kGroup) {
        F sum = V::Load(x);
        for (int i = kLanes; i < W::kGroup; i += kLanes) sum = V::Add(sum, V::Load(x + i));
        sums[g] = V::Sum(sum);
      }
      for (int g = groups; g < RoundUp(groups, 16); ++g) sums[g] = 0;
    }
  }

  static void Prepare(const WeightMatrix& shape, const float* x, ptrdiff_t x_stride, int n,
                      int begin, int end, float* prepared) {
    if (n <= V::kFewRows) {
      for (int i = begin; i < end; ++i) {
        PrepareFewRow(shape, x + i * x_stride,
                      prepared + static_cast<ptrdiff_t>(i) * PreparedStride(shape));
      }
    } else {
      const typename Micro::Panels panels(n);
      for (int i = begin; i < end; ++i) {
        Micro::Pack(panels, i, x + i * x_stride, shape.cols, 1.0f, prepared);
      }
    }
  }

  // ---- Few rows of activations.

  // y[i][r] for i < count <= kCount and r in [row_begin, row_end), kRows streams of weights side by
  // side. Where there are fewer rows of either kind, the last one stands in and is not stored: so
  // an element's sum never depends on its neighbours.
  template <int kRows, int kCount>
  static void FewTile(const WeightMatrix& w, const float* prepared, int count, float* y,
                      ptrdiff_t y_stride, int row_begin, int row_end) {
    // One sum would make each block a chain of dependent multiply-adds.
    constexpr int kChains = kCount == 1 ? 2 : 1;
    using Sums = F[kRows][kCount][kChains];
    constexpr int kStep = W::kBlock * W::kBlocksPerGroup;
    constexpr int kStepBytes = kStep / W::kPerWord * 4;
    constexpr int kWordBytes = kLanes * 4;

    const float* x[kCount];
    for (int i = 0; i < kCount; ++i) {
      x[i] = prepared + (i < count ? i : count - 1) * static_cast<ptrdiff_t>(PreparedStride(w));
    }
    const int groups = Groups(w);

    const auto clear = [](Sums & sums) __attribute__((always_inline)) {
      Unroll<kRows>([&](auto row) __attribute__((always_inline)) {
        Unroll<kCount>([&](auto i) __attribute__((always_inline)) {
          Unroll<kChains>([&](auto j)
                              __attribute__((always_inline)) { sums[row][i][j] = V::Zero(); });
        });
      });
    };
    const auto joined = [](const F(&chains)[kChains]) __attribute__((always_inline)) {
      if constexpr (kChains == 1) {
        return chains[0];
      } else {
        return V::Add(chains[0], chains[1]);
      }
    };
    // Adds the products of one block of words, whose x begin at column c.
    const auto add_block = [&](const I(&words)[kRows], int c, Sums& sums)
        __attribute__((always_inline)) {
      Unroll<W::kPerWord>([&](auto j) __attribute__((always_inline)) {
        F value[kRows];
        Unroll<kRows>([&](auto row) __attribute__((always_inline)) {
          value[row] = W::template DecodeInPlace<j>(words[row]);
        });
        Unroll<kCount>([&](auto i) __attribute__((always_inline)) {
          const F factor = V::Load(x[i] + c + j * kLanes);
          Unroll<kRows>([&](auto row) __attribute__((always_inline)) {
            F& sum = sums[row][i][j % kChains];
            sum = V::Fma(value[row], factor, sum);
          });
        });
      });
    };

    for (int r = row_begin; r < row_end; r += kRows) {
      const std::byte* data[kRows];
      const uint16_t* scales[kRows];
      const uint16_t* biases[kRows];
      for (int i = 0; i < kRows; ++i) {
        const int row = r + i < row_end ? r + i : row_end - 1;
        const size_t group = static_cast<size_t>(row) * static_cast<size_t>(groups);
        data[i] = Row(w, row);
        scales[i] = w.scales + group;
        biases[i] = w.biases + group;
      }
      Sums total;
      clear(total);
      for (int c = 0; c < w.cols; c += kStep) {
        // The last block of a row may be cut short, after a whole number of groups.
        const bool whole = c + kStep <= w.cols;
        I words[kRows];
        const auto load = [&](int offset) __attribute__((always_inline)) {
          Unroll<kRows>([&](auto row) __attribute__((always_inline)) {
            if (whole) {
              words[row] = V::LoadWords(data[row] + offset);
              V::Prefetch(data[row] + offset + kPrefetchBytes);
            } else {
              words[row] = V::LoadWordsPartial(data[row] + offset, (w.cols - c) / W::kPerWord);
            }
          });
        };
        if constexpr (W::kAffine) {
          Sums sums;
          clear(sums);
          Unroll<W::kBlocksPerGroup>([&](auto block) __attribute__((always_inline)) {
            load(block * kWordBytes);
            add_block(words, c + block * W::kBlock, sums);
          });
          Unroll<kRows>([&](auto row) __attribute__((always_inline)) {
            const F scale = whole ? V::template SpreadBf16<W::kGroupsPerBlock>(scales[row])
                                  : V::template SpreadBf16Partial<W::kGroupsPerBlock>(
                                        scales[row], (w.cols - c) / static_cast<int>(W::kGroup));
            Unroll<kCount>([&](auto i) __attribute__((always_inline)) {
              total[row][i][0] = V::Fma(scale, joined(sums[row][i]), total[row][i][0]);
            });
            scales[row] += W::kGroupsPerBlock;
          });
        } else {
          load(0);
          add_block(words, c, total);
        }
        for (const std::byte*& at : data) at += kStepBytes;
      }
      if constexpr (W::kAffine) {
        for (int g = 0; g < groups; g += kLanes) {
          Unroll<kRows>([&](auto row) __attribute__((always_inline)) {
            const F bias = g + kLanes <= groups ? V::LoadBf16(biases[row] + g)
                                                : V::LoadBf16Partial(biases[row] + g, groups - g);
            Unroll<kCount>([&](auto i) __attribute__((always_inline)) {
              const F sums_of_x = V::Load(x[i] + PreparedCols(w) + g);
              total[row][i][0] = V::Fma(bias, sums_of_x, total[row][i][0]);
            });
          });
        }
      }
      Unroll<kRows>([&](auto row) __attribute__((always_inline)) {
        Unroll<kCount>([&](auto i) __attribute__((always_inline)) {
          const float sum = V::Sum(joined(total[row][i]));
          if (r + row < row_end && i < count) y[i * y_stride + r + row] = sum;
        });
      });
    }
  }

  static void Few(const WeightMatrix& w, const float* prepared, int n, float* y, ptrdiff_t y_stride,
                  int row_begin, int row_end) {
    if (n == 1) return FewTile<2, 1>(w, prepared, 1, y, y_stride, row_begin, row_end);
    // Blocks of weight rows stay in the second-level cache while the rows of activations pass.
    const ptrdiff_t stride = PreparedStride(w);
    for (int r = row_begin; r < row_end; r += kColumns) {
      const int end = r + kColumns < row_end ? r + kColumns : row_end;
      for (int i = 0; i < n; i += V::kFewBatch) {
        const int count = n - i < V::kFewBatch ? n - i : V::kFewBatch;
        const float* x = prepared + i * stride;
        float* out = y + i * y_stride;
        if (count == 1) {
          FewTile<2, 1>(w, x, 1, out, y_stride, r, end);
        } else if (count == 2) {
          FewTile<V::kStreams, 2>(w, x, 2, out, y_stride, r, end);
        } else {
          FewTile<V::kStreams, V::kFewBatch>(w, x, count, out, y_stride, r, end);
        }
      }
    }
  }

  // ---- Many rows of activations.

  // The scale and bias of kColumns rows for each group of a tile's columns.
  struct TileScales {
    float scale[kTileCols / 32][kColumns];
    float bias[kTileCols / 32][kColumns];
  };

  static float Widen(uint16_t bf16) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(bf16) << 16);
  }

  // Decodes columns [begin, end) of the `rows` <= kColumns weight rows from `first` into
  // tile[c - begin][row - first]. Rows that do not exist repeat the last one.
  static void DecodeTile(const WeightMatrix& w, int first, int rows, int begin, int end,
                         float* tile) {
    TileScales scales;
    const std::byte* data[kColumns];
    const ptrdiff_t offset = static_cast<ptrdiff_t>(begin) / W::kPerWord * 4;
    for (int i = 0; i < kColumns; ++i) {
      const int row = first + (i < rows ? i : rows - 1);
      data[i] = Row(w, row) + offset;
      if constexpr (W::kAffine) {
        const size_t at = static_cast<size_t>(row) * static_cast<size_t>(Groups(w)) +
                          static_cast<size_t>(begin / W::kGroup);
        for (int g = 0; g < (end - begin) / W::kGroup; ++g) {
          scales.scale[g][i] = Widen(w.scales[at + static_cast<size_t>(g)]);
          scales.bias[g][i] = Widen(w.biases[at + static_cast<size_t>(g)]);
        }
      }
    }
    for (int c = 0; c < end - begin; c += W::kBlock) {
      const int words = (end - begin - c) / W::kPerWord;  // left in the rows
      for (int half = 0; half < 2; ++half) {
        F square[kLanes];
        const std::byte* const* row = data + half * kLanes;
        const ptrdiff_t at = static_cast<ptrdiff_t>(c) / W::kPerWord * 4;
        if (words >= kLanes) {
          Unroll<kLanes>([&](auto i) __attribute__((always_inline)) {
            square[i] = V::FloatBits(V::LoadWords(row[i] + at));
          });
        } else {
          for (int i = 0; i < kLanes; ++i) {
            square[i] = V::FloatBits(V::LoadWordsPartial(row[i] + at, words));
          }
        }
        Transpose<V>(square);
        Unroll<kLanes>([&](auto word) __attribute__((always_inline)) {
          if (word >= words) return;
          const I packed = V::IntBits(square[word]);
          const int col = c + word * W::kPerWord;
          float* out = tile + static_cast<ptrdiff_t>(col) * kColumns + half * kLanes;
          if constexpr (W::kAffine) {
            const int group = col / W::kGroup;
            const F scale = V::Load(scales.scale[group] + half * kLanes);
            const F bias = V::Load(scales.bias[group] + half * kLanes);
            Unroll<W::kPerWord>([&](auto j) __attribute__((always_inline)) {
              V::Store(out + j * kColumns, V::Fma(W::template Decode<j>(packed), scale, bias));
            });
          } else {
            Unroll<W::kPerWord>([&](auto j) __attribute__((always_inline)) {
              V::Store(out + j * kColumns, W::template Decode<j>(packed));
            });
          }
        });
      }
    }
  }

  static void Many(const WeightMatrix& w, const float* prepared, int n, float* y,
                   ptrdiff_t y_stride, int row_begin, int row_end) {
    alignas(64) float tile[kTileCols * kColumns];
    const typename Micro::Panels panels(n);
    for (int r = row_begin; r < row_end; r += kColumns) {
      const int rows = row_end - r < kColumns ? row_end - r : kColumns;
      for (int begin = 0; begin < w.cols; begin += kTileCols) {
        const int end = begin + kTileCols < w.cols ? begin + kTileCols : w.cols;
        DecodeTile(w, r, rows, begin, end, tile);
        for (int p = 0; p < panels.count; ++p) {
          const int first = panels.First(p);
          const int height = panels.Rows(p);
          const float* a = prepared + static_cast<ptrdiff_t>(first) * w.cols +
                           static_cast<ptrdiff_t>(height) * begin;
          float* out = y + first * y_stride + r;
          if (rows == kColumns) {
            Micro::Run(height, end - begin, a, tile, {out, y_stride, kLanes}, begin > 0);
          } else {
            // The same sums by way of a full-width tile.
            float edge[Micro::kMaxRows * kColumns];
            Micro::Run(height, end - begin, a, tile, {edge, kColumns, kLanes}, false);
            for (int i = 0; i < height; ++i) {
              for (int j = 0; j < rows; ++j) {
                float& sum = out[i * y_stride + j];
                sum = begin > 0 ? sum + edge[i * kColumns + j] : edge[i * kColumns + j];
              }
            }
          }
        }
      }
    }
  }

  static void Run(const WeightMatrix& w, const float* prepared, int n, float* y, ptrdiff_t y_stride,
                  int row_begin, int row_end) {
    if (n <= V::kFewRows) {
      Few(w, prepared, n, y, y_stride, row_begin, row_end);
    } else {
      Many(w, prepared, n, y, y_stride, row_begin, row_end);
    }
  }
};

// Calls f.operator()<group> for the group of affine weights.
template <typename V, typename Function>
[[gnu::always_inline]] inline auto WithGroup(const WeightMatrix& w, Function f) {
  switch (w.group) {
    case 32:
      return f.template operator()<32>();
    case 64:
      return f.template operator()<64>();
    default:
      return f.template operator()<128>();
  }
}

// Calls f with the `Weights` type that describes w.
template <typename V, typename Function>
[[gnu::always_inline]] inline auto WithFormat(const WeightMatrix& w, Function f) {
  const auto affine = [&]<WeightFormat kFormat>() __attribute__((always_inline)) {
    return WithGroup<V>(
        w, [&]<int kGroup>()
               __attribute__((always_inline)) { return f(Weights<V, kFormat, kGroup>{}); });
  };
  switch (w.format) {
    case WeightFormat::kAffine2:
      return affine.template operator()<WeightFormat::kAffine2>();
    case WeightFormat::kAffine4:
      return affine.template operator()<WeightFormat::kAffine4>();
    case WeightFormat::kAffine8:
      return affine.template operator()<WeightFormat::kAffine8>();
    case WeightFormat::kBf16:
      return f(Weights<V, WeightFormat::kBf16, 0>{});
    default:
      return f(Weights<V, WeightFormat::kF32, 0>{});
  }
}

template <typename V>
struct MatmulTable {
  static size_t PreparedFloats(const WeightMatrix& shape, int n) {
    return WithFormat<V>(shape,
                         [&]<typename W>(W) { return Matmul<V, W>::PreparedFloats(shape, n); });
  }
  static void Prepare(const WeightMatrix& shape, const float* x, ptrdiff_t x_stride, int n,
                      int begin, int end, float* prepared) {
    WithFormat<V>(shape, [&]<typename W>(W) {
      Matmul<V, W>::Prepare(shape, x, x_stride, n, begin, end, prepared);
    });
  }
  static void Run(const WeightMatrix& w, const float* prepared, int n, float* y, ptrdiff_t y_stride,
                  int row_begin, int row_end) {
    WithFormat<V>(w, [&]<typename W>(W) {
      Matmul<V, W>::Run(w, prepared, n, y, y_stride, row_begin, row_end);
    });
  }

  // Not worth vectors: one row per token, and the head reads whole matrices by other means.
  static void DequantizeRow(const WeightMatrix& w, int row, float factor, float* out) {
    WithFormat<V>(w, [&]<typename W>(W) {
      const std::byte* words = w.data + static_cast<size_t>(row) * RowBytes(w);
      const size_t groups = W::kAffine ? static_cast<size_t>(row) *
                                             static_cast<size_t>(w.cols / (W::kGroup | !W::kAffine))
                                       : 0;
      for (int c = 0; c < w.cols; c += W::kPerWord, words += 4) {
        uint32_t word;
        __builtin_memcpy(&word, words, sizeof word);
        for (int j = 0; j < W::kPerWord; ++j) {
          float value;
          if constexpr (W::kAffine) {
            const size_t group = groups + static_cast<size_t>((c + j) / W::kGroup);
            const auto code =
                static_cast<float>((word >> (W::kBits * j)) & ((1u << W::kBits) - 1u));
            value = __builtin_fmaf(Matmul<V, W>::Widen(w.scales[group]), code,
                                   Matmul<V, W>::Widen(w.biases[group]));
          } else if constexpr (W::kBits == 16) {
            value = __builtin_bit_cast(float, j == 0 ? word << 16 : word & 0xffff0000u);
          } else {
            value = __builtin_bit_cast(float, word);
          }
          out[c + j] = value * factor;
        }
      }
    });
  }

  static void Fill(Kernels& table) {
    table.matmul_row_tile = MicroKernel<V>::kColumns;
    table.matmul_prepared_floats = PreparedFloats;
    table.matmul_prepare = Prepare;
    table.matmul = Run;
    table.dequantize_row = DequantizeRow;
  }
};

}  // namespace mference::cpu::simd
