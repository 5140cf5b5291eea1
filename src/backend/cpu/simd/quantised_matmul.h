// Weight matrices times activations rounded to 8 bits, for any instruction set.
//
// A block of kBlock (32 or 64) activations x becomes f q + z with integers q in [-128, 127]: z and
// f lay its smallest and largest value on -128 and 127. Products with codes are then exact
// integers. Over a group of the weights, with scale s and bias b, and its blocks j,
//   sum of (s code + b) x = s * sum over j of (f_j * sum of (code q) + z_j * sum of code)
//                         + b * sum of x.
//
// 2- and 4-bit codes are decoded as in matmul.h, a tile of kColumns weight rows at a time, but to
// bytes: a vector of words, shifted and masked, gives in each word the 4 codes that are kPerByte
// apart, and activations are brought into that order once. The tile [word][kColumns] stays in the
// first-level cache while all panels of activations pass over it.
#pragma once

#include "backend/cpu/simd/matmul.h"

namespace mference::cpu::simd {

// The register tile: kRows rows of activations times two vectors of weight rows, in steps of
// kBlocks blocks that share a scale and bias of the weights.
template <typename V, int kBlocks, int kBlock>
struct QuantisedTile {
  using F = typename V::F;
  using I = typename V::I;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kColumns = 2 * kLanes;
  static constexpr int kWordBytes = kLanes * 4;
  static constexpr int kMaxRows = V::kQuantisedRows;
  static constexpr int kStepCols = kBlocks * kBlock;

  // What belongs to a step beside codes, in this order: for kColumns weight rows their scale, bias,
  // and sums of the codes of each block;
  static constexpr int kScalesPerStep = (2 + kBlocks) * kColumns;
  // for each row of activations f of each block, z of each block, and the sum of x.
  static constexpr int kFactors = 2 * kBlocks + 1;

  struct Operands {
    int steps;
    const std::byte* activations;  // [step][block][row][kBlock]
    const float* factors;          // [step][kFactors][row]
    const std::byte* weights;      // [step][block][word][kColumns][4]
    const float* scales;           // [step][kScalesPerStep]
  };

  // y[i * stride + column] (+)= the products of all steps, in ascending order.
  static void Run(int rows, const Operands& operands, float* y, ptrdiff_t stride, bool add) {
    kTiles[rows - 1](operands, y, stride, add);
  }

 private:
  using Tile = void (*)(const Operands& operands, float* y, ptrdiff_t stride, bool add);

  // sum[i][v]: row i of a block of activations, times the weight rows of vector v. V may know a
  // faster way.
  template <int kRows>
  [[gnu::always_inline]] static void MultiplyBlock(const std::byte* q, const std::byte* w,
                                                   I (&sum)[kRows][2]) {
    if constexpr (requires { V::template MultiplyBlock<kRows, kBlock>(q, w, sum); }) {
      V::template MultiplyBlock<kRows, kBlock>(q, w, sum);
    } else {
      Unroll<kRows>([&](auto i) __attribute__((always_inline)) {
        sum[i][0] = V::ZeroWords();
        sum[i][1] = V::ZeroWords();
      });
      for (int word = 0; word < kBlock / 4; word += 2, w += 4 * kWordBytes) {
        const I even[2] = {V::LoadWords(w), V::LoadWords(w + kWordBytes)};
        const I odd[2] = {V::LoadWords(w + 2 * kWordBytes), V::LoadWords(w + 3 * kWordBytes)};
        Unroll<kRows>([&](auto i) __attribute__((always_inline)) {
          const I x = V::SetWord(q + i * kBlock + word * 4);
          const I next_x = V::SetWord(q + i * kBlock + word * 4 + 4);
          sum[i][0] = V::AddDots(sum[i][0], even[0], x, odd[0], next_x);
          sum[i][1] = V::AddDots(sum[i][1], even[1], x, odd[1], next_x);
        });
      }
    }
  }

  template <int kRows>
  static void RunTile(const Operands& operands, float* y, ptrdiff_t stride, bool add) {
    if (!add) {
      Unroll<kRows>([&](auto i) __attribute__((always_inline)) {
        V::Store(y + i * stride, V::Zero());
        V::Store(y + i * stride + kLanes, V::Zero());
      });
    }
    const std::byte* q = operands.activations;
    const std::byte* w = operands.weights;
    const float* factors = operands.factors;
    const float* scales = operands.scales;
    for (int step = 0; step < operands.steps; ++step) {
      F group[kRows][2];
      Unroll<kBlocks>([&](auto block) __attribute__((always_inline)) {
        I sum[kRows][2];
        MultiplyBlock<kRows>(q, w, sum);
        q += kRows * kBlock;
        w += kBlock * kColumns;
        Unroll<kRows>([&](auto i) __attribute__((always_inline)) {
          const F f = V::Set(factors[block * kRows + i]);
          const F z = V::Set(factors[(kBlocks + block) * kRows + i]);
          Unroll<2>([&](auto v) __attribute__((always_inline)) {
            const F dots = V::FloatOfWords(sum[i][v]);
            const F codes = V::Load(scales + (2 + block) * kColumns + v * kLanes);
            const F product = block == 0 ? V::Mul(dots, f) : V::Fma(dots, f, group[i][v]);
            group[i][v] = V::Fma(codes, z, product);
          });
        });
      });
      Unroll<kRows>([&](auto i) __attribute__((always_inline)) {
        const F sum_of_x = V::Set(factors[2 * kBlocks * kRows + i]);
        Unroll<2>([&](auto v) __attribute__((always_inline)) {
          float* const out = y + i * stride + v * kLanes;
          const F scale = V::Load(scales + v * kLanes);
          const F bias = V::Load(scales + kColumns + v * kLanes);
          V::Store(out, V::Fma(bias, sum_of_x, V::Fma(scale, group[i][v], V::Load(out))));
        });
      });
      factors += kFactors * kRows;
      scales += kScalesPerStep;
    }
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

template <typename V, typename W, int kBlock>
struct QuantisedMatmul {
  using F = typename V::F;
  using I = typename V::I;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kPerByte = W::kPerWord / 4;
  static constexpr int kBlocks = W::kGroup == kBlock ? 1 : 2;
  static_assert(W::kGroup % (kBlocks * kBlock) == 0);
  using Tile = QuantisedTile<V, kBlocks, kBlock>;
  static constexpr int kColumns = Tile::kColumns;
  using Rows = Panels<Tile::kMaxRows>;

  // Columns of a decoded tile: with 32 rows it takes 32 KiB, a panel of activations 6 KiB.
  static constexpr int kTileCols = 1024;
  static constexpr int kTileSteps = kTileCols / Tile::kStepCols;
  static_assert(kTileCols % W::kBlock == 0 && kTileCols % W::kGroup == 0);

  static int Steps(const WeightMatrix& shape) { return shape.cols / Tile::kStepCols; }
  static int Groups(const WeightMatrix& shape) { return shape.cols / W::kGroup; }

  // ---- Prepared activations: the codes of all panels, then their factors.

  static size_t CodeBytes(const WeightMatrix& shape, int n) {
    return static_cast<size_t>(n) * static_cast<size_t>(shape.cols);
  }
  static size_t PreparedBytes(const WeightMatrix& shape, int n) {
    return CodeBytes(shape, n) + static_cast<size_t>(n) * static_cast<size_t>(Steps(shape)) *
                                     Tile::kFactors * sizeof(float);
  }
  // Offsets of a step of the panel that begins with row `first` and has `rows` rows, in bytes.
  static ptrdiff_t CodesAt(const WeightMatrix& shape, int first, int rows, int step) {
    return ptrdiff_t{first} * shape.cols + ptrdiff_t{rows} * step * Tile::kStepCols;
  }
  static ptrdiff_t FactorsAt(const WeightMatrix& shape, int n, int first, int rows, int step) {
    const ptrdiff_t steps = ptrdiff_t{first} * Steps(shape) + ptrdiff_t{rows} * step;
    return static_cast<ptrdiff_t>(CodeBytes(shape, n)) +
           steps * Tile::kFactors * static_cast<ptrdiff_t>(sizeof(float));
  }

  // f, z and the sum of x of up to kLanes blocks.
  struct BlockFactors {
    alignas(64) float f[kLanes];
    alignas(64) float z[kLanes];
    alignas(64) float sum_of_x[kLanes];
  };

  // Element i of the result combines all elements of x[i]: each stage halves the vectors.
  template <typename Combine>
  [[gnu::always_inline]] static F ReduceEach(F (&x)[kLanes], Combine combine) {
    Unroll<Log2(kLanes)>([&](auto stage) __attribute__((always_inline)) {
      Unroll<(kLanes >> (stage + 1))>([&](auto i) __attribute__((always_inline)) {
        F even;
        F odd;
        V::Deinterleave(x[2 * i], x[2 * i + 1], even, odd);
        x[i] = combine(even, odd);
      });
    });
    return x[0];
  }

  // Rounds `count` <= kLanes consecutive blocks, each to codes in the order that decoded weights
  // have. Block i goes to codes + i * code_stride.
  static void RoundBlocks(const float* x, int count, std::byte* codes, ptrdiff_t code_stride,
                          BlockFactors& factors) {
    F partial[kLanes];
    const auto each = [&](auto block) __attribute__((always_inline)) {
      for (int i = 0; i < kLanes; ++i) {
        partial[i] = i < count ? block(x + i * kBlock) : V::Zero();
      }
    };
    each([](const float* from) __attribute__((always_inline)) {
      F largest = V::Load(from);
      for (int i = kLanes; i < kBlock; i += kLanes) {
        largest = V::Max(largest, V::Load(from + i));
      }
      return largest;
    });
    const F high = ReduceEach(partial, V::Max);
    each([](const float* from) __attribute__((always_inline)) {
      F smallest = V::Load(from);
      for (int i = kLanes; i < kBlock; i += kLanes) {
        smallest = V::Min(smallest, V::Load(from + i));
      }
      return smallest;
    });
    const F low = ReduceEach(partial, V::Min);
    const F range = V::Sub(high, low);
    const F f = V::Div(range, V::Set(255.0f));
    const F z = V::Add(low, V::Mul(V::Set(128.0f), f));
    V::Store(factors.f, f);
    V::Store(factors.z, z);
    alignas(64) float lows[kLanes];
    alignas(64) float ranges[kLanes];
    V::Store(lows, low);
    V::Store(ranges, range);
    const F middle = V::Set(128.0f);
    for (int block = 0; block < kLanes; ++block) {
      partial[block] = V::Zero();
      if (block >= count) continue;
      const float* const from = x + block * kBlock;
      const F first = V::Set(lows[block]);
      const F per_unit = V::Set(ranges[block] > 0 ? 255.0f / ranges[block] : 0.0f);
      std::byte* const out = codes + block * code_stride;
      for (int i = 0; i < kBlock; i += 16) {
        F code[16 / kLanes];
        Unroll<16 / kLanes>([&](auto j) __attribute__((always_inline)) {
          const F offset = V::Sub(V::Load(from + i + j * kLanes), first);
          code[j] = V::Sub(V::Round(V::Mul(offset, per_unit)), middle);
          partial[block] = V::Add(partial[block], code[j]);
        });
        V::template StoreSignedBytes<kPerByte>(out + i, code);
      }
    }
    const F sum_of_z = V::Mul(V::Set(static_cast<float>(kBlock)), z);
    V::Store(factors.sum_of_x, V::Fma(f, ReduceEach(partial, V::Add), sum_of_z));
  }

  static void Prepare(const WeightMatrix& shape, const float* x, ptrdiff_t x_stride, int n,
                      int begin, int end, std::byte* prepared) {
    const Rows panels(n);
    const int blocks = shape.cols / kBlock;
    for (int row = begin; row < end; ++row) {
      const int panel = panels.PanelOf(row);
      const int first = panels.First(panel);
      const int rows = panels.Rows(panel);
      const int i = row - first;
      std::byte* const codes = prepared + CodesAt(shape, first, rows, 0) + i * kBlock;
      void* const factors_at = prepared + FactorsAt(shape, n, first, rows, 0);
      auto* factors = static_cast<float*>(factors_at) + i;
      for (int block = 0; block < blocks; block += kLanes) {
        BlockFactors rounded;
        const int count = blocks - block < kLanes ? blocks - block : kLanes;
        RoundBlocks(x + row * x_stride + block * kBlock, count,
                    codes + ptrdiff_t{block} * rows * kBlock, rows * kBlock, rounded);
        for (int j = 0; j < count; j += kBlocks, factors += Tile::kFactors * rows) {
          float sum = 0;
          for (int k = 0; k < kBlocks; ++k) {
            factors[k * rows] = rounded.f[j + k];
            factors[(kBlocks + k) * rows] = rounded.z[j + k];
            sum += rounded.sum_of_x[j + k];
          }
          factors[2 * kBlocks * rows] = sum;
        }
      }
    }
  }

  static void Place(const WeightMatrix& shape, const std::byte* row, int n, int i,
                    std::byte* prepared) {
    const Rows panels(n);
    const int panel = panels.PanelOf(i);
    const int first = panels.First(panel);
    const ptrdiff_t rows = panels.Rows(panel);
    std::byte* codes = prepared + CodesAt(shape, first, static_cast<int>(rows), 0) +
                       (i - first) * ptrdiff_t{kBlock};
    const std::byte* from = row;
    for (int block = 0; block < shape.cols / kBlock; ++block) {
      __builtin_memcpy(codes, from, kBlock);
      codes += rows * kBlock;
      from += kBlock;
    }
    const void* const factors_from = row + FactorsAt(shape, 1, 0, 1, 0);
    const auto* const from_factors = static_cast<const float*>(factors_from);
    void* const factors_at = prepared + FactorsAt(shape, n, first, static_cast<int>(rows), 0);
    float* const factors = static_cast<float*>(factors_at) + (i - first);
    for (int k = 0; k < Steps(shape) * Tile::kFactors; ++k) factors[k * rows] = from_factors[k];
  }

  // ---- Decoded weights.

  struct DecodedTile {
    alignas(64) std::byte codes[kTileCols * kColumns];
    alignas(64) float scales[kTileSteps][2 + kBlocks][kColumns];
  };

  // Columns [begin, end) of the `rows` <= kColumns weight rows from `first`. Rows that do not exist
  // repeat the last one.
  static void Decode(const WeightMatrix& w, int first, int rows, int begin, int end,
                     DecodedTile& tile) {
    for (int half = 0; half < kColumns; half += kLanes) {
      const std::byte* data[kLanes];
      size_t group[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const int row = first + (half + i < rows ? half + i : rows - 1);
        data[i] = Matmul<V, W>::Row(w, row) + ptrdiff_t{begin} / W::kPerWord * 4;
        group[i] = static_cast<size_t>(row) * static_cast<size_t>(Groups(w)) +
                   static_cast<size_t>(begin / W::kGroup);
      }
      DecodeCodes(data, (end - begin) / W::kPerWord, tile.codes + half * 4);
      const int groups = (end - begin) / W::kGroup;
      TransposeScales(w.scales, group, groups, &tile.scales[0][0][half]);
      TransposeScales(w.biases, group, groups, &tile.scales[0][1][half]);
      SumCodes((end - begin) / Tile::kStepCols, half, tile);
    }
  }

  static void DecodeCodes(const std::byte* const (&data)[kLanes], int words, std::byte* out) {
    constexpr int kMask = ((1 << W::kBits) - 1) * 0x01010101;
    for (int word = 0; word < words; word += kLanes) {
      F square[kLanes];
      if (word + kLanes <= words) {
        Unroll<kLanes>([&](auto i) __attribute__((always_inline)) {
          square[i] = V::FloatBits(V::LoadWords(data[i] + word * 4));
        });
      } else {
        for (int i = 0; i < kLanes; ++i) {
          square[i] = V::FloatBits(V::LoadWordsPartial(data[i] + word * 4, words - word));
        }
      }
      Transpose<V>(square);
      Unroll<kLanes>([&](auto i) __attribute__((always_inline)) {
        if (word + i >= words) return;
        const I packed = V::IntBits(square[i]);
        std::byte* const to = out + ptrdiff_t{word + i} * kPerByte * kColumns * 4;
        Unroll<kPerByte>([&](auto j) __attribute__((always_inline)) {
          V::StoreWords(to + j * kColumns * 4,
                        V::And(V::template ShiftRight<W::kBits * j>(packed), kMask));
        });
      });
    }
  }

  static void SumCodes(int steps, int half, DecodedTile& tile) {
    const int32_t bytes_of_one = 0x01010101;
    const I ones =
        V::SetWord(static_cast<const std::byte*>(static_cast<const void*>(&bytes_of_one)));
    const std::byte* codes = tile.codes + half * 4;
    for (int step = 0; step < steps; ++step) {
      for (int block = 0; block < kBlocks; ++block) {
        I sum = V::ZeroWords();
        for (int word = 0; word < kBlock / 4; word += 2, codes += 2 * kColumns * 4) {
          sum =
              V::AddDots(sum, V::LoadWords(codes), ones, V::LoadWords(codes + kColumns * 4), ones);
        }
        V::Store(&tile.scales[step][2 + block][half], V::FloatOfWords(sum));
      }
    }
  }

  // BF16 values of kLanes rows, from `at` on in each, to the steps' kScalesPerStep floats.
  static void TransposeScales(const uint16_t* values, const size_t (&at)[kLanes], int groups,
                              float* out) {
    constexpr int kRepeat = W::kGroup / Tile::kStepCols;
    for (int g = 0; g < groups; g += kLanes) {
      F square[kLanes];
      if (g + kLanes <= groups) {
        Unroll<kLanes>([&](auto i) __attribute__((always_inline)) {
          square[i] = V::LoadBf16(values + at[i] + g);
        });
      } else {
        for (int i = 0; i < kLanes; ++i) {
          square[i] = V::LoadBf16Partial(values + at[i] + g, groups - g);
        }
      }
      Transpose<V>(square);
      Unroll<kLanes>([&](auto i) __attribute__((always_inline)) {
        if (g + i >= groups) return;
        for (int r = 0; r < kRepeat; ++r) {
          V::Store(out + ((g + i) * kRepeat + r) * Tile::kScalesPerStep, square[i]);
        }
      });
    }
  }

  // ---- The product.

  static void Run(const WeightMatrix& w, const std::byte* prepared, int n, float* y,
                  ptrdiff_t y_stride, int row_begin, int row_end) {
    DecodedTile tile;
    const Rows panels(n);
    for (int r = row_begin; r < row_end; r += kColumns) {
      const int rows = row_end - r < kColumns ? row_end - r : kColumns;
      for (int begin = 0; begin < w.cols; begin += kTileCols) {
        const int end = begin + kTileCols < w.cols ? begin + kTileCols : w.cols;
        Decode(w, r, rows, begin, end, tile);
        Prefetcher next(w, r, row_end, end, panels.count);
        for (int p = 0; p < panels.count; ++p) {
          const int first = panels.First(p);
          const int height = panels.Rows(p);
          const int step = begin / Tile::kStepCols;
          const void* const factors = prepared + FactorsAt(w, n, first, height, step);
          const typename Tile::Operands operands{
              .steps = (end - begin) / Tile::kStepCols,
              .activations = prepared + CodesAt(w, first, height, step),
              .factors = static_cast<const float*>(factors),
              .weights = tile.codes,
              .scales = tile.scales[0][0]};
          next.Step();
          float* const out = y + first * y_stride + r;
          if (rows == kColumns) {
            Tile::Run(height, operands, out, y_stride, begin > 0);
          } else {
            // The same sums by way of a full-width tile.
            float edge[Tile::kMaxRows * kColumns];
            for (int i = 0; i < height && begin > 0; ++i) {
              for (int j = 0; j < rows; ++j) edge[i * kColumns + j] = out[i * y_stride + j];
            }
            Tile::Run(height, operands, edge, kColumns, begin > 0);
            for (int i = 0; i < height; ++i) {
              for (int j = 0; j < rows; ++j) out[i * y_stride + j] = edge[i * kColumns + j];
            }
          }
        }
      }
    }
  }

  // Asks for what the next tile is decoded from while panels pass over this one, a share of it
  // before each: kColumns short streams at once are more than hardware recognises.
  class Prefetcher {
   public:
    // The tile after the one of weight rows from `row` and columns up to `end`, in `steps` shares.
    Prefetcher(const WeightMatrix& w, int row, int row_end, int end, int steps) {
      const bool next_rows = end == w.cols;
      const int begin = next_rows ? 0 : end;
      row += next_rows ? kColumns : 0;
      const int rows = row_end - row < kColumns ? row_end - row : kColumns;
      if (rows <= 0) return;
      const int cols = w.cols - begin < kTileCols ? w.cols - begin : kTileCols;
      Add(Matmul<V, W>::Row(w, row) + ptrdiff_t{begin} / W::kPerWord * 4, rows,
          static_cast<ptrdiff_t>(RowBytes(w)), ptrdiff_t{cols} / W::kPerWord * 4);
      if (next_rows) {
        const ptrdiff_t groups = Groups(w);
        Add(w.scales + row * groups, 1, 0, rows * groups * 2);
        Add(w.biases + row * groups, 1, 0, rows * groups * 2);
      }
      lines_per_step_ = (lines_ + steps - 1) / steps;
    }

    [[gnu::always_inline]] void Step() {
      for (int i = 0; i < lines_per_step_ && area_ < areas_; ++i) {
        Area& area = area_list_[area_];
        V::Prefetch(area.row + ptrdiff_t{line_} * kLine);
        if (++line_ < area.lines) continue;
        line_ = 0;
        area.row += area.stride;
        if (--area.rows == 0) ++area_;
      }
    }

   private:
    static constexpr int kLine = 64;
    struct Area {
      const char* row;
      ptrdiff_t stride;
      int rows;
      int lines;  // of a row
    };

    void Add(const void* at, int rows, ptrdiff_t stride, ptrdiff_t row_bytes) {
      const int lines = static_cast<int>((row_bytes + kLine - 1) / kLine);
      area_list_[areas_++] = {static_cast<const char*>(at), stride, rows, lines};
      lines_ += rows * lines;
    }

    Area area_list_[3];
    int areas_ = 0;
    int lines_ = 0;
    int lines_per_step_ = 0;
    int area_ = 0;
    int line_ = 0;
  };
};

template <typename V>
struct QuantisedMatmulTable {
  // Calls f with the `QuantisedMatmul` type for w, of those that are supported.
  template <typename Function>
  static auto WithWeights(const WeightMatrix& w, Function f) {
    return WithGroup<V>(w, [&]<int kGroup>() {
      const auto with = [&]<typename W>(W) {
        if constexpr (kGroup >= kCoarseBlock) {
          if (ActivationBlock(w) == kCoarseBlock) return f(QuantisedMatmul<V, W, kCoarseBlock>{});
        }
        return f(QuantisedMatmul<V, W, kFineBlock>{});
      };
      return w.format == WeightFormat::kAffine2
                 ? with(Weights<V, WeightFormat::kAffine2, kGroup>{})
                 : with(Weights<V, WeightFormat::kAffine4, kGroup>{});
    });
  }

  static size_t PreparedBytes(const WeightMatrix& shape, int n) {
    return WithWeights(shape, [&]<typename M>(M) { return M::PreparedBytes(shape, n); });
  }
  static void Prepare(const WeightMatrix& shape, const float* x, ptrdiff_t x_stride, int n,
                      int begin, int end, std::byte* prepared) {
    WithWeights(shape,
                [&]<typename M>(M) { M::Prepare(shape, x, x_stride, n, begin, end, prepared); });
  }
  static void Place(const WeightMatrix& shape, const std::byte* row, int n, int i,
                    std::byte* prepared) {
    WithWeights(shape, [&]<typename M>(M) { M::Place(shape, row, n, i, prepared); });
  }
  static void Run(const WeightMatrix& w, const std::byte* prepared, int n, float* y,
                  ptrdiff_t y_stride, int row_begin, int row_end) {
    WithWeights(w, [&]<typename M>(M) { M::Run(w, prepared, n, y, y_stride, row_begin, row_end); });
  }

  static void Fill(Kernels& table) {
    table.quantised_prepared_bytes = PreparedBytes;
    table.quantised_prepare = Prepare;
    table.quantised_place = Place;
    table.quantised_matmul = Run;
  }
};

}  // namespace mference::cpu::simd
