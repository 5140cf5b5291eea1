// A weight matrix times one row of activations rounded to 16 bits, for any instruction set: decode.
//
// With FP32 activations every code is widened, converted and multiplied on its own, which keeps a
// core busier than its memory. Here a group of activations x becomes f q with 16-bit integers q and
// f = max|x| / kSingleRowTop, two codes of a word are multiplied and added by one instruction, and
// only the sum of a group, exact in 32 bits, is converted:
//   sum of (s code + b) f q = s f * (sum of code q) + b * (f * sum of q).
// The rounding is 1 / 65,278 of a group's largest activation: 128 times finer than that of prefill.
//
// A word of kPerWord codes, shifted by j codes and masked, holds codes j and j + kPerWord / 2 in
// its halves; activations are brought into that order once.
#pragma once

#include <type_traits>

#include "backend/cpu/simd/matmul.h"
#include "backend/cpu/simd/single_row_bytes.h"

namespace mference::cpu::simd {

template <typename V, typename W>
struct SingleRow {
  using F = typename V::F;
  using I = typename V::I;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kPairs = W::kPerWord / 2;  // of codes in a word
  // A step has whole groups and whole vectors of words; its sums share a conversion.
  static constexpr int kStep = W::kBlock * W::kBlocksPerGroup;
  // One row after the other, so that codes, scales and biases are three long streams: with two rows
  // side by side a core reads 33 GB/s where one row reads 40.
  static constexpr int kWordBytes = kLanes * 4;

  static int Steps(const WeightMatrix& shape) { return (shape.cols + kStep - 1) / kStep; }
  static int Groups(const WeightMatrix& shape) { return shape.cols / W::kGroup; }
  static int PaddedGroups(const WeightMatrix& shape) { return RoundUp(Groups(shape), 16); }

  // Prepared: codes of all steps, padded with zeros; for each step a vector of f, in the lanes of
  // its words; f * sum of q of each group, padded.
  static ptrdiff_t FactorsAt(const WeightMatrix& shape) {
    return ptrdiff_t{Steps(shape)} * kStep * 2;
  }
  static ptrdiff_t SumsAt(const WeightMatrix& shape) {
    return FactorsAt(shape) + ptrdiff_t{Steps(shape)} * kWordBytes;
  }
  static size_t PreparedBytes(const WeightMatrix& shape) {
    return static_cast<size_t>(SumsAt(shape)) + static_cast<size_t>(PaddedGroups(shape)) * 4;
  }

  static void Prepare(const WeightMatrix& shape, const float* x, std::byte* prepared) {
    constexpr int kLanesPerGroup = kLanes / W::kGroupsPerBlock;
    void* const codes_at = prepared;
    auto* const codes = static_cast<int16_t*>(codes_at);
    void* const factors_at = prepared + FactorsAt(shape);
    auto* const factors = static_cast<float*>(factors_at);
    void* const sums_at = prepared + SumsAt(shape);
    auto* const sums = static_cast<float*>(sums_at);
    const int groups = Groups(shape);
    for (int g = 0; g < Steps(shape) * kStep / W::kGroup; ++g) {
      const int first = g * W::kGroup;
      float factor = 0;
      float inverse = 0;
      if (g < groups) {
        F largest = V::Zero();
        for (int i = 0; i < W::kGroup; i += kLanes) {
          largest = V::Max(largest, V::Abs(V::Load(x + first + i)));
        }
        const float top = V::Largest(largest);
        factor = top / kSingleRowTop;
        inverse = top > 0 ? kSingleRowTop / top : 0.0f;
      }
      F sum = V::Zero();
      for (int i = 0; i < W::kGroup; i += W::kPerWord * kPiece) {
        float rounded[W::kPerWord * kPiece];
        for (int j = 0; j < W::kPerWord * kPiece; j += kLanes) {
          const F code = g < groups ? V::Round(V::Mul(V::Load(x + first + i + j), V::Set(inverse)))
                                    : V::Zero();
          sum = V::Add(sum, code);
          V::Store(rounded + j, code);
        }
        for (int word = 0; word < kPiece; ++word) {
          // Vector j of the block that the word is in holds its pair j.
          const int at = first + i + word * W::kPerWord;
          const int lane = at % W::kBlock / W::kPerWord;
          int16_t* const block = codes + at / W::kBlock * W::kBlock;
          for (int j = 0; j < kPairs; ++j) {
            int16_t* const pair = block + (j * kLanes + lane) * 2;
            pair[0] = static_cast<int16_t>(rounded[word * W::kPerWord + j]);
            pair[1] = static_cast<int16_t>(rounded[word * W::kPerWord + j + kPairs]);
          }
        }
      }
      const int lane = g % W::kGroupsPerBlock * kLanesPerGroup;
      float* const step_factors = factors + first / kStep * kLanes + lane;
      for (int i = 0; i < kLanesPerGroup; ++i) step_factors[i] = factor;
      if (g < groups) sums[g] = factor * V::Sum(sum);
    }
    for (int g = groups; g < PaddedGroups(shape); ++g) sums[g] = 0;
  }

  static void Run(const WeightMatrix& w, const std::byte* prepared, float* y, int row_begin,
                  int row_end) {
    constexpr int32_t kMask = ((1 << W::kBits) - 1) * 0x00010001;
    // Scales and biases are asked for as far ahead as codes, once per line.
    constexpr int kPrefetchBytes = Matmul<V, W>::kPrefetchBytes;
    constexpr int kPrefetchGroups = kPrefetchBytes * 8 / W::kBits / W::kGroup;
    constexpr int kLineCols = 64 / static_cast<int>(sizeof(uint16_t)) * W::kGroup;
    const int groups = Groups(w);
    const void* const factors_at = prepared + FactorsAt(w);
    const void* const sums_at = prepared + SumsAt(w);
    const auto* const sums = static_cast<const float*>(sums_at);
    for (int row = row_begin; row < row_end; ++row) {
      const std::byte* data = Matmul<V, W>::Row(w, row);
      const size_t group = static_cast<size_t>(row) * static_cast<size_t>(groups);
      const uint16_t* scales = w.scales + group;
      const uint16_t* const biases = w.biases + group;
      const std::byte* x = prepared;
      const auto* factors = static_cast<const float*>(factors_at);
      F total = V::Zero();
      for (int c = 0; c < w.cols; c += kStep) {
        if (c % kLineCols == 0) {
          V::Prefetch(scales + kPrefetchGroups);
          V::Prefetch(biases + c / W::kGroup + kPrefetchGroups);
        }
        // The last step of a row may be cut short, after a whole number of groups.
        const bool whole = c + kStep <= w.cols;
        I dots = V::ZeroWords();
        Unroll<W::kBlocksPerGroup>([&](auto) __attribute__((always_inline)) {
          if (whole) V::Prefetch(data + kPrefetchBytes);
          const I words =
              whole ? V::LoadWords(data) : V::LoadWordsPartial(data, (w.cols - c) / W::kPerWord);
          Unroll<kPairs>([&](auto j) __attribute__((always_inline)) {
            const I codes = V::And(V::template ShiftRight<W::kBits * j>(words), kMask);
            dots = V::AddPairs(dots, codes, V::LoadWords(x + j * kWordBytes));
          });
          x += kPairs * kWordBytes;
          data += kWordBytes;
        });
        const F scale = whole ? V::template SpreadBf16<W::kGroupsPerBlock>(scales)
                              : V::template SpreadBf16Partial<W::kGroupsPerBlock>(
                                    scales, (w.cols - c) / static_cast<int>(W::kGroup));
        total = V::Fma(V::FloatOfWords(dots), V::Mul(scale, V::Load(factors)), total);
        scales += W::kGroupsPerBlock;
        factors += kLanes;
      }
      for (int g = 0; g < groups; g += kLanes) {
        const F bias = g + kLanes <= groups ? V::LoadBf16(biases + g)
                                            : V::LoadBf16Partial(biases + g, groups - g);
        total = V::Fma(bias, V::Load(sums + g), total);
      }
      y[row] = V::Sum(total);
    }
  }

 private:
  // Words whose activations are rounded together: whole vectors.
  static constexpr int kPiece = W::kPerWord >= kLanes ? 1 : kLanes / W::kPerWord;
};

template <typename V>
struct SingleRowTable {
  // Whichever way V has instructions for.
  template <typename W>
  using Way = std::conditional_t<V::kByteDots, SingleRowBytes<V, W>, SingleRow<V, W>>;

  template <typename Function>
  static auto WithWeights(const WeightMatrix& w, Function f) {
    return WithGroup<V>(w, [&]<int kGroup>() {
      switch (w.format) {
        case WeightFormat::kAffine2:
          return f(Weights<V, WeightFormat::kAffine2, kGroup>{});
        case WeightFormat::kAffine4:
          return f(Weights<V, WeightFormat::kAffine4, kGroup>{});
        default:
          return f(Weights<V, WeightFormat::kAffine8, kGroup>{});
      }
    });
  }

  static size_t PreparedBytes(const WeightMatrix& shape) {
    return WithWeights(shape, [&]<typename W>(W) { return Way<W>::PreparedBytes(shape); });
  }
  static void Prepare(const WeightMatrix& shape, const float* x, std::byte* prepared) {
    WithWeights(shape, [&]<typename W>(W) { Way<W>::Prepare(shape, x, prepared); });
  }
  static void Run(const WeightMatrix& w, const std::byte* prepared, float* y, int row_begin,
                  int row_end) {
    WithWeights(w, [&]<typename W>(W) { Way<W>::Run(w, prepared, y, row_begin, row_end); });
  }

  static void Fill(Kernels& table) {
    table.single_row_prepared_bytes = PreparedBytes;
    table.single_row_prepare = Prepare;
    table.single_row_matmul = Run;
  }
};

}  // namespace mference::cpu::simd
