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
  // A chunk has kLanes groups.
  static constexpr int kChunkSteps = kLanes / W::kGroupsPerBlock;

  static int Blocks(const WeightMatrix& shape) { return (shape.cols + W::kBlock - 1) / W::kBlock; }
  static int Groups(const WeightMatrix& shape) { return shape.cols / W::kGroup; }
  static int PaddedGroups(const WeightMatrix& shape) { return RoundUp(Groups(shape), kLanes); }
  static int PaddedBlocks(const WeightMatrix& shape) {
    return RoundUp(Blocks(shape), W::kBlocksPerGroup);
  }

  // Prepared: for each block and j the high bytes and the low bytes, zeros after the last column;
  // f of each group; f * sum of q of each group; both padded with zeros.
  static ptrdiff_t FactorsAt(const WeightMatrix& shape) {
    return ptrdiff_t{PaddedBlocks(shape)} * W::kBlock * 2;
  }
  static ptrdiff_t SumsAt(const WeightMatrix& shape) {
    return FactorsAt(shape) + ptrdiff_t{PaddedGroups(shape)} * 4;
  }
  static size_t PreparedBytes(const WeightMatrix& shape) {
    return static_cast<size_t>(SumsAt(shape)) + static_cast<size_t>(PaddedGroups(shape)) * 4;
  }

  static void Prepare(const WeightMatrix& shape, const float* x, std::byte* prepared) {
    void* const factors_at = prepared + FactorsAt(shape);
    auto* const factors = static_cast<float*>(factors_at);
    void* const sums_at = prepared + SumsAt(shape);
    auto* const sums = static_cast<float*>(sums_at);
    const int groups = Groups(shape);
    // The padding of the last block; its codes are read as zeros, so any finite bytes would do.
    for (ptrdiff_t at = FactorsAt(shape) - ptrdiff_t{kStep} * 2; at < FactorsAt(shape);
         at += kVectorBytes) {
      V::StoreWords(prepared + at, V::ZeroWords());
    }
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
      }
      factors[g] = top / kSingleRowTop;
      sums[g] = factors[g] * V::Sum(sum);
    }
    for (int g = groups; g < PaddedGroups(shape); ++g) factors[g] = sums[g] = 0;
  }

  // A function of its own for each format: inlined beside the others, g++ makes 6 % slower code.
  [[gnu::noinline]] static void Run(const WeightMatrix& w, const std::byte* prepared, float* y,
                                    int row_begin, int row_end) {
    // Scales and biases are asked for as far ahead as codes.
    constexpr int kPrefetchGroups = Matmul<V, W>::kPrefetchBytes * 8 / W::kBits / W::kGroup;
    const int groups = Groups(w);
    AskForBeginning(w, row_begin, row_end);
    const int whole_steps = w.cols / kStep;
    const int last_words = w.cols % kStep / W::kPerWord;
    const void* const factors_at = prepared + FactorsAt(w);
    const auto* const factors = static_cast<const float*>(factors_at);
    const void* const sums_at = prepared + SumsAt(w);
    const auto* const sums = static_cast<const float*>(sums_at);
    for (int row = row_begin; row < row_end; ++row) {
      const std::byte* data = Matmul<V, W>::Row(w, row);
      const size_t group = static_cast<size_t>(row) * static_cast<size_t>(groups);
      const uint16_t* scales = w.scales + group;
      const uint16_t* biases = w.biases + group;
      const std::byte* x = prepared;
      F total = V::Zero();
      const auto step_in = [&](F scale, int step) __attribute__((always_inline)) {
        I high = V::ZeroWords();
        I low = V::ZeroWords();
        Unroll<W::kBlocksPerGroup>([&](auto) __attribute__((always_inline)) {
          V::Prefetch(data + Matmul<V, W>::kPrefetchBytes);
          AddBlock(V::LoadWords(data), x, high, low);
          data += kVectorBytes;
          x += kPerByte * 2 * kVectorBytes;
        });
        total = V::Fma(Join(high, low), V::Permute(scale, V::LoadWords(Lanes(step))), total);
      };
      int g = 0;
      for (; g + kLanes <= groups; g += kLanes) {
        V::Prefetch(scales + g + kPrefetchGroups);
        V::Prefetch(biases + g + kPrefetchGroups);
        const F scale = V::Mul(V::LoadBf16(scales + g), V::Load(factors + g));
        total = V::Fma(V::LoadBf16(biases + g), V::Load(sums + g), total);
        Unroll<kChunkSteps>([&](auto step)
                                __attribute__((always_inline)) { step_in(scale, step); });
      }
      if (g < groups) {
        V::Prefetch(scales + g + kPrefetchGroups);
        V::Prefetch(biases + g + kPrefetchGroups);
        const F scale = V::Mul(V::LoadBf16Partial(scales + g, groups - g), V::Load(factors + g));
        total = V::Fma(V::LoadBf16Partial(biases + g, groups - g), V::Load(sums + g), total);
        const int rest = whole_steps - g / kLanes * kChunkSteps;
        for (int step = 0; step < rest; ++step) step_in(scale, step);
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

 private:
  // What is asked for ahead of its use does not cover the first bytes of a range. All at once they
  // come sooner than one after the other: 5 % of the time of an expert's 2,816 x 704 matrix.
  static void AskForBeginning(const WeightMatrix& w, int row_begin, int row_end) {
    constexpr ptrdiff_t kLine = 64;
    const auto ask = [](const void* at, ptrdiff_t bytes) {
      const auto* const begin = static_cast<const std::byte*>(at);
      for (ptrdiff_t i = 0; i < bytes; i += kLine) V::Prefetch(begin + i);
    };
    const ptrdiff_t rows = row_end - row_begin;
    constexpr ptrdiff_t kMostBytes = Matmul<V, W>::kPrefetchBytes;
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
