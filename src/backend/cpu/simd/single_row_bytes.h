// The same product as in single_row.h for instruction sets that multiply four unsigned bytes with
// four signed ones and add them up, in one instruction.
//
// A 16-bit activation is split in two signed bytes, q = 256 high + low, and codes are unpacked to
// bytes, which takes fewer instructions than unpacking them to 16-bit halves:
//   sum of code q = 256 * sum of (code high) + sum of (code low),
// the same integer. A vector of bytes, shifted by j codes and masked, holds in byte p the code
// p * kPerByte + j; activations are brought into that order once.
//
// Scales of kLanes groups are widened and multiplied with the activations' factors at once, and
// spread over the lanes of their codes by a permute.
//
// Where a vector is a cache line and a row has an odd number of half vectors, every second row
// begins in the middle of a line. It is read from half a vector earlier, and the others to half a
// vector later: no vector lies across two lines, and what belongs to a neighbour, finite in any
// model, meets activations of zero. From memory 60 to 66 GB/s in an expert's 2,816 x 704 matrix.
#pragma once

#include "backend/cpu/simd/matmul.h"

namespace mference::cpu::simd {

template <typename V, typename W>
struct SingleRowBytes {
  using F = typename V::F;
  using I = typename V::I;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kPerByte = 8 / W::kBits;
  static constexpr int kVectorBytes = kLanes * 4;
  // A step has whole groups and whole vectors of codes; its sums share a conversion.
  static constexpr int kStep = W::kBlock * W::kBlocksPerGroup;
  // One row has three long streams. Of 2, 4, 6 and 8 KiB the best with fast memory, and with slow
  // as good as less; 8 KiB cost 3 % there.
  static constexpr int kPrefetchBytes = 6144;
  // Scales and biases are asked for as far ahead as codes.
  static constexpr int kPrefetchGroups = kPrefetchBytes * 8 / W::kBits / W::kGroup;
  // A chunk has kLanes groups.
  static constexpr int kChunkSteps = kLanes / W::kGroupsPerBlock;

  static int Blocks(const WeightMatrix& shape) { return (shape.cols + W::kBlock - 1) / W::kBlock; }
  static int Groups(const WeightMatrix& shape) { return shape.cols / W::kGroup; }
  static int PaddedGroups(const WeightMatrix& shape) { return RoundUp(Groups(shape), kLanes); }
  static int PaddedBlocks(const WeightMatrix& shape) {
    return RoundUp(Blocks(shape), W::kBlocksPerGroup);
  }

  // How much earlier or later such rows are read, in columns, which is whole groups.
  static constexpr int kShift = W::kBlock / 2;
  static constexpr int kShiftGroups = kShift / W::kGroup;
  static bool IsShifted(const WeightMatrix& shape) {
    return kVectorBytes == kLine && kShiftGroups > 0 && shape.cols % W::kBlock == kShift;
  }
  // What rows and activations are laid out for.
  static WeightMatrix LayoutOf(const WeightMatrix& shape) {
    WeightMatrix layout = shape;
    if (IsShifted(shape)) layout.cols += kShift;
    return layout;
  }

  // Prepared: for each block and j of the layout the high bytes and the low bytes, zeros after the
  // last column; f of each group; f * sum of q of each group; both padded with zeros. For shifted
  // shapes the same again, all columns kShift later and zeros before the first.
  static ptrdiff_t FactorsAt(const WeightMatrix& shape) {
    return ptrdiff_t{PaddedBlocks(shape)} * W::kBlock * 2;
  }
  static ptrdiff_t SumsAt(const WeightMatrix& shape) {
    return FactorsAt(shape) + ptrdiff_t{PaddedGroups(shape)} * 4;
  }
  static ptrdiff_t LayoutBytes(const WeightMatrix& layout) {
    return SumsAt(layout) + ptrdiff_t{PaddedGroups(layout)} * 4;
  }
  static size_t PreparedBytes(const WeightMatrix& shape) {
    return static_cast<size_t>(LayoutBytes(LayoutOf(shape))) * (IsShifted(shape) ? 2 : 1);
  }

  static void Prepare(const WeightMatrix& shape, const float* x, std::byte* prepared) {
    const WeightMatrix layout = LayoutOf(shape);
    std::byte* const shifted = IsShifted(shape) ? prepared + LayoutBytes(layout) : nullptr;
    const int groups = Groups(shape);
    Clear(layout, prepared);
    if (shifted != nullptr) Clear(layout, shifted);
    for (int g = 0; g < groups; ++g) {
      const int first = g * W::kGroup;
      F largest = V::Zero();
      for (int i = 0; i < W::kGroup; i += kLanes) {
        largest = V::Max(largest, V::Abs(V::Load(x + first + i)));
      }
      const float top = V::Largest(largest);
      const F inverse = V::Set(top > 0 ? kSingleRowTop / top : 0.0f);
      F sum = V::Zero();
      for (int i = 0; i < W::kGroup; i += kPiece) {
        F high[kPiece / kLanes];
        F low[kPiece / kLanes];
        Unroll<kPiece / kLanes>([&](auto j) __attribute__((always_inline)) {
          const F q = V::Round(V::Mul(V::Load(x + first + i + j * kLanes), inverse));
          sum = V::Add(sum, q);
          // The quarter turns halves upwards: low is in [-128, 127].
          high[j] = V::Round(V::Mul(V::Add(q, V::Set(0.25f)), V::Set(1.0f / 256)));
          low[j] = V::Fma(high[j], V::Set(-256.0f), q);
        });
        Scatter(high, first + i, 0, prepared);
        Scatter(low, first + i, kVectorBytes, prepared);
        if (shifted == nullptr) continue;
        Scatter(high, first + i + kShift, 0, shifted);
        Scatter(low, first + i + kShift, kVectorBytes, shifted);
      }
      const float factor = top / kSingleRowTop;
      const float weighted = factor * V::Sum(sum);
      Floats(prepared + FactorsAt(layout))[g] = factor;
      Floats(prepared + SumsAt(layout))[g] = weighted;
      if (shifted == nullptr) continue;
      Floats(shifted + FactorsAt(layout))[g + kShiftGroups] = factor;
      Floats(shifted + SumsAt(layout))[g + kShiftGroups] = weighted;
    }
  }

  static void Run(const WeightMatrix& w, const std::byte* prepared, float* y, int row_begin,
                  int row_end) {
    AskForBeginning(w, row_begin, row_end);
    const int cols = LayoutOf(w).cols;
    const bool some_row_ends_early = IsShifted(w) && w.rows % 2 != 0;
    if (cols % kStep != 0 || some_row_ends_early ||
        !RunNarrow(cols / kStep, w, prepared, y, row_begin, row_end)) {
      RunWide(w, prepared, y, row_begin, row_end);
    }
  }

 private:
  static constexpr ptrdiff_t kLine = 64;

  static float* Floats(std::byte* at) { return static_cast<float*>(static_cast<void*>(at)); }
  static const float* Floats(const std::byte* at) {
    return static_cast<const float*>(static_cast<const void*>(at));
  }

  // What even rows meet, and odd ones: the same unless they are shifted.
  struct Side {
    const std::byte* x;
    const float* factors;
    const float* sums;
    int earlier_bytes;
    int earlier_groups;
  };
  struct Sides {
    Side of[2];
  };
  static Sides SidesOf(const WeightMatrix& w, const WeightMatrix& layout,
                       const std::byte* prepared) {
    const auto side = [&](bool earlier) {
      const std::byte* const x = prepared + (earlier ? LayoutBytes(layout) : 0);
      return Side{.x = x,
                  .factors = Floats(x + FactorsAt(layout)),
                  .sums = Floats(x + SumsAt(layout)),
                  .earlier_bytes = earlier ? kVectorBytes / 2 : 0,
                  .earlier_groups = earlier ? kShiftGroups : 0};
    };
    return {{side(false), side(IsShifted(w))}};
  }

  // Adds step `step` of a chunk to `total`; `data` and `x` run on.
  [[gnu::always_inline]] static void AddStep(const std::byte*& data, const std::byte*& x, F scale,
                                             int step, F& total) {
    I high = V::ZeroWords();
    I low = V::ZeroWords();
    Unroll<W::kBlocksPerGroup>([&](auto) __attribute__((always_inline)) {
      V::Prefetch(data + kPrefetchBytes);
      AddBlock(V::LoadWords(data), x, high, low);
      data += kVectorBytes;
      x += kPerByte * 2 * kVectorBytes;
    });
    total = V::Fma(Join(high, low), V::Permute(scale, V::LoadWords(Lanes(step))), total);
  }

  // Rows of one chunk at most: with the number of steps known when compiled they take two thirds of
  // the time. False when there are more.
  static bool RunNarrow(int steps, const WeightMatrix& w, const std::byte* prepared, float* y,
                        int row_begin, int row_end) {
    bool done = false;
    Unroll<kChunkSteps>([&](auto index) {
      constexpr int kSteps = index + 1;
      if (steps != kSteps) return;
      RunNarrow<kSteps>(w, prepared, y, row_begin, row_end);
      done = true;
    });
    return done;
  }
  template <int kSteps>
  [[gnu::noinline]] static void RunNarrow(const WeightMatrix& w, const std::byte* prepared,
                                          float* y, int row_begin, int row_end) {
    const WeightMatrix layout = LayoutOf(w);
    const Sides sides = SidesOf(w, layout, prepared);
    const int groups = Groups(layout);
    const auto row_bytes = static_cast<ptrdiff_t>(RowBytes(w));
    const int row_groups = Groups(w);
    const std::byte* row_data = Matmul<V, W>::Row(w, row_begin);
    const uint16_t* row_scales = w.scales + ptrdiff_t{row_begin} * row_groups;
    const uint16_t* row_biases = w.biases + ptrdiff_t{row_begin} * row_groups;
    for (int row = row_begin; row < row_end; ++row) {
      const Side& side = sides.of[row & 1];
      const std::byte* data = row_data - side.earlier_bytes;
      const uint16_t* const scales = row_scales - side.earlier_groups;
      const uint16_t* const biases = row_biases - side.earlier_groups;
      const std::byte* x = side.x;
      V::Prefetch(scales + kPrefetchGroups);
      V::Prefetch(biases + kPrefetchGroups);
      const F scale = V::Mul(V::LoadBf16Partial(scales, groups), V::Load(side.factors));
      F total = V::Mul(V::LoadBf16Partial(biases, groups), V::Load(side.sums));
      Unroll<kSteps>([&](auto step)
                         __attribute__((always_inline)) { AddStep(data, x, scale, step, total); });
      row_data += row_bytes;
      row_scales += row_groups;
      row_biases += row_groups;
      y[row] = V::Sum(total);
    }
  }

  // A function of its own for each format: inlined beside the others, g++ makes 6 % slower code.
  [[gnu::noinline]] static void RunWide(const WeightMatrix& w, const std::byte* prepared, float* y,
                                        int row_begin, int row_end) {
    const WeightMatrix layout = LayoutOf(w);
    const Sides sides = SidesOf(w, layout, prepared);
    for (int row = row_begin; row < row_end; ++row) {
      // A last row without a neighbour after it ends where it ends.
      const bool alone = IsShifted(w) && row % 2 == 0 && row + 1 == w.rows;
      const int cols = alone ? w.cols : layout.cols;
      const int groups = cols / W::kGroup;
      const int whole_steps = cols / kStep;
      const int last_words = cols % kStep / W::kPerWord;
      const Side& side = sides.of[row % 2];
      const ptrdiff_t group = ptrdiff_t{row} * Groups(w) - side.earlier_groups;
      const std::byte* data = Matmul<V, W>::Row(w, row) - side.earlier_bytes;
      const uint16_t* const scales = w.scales + group;
      const uint16_t* const biases = w.biases + group;
      const std::byte* x = side.x;
      F total = V::Zero();
      int g = 0;
      for (; g + kLanes <= groups; g += kLanes) {
        V::Prefetch(scales + g + kPrefetchGroups);
        V::Prefetch(biases + g + kPrefetchGroups);
        const F scale = V::Mul(V::LoadBf16(scales + g), V::Load(side.factors + g));
        total = V::Fma(V::LoadBf16(biases + g), V::Load(side.sums + g), total);
        Unroll<kChunkSteps>([&](auto step) __attribute__((always_inline)) {
          AddStep(data, x, scale, step, total);
        });
      }
      if (g < groups) {
        V::Prefetch(scales + g + kPrefetchGroups);
        V::Prefetch(biases + g + kPrefetchGroups);
        const F scale =
            V::Mul(V::LoadBf16Partial(scales + g, groups - g), V::Load(side.factors + g));
        total = V::Fma(V::LoadBf16Partial(biases + g, groups - g), V::Load(side.sums + g), total);
        const int rest = whole_steps - g / kLanes * kChunkSteps;
        for (int step = 0; step < rest; ++step) AddStep(data, x, scale, step, total);
        // A group never ends inside a block that is cut short, so there is one block at most.
        if (last_words > 0) {
          I high = V::ZeroWords();
          I low = V::ZeroWords();
          AddBlock(V::LoadWordsPartial(data, last_words), x, high, low);
          total = V::Fma(Join(high, low), V::Permute(scale, V::LoadWords(Lanes(rest))), total);
        }
      }
      y[row] = V::Sum(total);
    }
  }

  // Zeros wherever a column or group may be missing.
  static void Clear(const WeightMatrix& layout, std::byte* prepared) {
    constexpr ptrdiff_t kStepBytes = ptrdiff_t{kStep} * 2;
    for (ptrdiff_t at = 0; at < kStepBytes; at += kVectorBytes) {
      V::StoreWords(prepared + at, V::ZeroWords());
      V::StoreWords(prepared + FactorsAt(layout) - kStepBytes + at, V::ZeroWords());
    }
    for (ptrdiff_t at = FactorsAt(layout); at < LayoutBytes(layout); at += kVectorBytes) {
      V::StoreWords(prepared + at, V::ZeroWords());
    }
  }

  // What is asked for ahead of its use does not cover the first bytes of a range. All at once they
  // come sooner than one after the other: 5 % of the time of an expert's 2,816 x 704 matrix.
  static void AskForBeginning(const WeightMatrix& w, int row_begin, int row_end) {
    const auto ask = [](const void* at, ptrdiff_t bytes) {
      const auto* const begin = static_cast<const std::byte*>(at);
      for (ptrdiff_t i = 0; i < bytes; i += kLine) V::Prefetch(begin + i);
    };
    const ptrdiff_t rows = row_end - row_begin;
    constexpr ptrdiff_t kMostBytes = kPrefetchBytes;
    const ptrdiff_t codes = rows * static_cast<ptrdiff_t>(RowBytes(w));
    ask(Matmul<V, W>::Row(w, row_begin), codes < kMostBytes ? codes : kMostBytes);
    const ptrdiff_t first = ptrdiff_t{row_begin} * Groups(w);
    const ptrdiff_t scales = rows * Groups(w) * 2;
    constexpr ptrdiff_t kMostScaleBytes = kMostBytes * 8 / W::kBits / W::kGroup * 2;
    ask(w.scales + first, scales < kMostScaleBytes ? scales : kMostScaleBytes);
    ask(w.biases + first, scales < kMostScaleBytes ? scales : kMostScaleBytes);
  }

  // Activations whose bytes are stored together.
  static constexpr int kPiece = 16;

  // The bytes of columns `first` .. `first` + kPiece - 1, `offset` bytes into each j's part.
  static void Scatter(const F (&x)[kPiece / kLanes], int first, int offset, std::byte* prepared) {
    std::byte bytes[kPiece];
    V::template StoreSignedBytes<kPerByte>(bytes, x);
    std::byte* const block = prepared + ptrdiff_t{first / W::kBlock} * W::kBlock * 2 + offset;
    for (int i = 0; i < kPiece; i += 4) {
      // Four bytes belong to one word of vector j.
      const int word = first % W::kBlock / W::kPerWord + i / W::kPerWord;
      const int j = i / 4 % kPerByte;
      __builtin_memcpy(block + j * 2 * kVectorBytes + word * 4, bytes + i, 4);
    }
  }

  [[gnu::always_inline]] static void AddBlock(I words, const std::byte* x, I& high, I& low) {
    constexpr auto kMask = static_cast<int32_t>(((1u << W::kBits) - 1u) * 0x01010101u);
    Unroll<kPerByte>([&](auto j) __attribute__((always_inline)) {
      I codes = words;
      if constexpr (kPerByte > 1)
        codes = V::And(V::template ShiftRight<W::kBits * j>(words), kMask);
      high = V::AddByteDots(high, codes, V::LoadWords(x + j * 2 * kVectorBytes));
      low = V::AddByteDots(low, codes, V::LoadWords(x + (j * 2 + 1) * kVectorBytes));
    });
  }

  [[gnu::always_inline]] static F Join(I high, I low) {
    return V::FloatOfWords(V::AddWords(V::template ShiftLeft<8>(high), low));
  }

  // Which of a chunk's groups the lanes of step `step` belong to.
  struct LaneTable {
    alignas(64) int32_t group[kChunkSteps][kLanes];
  };
  static constexpr LaneTable MakeLaneTable() {
    LaneTable table{};
    for (int step = 0; step < kChunkSteps; ++step) {
      for (int lane = 0; lane < kLanes; ++lane) {
        table.group[step][lane] = (step * kLanes + lane) * W::kGroupsPerBlock / kLanes;
      }
    }
    return table;
  }
  static constexpr LaneTable kLaneTable = MakeLaneTable();
  static const std::byte* Lanes(int step) {
    return static_cast<const std::byte*>(static_cast<const void*>(kLaneTable.group[step]));
  }
};

}  // namespace mference::cpu::simd
