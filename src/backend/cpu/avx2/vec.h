// AVX2 with FMA and F16C: vectors of 8 floats.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace mference::cpu::avx2 {

struct Vec {
  using F = __m256;
  using I = __m256i;

  static constexpr int kLanes = 8;
  // 12 accumulators, 2 vectors of B and a broadcast: 15 of 16 registers.
  static constexpr int kTileRows = 6;
  // As in avx512/vec.h; 2 x 2 sums twice, words, values and a vector of x are 13 of 16 registers.
  static constexpr int kStreams = 2;
  static constexpr int kFewBatch = 2;
  static constexpr int kFewRows = 32;
  // 6 integer sums, 4 vectors of codes, 2 words of x, ones and 2 products; totals are spilled.
  static constexpr int kQuantisedRows = 3;
  static constexpr bool kByteDots = false;

  static F Zero() { return _mm256_setzero_ps(); }
  static F Set(float x) { return _mm256_set1_ps(x); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static F LoadPartial(const float* p, int n) { return _mm256_maskload_ps(p, Mask(n)); }
  static void Store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static void StorePartial(float* p, F x, int n) { _mm256_maskstore_ps(p, Mask(n), x); }

  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F Min(F a, F b) { return _mm256_min_ps(a, b); }
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static F Abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  static F CopySign(F magnitude, F sign) {
    return _mm256_or_ps(magnitude, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
  }
  static F Round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F ScaleByPowerOfTwo(F a, F n) {
    // In two halves, so that neither leaves the range of exponents.
    const I exponent = _mm256_cvtps_epi32(n);
    const I first = _mm256_srai_epi32(exponent, 1);
    return _mm256_mul_ps(_mm256_mul_ps(a, PowerOfTwo(first)),
                         PowerOfTwo(_mm256_sub_epi32(exponent, first)));
  }
  static bool AnyEqual(F a, F b) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)) != 0;
  }
  static float Sum(F a) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
  }
  static float Largest(F a) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
  }
  static void Deinterleave(F a, F b, F& even, F& odd) {
    even = SwapMiddle(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)));
    odd = SwapMiddle(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1)));
  }

  static F LoadF16(const uint16_t* p) { return _mm256_cvtph_ps(Load128(p)); }
  static void StoreF16(uint16_t* p, F x) {
    Store128(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static F LoadBf16(const uint16_t* p) { return Widen(Load128(p)); }
  static F LoadBf16Partial(const uint16_t* p, int n) {
    uint16_t padded[kLanes] = {};
    for (int i = 0; i < n; ++i) padded[i] = p[i];
    return LoadBf16(padded);
  }
  static void StoreBf16(uint16_t* p, F x) {
    // Round half to even by integer arithmetic; a NaN keeps its top bits and stays one.
    const I bits = _mm256_castps_si256(x);
    const I odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const I rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const I quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    const F nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    const I top =
        _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan)), 16);
    Store128(p, _mm_packus_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1)));
  }

  static I LoadWords(const std::byte* p) {
    return _mm256_loadu_si256(static_cast<const __m256i_u*>(static_cast<const void*>(p)));
  }
  static I LoadWordsPartial(const std::byte* p, int n) {
    return _mm256_maskload_epi32(static_cast<const int*>(static_cast<const void*>(p)), Mask(n));
  }
  static void StoreWords(std::byte* p, I a) {
    _mm256_storeu_si256(static_cast<__m256i_u*>(static_cast<void*>(p)), a);
  }
  static I ZeroWords() { return _mm256_setzero_si256(); }
  static I SetWord(const std::byte* p) {
    int32_t word;
    std::memcpy(&word, p, sizeof word);
    return _mm256_set1_epi32(word);
  }
  static I And(I a, int32_t mask) { return _mm256_and_si256(a, _mm256_set1_epi32(mask)); }
  static F FloatOfWords(I a) { return _mm256_cvtepi32_ps(a); }
  // Four products of at most 15 * 127 fit 16 bits.
  static I AddDots(I sum, I codes, I x, I more_codes, I more_x) {
    const I pairs =
        _mm256_add_epi16(_mm256_maddubs_epi16(codes, x), _mm256_maddubs_epi16(more_codes, more_x));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static I AddWords(I a, I b) { return _mm256_add_epi32(a, b); }
  static I AddPairs(I sum, I codes, I x) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(codes, x));
  }
  template <int kPerByte>
  static void StoreSignedBytes(std::byte* p, const F (&x)[2]) {
    const __m128i order =
        kPerByte == 1   ? _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
        : kPerByte == 2 ? _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)
                        : _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const I halves = _mm256_permute4x64_epi64(
        _mm256_packs_epi32(_mm256_cvtps_epi32(x[0]), _mm256_cvtps_epi32(x[1])),
        _MM_SHUFFLE(3, 1, 2, 0));
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
    _mm_storeu_si128(static_cast<__m128i_u*>(static_cast<void*>(p)),
                     _mm_shuffle_epi8(bytes, order));
  }

  template <int kBits>
  static I ShiftLeft(I a) {
    return _mm256_slli_epi32(a, kBits);
  }
  static F Permute(F a, I lanes) { return _mm256_permutevar8x32_ps(a, lanes); }

  static F FloatBits(I a) { return _mm256_castsi256_ps(a); }
  static I IntBits(F a) { return _mm256_castps_si256(a); }
  template <int kBits>
  static I ShiftRight(I a) {
    return _mm256_srli_epi32(a, kBits);
  }
  static F Bf16Low(I a) { return _mm256_castsi256_ps(_mm256_slli_epi32(a, 16)); }
  static F Bf16High(I a) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(a, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }

  // The permute looks at the low 3 bits of an index: enough of a table for 2-bit codes.
  template <int kBits>
  static F Code(I a) {
    if constexpr (kBits == 2) {
      return _mm256_permutevar8x32_ps(_mm256_setr_ps(0, 1, 2, 3, 0, 1, 2, 3), a);
    } else {
      return _mm256_cvtepi32_ps(_mm256_and_si256(a, _mm256_set1_epi32((1 << kBits) - 1)));
    }
  }

  // The last code reaches the sign bit, which the conversion would take for one: it is shifted
  // down and the result scaled back.
  template <int kBits, int kIndex>
  static F CodeInPlace(I a) {
    constexpr int kShift = kBits * kIndex;
    if constexpr (kShift + kBits == 32) {
      return Mul(_mm256_cvtepi32_ps(_mm256_srli_epi32(a, kShift)),
                 Set(static_cast<float>(1u << kShift)));
    } else {
      return _mm256_cvtepi32_ps(
          _mm256_and_si256(a, _mm256_set1_epi32(static_cast<int>(((1u << kBits) - 1u) << kShift))));
    }
  }

  template <int kGroups>
  static F SpreadBf16(const uint16_t* p) {
    if constexpr (kGroups == 1) {
      return _mm256_castsi256_ps(
          _mm256_set1_epi32(static_cast<int32_t>(static_cast<uint32_t>(*p) << 16)));
    } else {
      static_assert(kGroups == 2 || kGroups == 4);
      int64_t packed = 0;
      std::memcpy(&packed, p, kGroups * sizeof *p);
      const F values = Widen(_mm_cvtsi64_si128(packed));
      return _mm256_permutevar8x32_ps(values, kGroups == 2
                                                  ? _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1)
                                                  : _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    }
  }

  template <int kGroups>
  static F SpreadBf16Partial(const uint16_t* p, int n) {
    uint16_t padded[kGroups] = {};
    for (int i = 0; i < n; ++i) padded[i] = p[i];
    return SpreadBf16<kGroups>(padded);
  }

  // Inlined by force: a function of nothing but a prefetch counts as one without effect, and GCC
  // drops calls of it.
  [[gnu::always_inline]] static void Prefetch(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
  }

 private:
  static I Mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static __m128i Load128(const uint16_t* p) {
    return _mm_loadu_si128(static_cast<const __m128i_u*>(static_cast<const void*>(p)));
  }
  static void Store128(uint16_t* p, __m128i x) {
    _mm_storeu_si128(static_cast<__m128i_u*>(static_cast<void*>(p)), x);
  }
  static F Widen(__m128i bf16) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
  }
  static F SwapMiddle(F a) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(a), _MM_SHUFFLE(3, 1, 2, 0)));
  }
  static F PowerOfTwo(I n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
};

}  // namespace mference::cpu::avx2
