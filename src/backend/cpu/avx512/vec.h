// AVX-512 (F, BW, VL, DQ): vectors of 16 floats. See simd/README in simd/vec_concept.h for what
// each operation means.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace mference::cpu::avx512 {

struct Vec {
  using F = __m512;
  using I = __m512i;

  static constexpr int kLanes = 16;
  // 24 accumulators, 2 vectors of B and a broadcast: 27 of 32 registers.
  static constexpr int kTileRows = 12;
  // Register tile of a product with few rows of activations: weight rows times activation rows.
  // Codes are decoded on ports that multiply-adds leave free, so it runs at their peak.
  static constexpr int kStreams = 4;
  static constexpr int kFewBatch = 4;
  // Up to how many rows of activations that is faster than a decoded tile.
  static constexpr int kFewRows = 48;
  // 12 integer sums, 12 totals, 4 vectors of codes and 2 words of x: 30 registers.
  static constexpr int kQuantisedRows = 6;
  static constexpr bool kByteDots = false;

  static F Zero() { return _mm512_setzero_ps(); }
  static F Set(float x) { return _mm512_set1_ps(x); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static F LoadPartial(const float* p, int n) { return _mm512_maskz_loadu_ps(Mask(n), p); }
  static void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static void StorePartial(float* p, F x, int n) { _mm512_mask_storeu_ps(p, Mask(n), x); }

  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static F Abs(F a) { return _mm512_abs_ps(a); }
  static F CopySign(F magnitude, F sign) {
    return _mm512_or_ps(magnitude, _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
  }
  static F Round(F a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static F ScaleByPowerOfTwo(F a, F n) { return _mm512_scalef_ps(a, n); }
  static bool AnyEqual(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ) != 0; }
  static float Sum(F a) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
  }
  static float Largest(F a) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(quarter, _mm_movehdup_ps(quarter)));
  }
  static void Deinterleave(F a, F b, F& even, F& odd) {
    const I evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    even = _mm512_permutex2var_ps(a, evens, b);
    odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), b);
  }

  // Within quarters of a vector first, then whole quarters: twice as fast as by permutes of two
  // vectors.
  [[gnu::always_inline]] static void Transpose(F (&x)[16]) {
    F pairs[16];
    for (int i = 0; i < 16; i += 2) {
      pairs[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
      pairs[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    // Quarter q of quads[4 i + j] has column 4 q + j of rows 4 i to 4 i + 3.
    F quads[16];
    for (int i = 0; i < 16; i += 4) {
      quads[i] = Unpack<false>(pairs[i], pairs[i + 2]);
      quads[i + 1] = Unpack<true>(pairs[i], pairs[i + 2]);
      quads[i + 2] = Unpack<false>(pairs[i + 1], pairs[i + 3]);
      quads[i + 3] = Unpack<true>(pairs[i + 1], pairs[i + 3]);
    }
    for (int j = 0; j < 4; ++j) {
      const F even_low = _mm512_shuffle_f32x4(quads[j], quads[4 + j], 0x88);
      const F odd_low = _mm512_shuffle_f32x4(quads[j], quads[4 + j], 0xdd);
      const F even_high = _mm512_shuffle_f32x4(quads[8 + j], quads[12 + j], 0x88);
      const F odd_high = _mm512_shuffle_f32x4(quads[8 + j], quads[12 + j], 0xdd);
      x[j] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
      x[4 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
      x[8 + j] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
      x[12 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
    }
  }

  static F LoadF16(const uint16_t* p) { return _mm512_cvtph_ps(Load256(p)); }
  static void StoreF16(uint16_t* p, F x) {
    _mm256_storeu_si256(As256(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static F LoadBf16(const uint16_t* p) { return Widen(Load256(p)); }
  static F LoadBf16Partial(const uint16_t* p, int n) {
    return Widen(_mm256_maskz_loadu_epi16(Mask(n), p));
  }
  static void StoreBf16(uint16_t* p, F x) {
    // Round half to even by integer arithmetic; a NaN keeps its top bits and stays one.
    const I bits = _mm512_castps_si512(x);
    const I odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const I rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const I quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const I result = _mm512_mask_mov_epi32(rounded, nan, quiet);
    _mm256_storeu_si256(As256(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(result, 16)));
  }

  static I LoadWords(const std::byte* p) { return _mm512_loadu_si512(p); }
  static I LoadWordsPartial(const std::byte* p, int n) {
    return _mm512_maskz_loadu_epi32(Mask(n), p);
  }
  static void StoreWords(std::byte* p, I a) { _mm512_storeu_si512(p, a); }
  static I ZeroWords() { return _mm512_setzero_si512(); }
  static I SetWord(const std::byte* p) {
    int32_t word;
    std::memcpy(&word, p, sizeof word);
    return _mm512_set1_epi32(word);
  }
  static I And(I a, int32_t mask) { return _mm512_and_si512(a, _mm512_set1_epi32(mask)); }
  static F FloatOfWords(I a) { return _mm512_cvtepi32_ps(a); }
  static I AddDots(I sum, I codes, I x, I more_codes, I more_x) {
    const I pairs =
        _mm512_add_epi16(_mm512_maddubs_epi16(codes, x), _mm512_maddubs_epi16(more_codes, more_x));
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
  static I AddWords(I a, I b) { return _mm512_add_epi32(a, b); }
  static I AddPairs(I sum, I codes, I x) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(codes, x));
  }
  template <int kPerByte>
  static void StoreSignedBytes(std::byte* p, const F (&x)[1]) {
    const __m128i order =
        kPerByte == 1   ? _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
        : kPerByte == 2 ? _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)
                        : _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm_storeu_si128(static_cast<__m128i_u*>(static_cast<void*>(p)),
                     _mm_shuffle_epi8(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x[0])), order));
  }

  static F FloatBits(I a) { return _mm512_castsi512_ps(a); }
  static I IntBits(F a) { return _mm512_castps_si512(a); }
  template <int kBits>
  static I ShiftRight(I a) {
    return _mm512_srli_epi32(a, kBits);
  }
  template <int kBits>
  static I ShiftLeft(I a) {
    return _mm512_slli_epi32(a, kBits);
  }
  static F Permute(F a, I lanes) { return _mm512_permutexvar_ps(lanes, a); }
  static F Bf16Low(I a) { return _mm512_castsi512_ps(_mm512_slli_epi32(a, 16)); }
  static F Bf16High(I a) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(a, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }

  // The permute looks only at the low 4 bits of an index: a table lookup that needs no mask.
  template <int kBits>
  static F Code(I a) {
    if constexpr (kBits == 2) {
      return _mm512_permutexvar_ps(a,
                                   _mm512_setr_ps(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3));
    } else if constexpr (kBits == 4) {
      return _mm512_permutexvar_ps(
          a, _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    } else {
      return _mm512_cvtepi32_ps(_mm512_and_si512(a, _mm512_set1_epi32(0xff)));
    }
  }

  template <int kBits, int kIndex>
  static F CodeInPlace(I a) {
    const I code = _mm512_and_si512(
        a, _mm512_set1_epi32(static_cast<int>(((1u << kBits) - 1u) << (kBits * kIndex))));
    return kBits * (kIndex + 1) == 32 ? _mm512_cvtepu32_ps(code) : _mm512_cvtepi32_ps(code);
  }

  template <int kGroups>
  static F SpreadBf16(const uint16_t* p) {
    if constexpr (kGroups == 1) {
      return _mm512_castsi512_ps(
          _mm512_set1_epi32(static_cast<int32_t>(static_cast<uint32_t>(*p) << 16)));
    } else if constexpr (kGroups == 2) {
      int32_t packed;
      std::memcpy(&packed, p, sizeof packed);
      return Spread<kGroups>(_mm512_set1_epi32(packed));
    } else if constexpr (kGroups == 4) {
      int64_t packed;
      std::memcpy(&packed, p, sizeof packed);
      return Spread<kGroups>(_mm512_set1_epi64(packed));
    } else {
      return SpreadBf16Partial<kGroups>(p, kGroups);
    }
  }
  template <int kGroups>
  static F SpreadBf16Partial(const uint16_t* p, int n) {
    const auto mask = static_cast<__mmask8>((1u << n) - 1u);
    return Spread<kGroups>(_mm512_broadcast_i32x4(_mm_maskz_loadu_epi16(mask, p)));
  }

  // Inlined by force: a function of nothing but a prefetch counts as one without effect, and GCC
  // drops calls of it.
  [[gnu::always_inline]] static void Prefetch(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
  }

 private:
  template <bool kHigh>
  static F Unpack(F a, F b) {
    const __m512d low = _mm512_castps_pd(a);
    const __m512d high = _mm512_castps_pd(b);
    return _mm512_castpd_ps(kHigh ? _mm512_unpackhi_pd(low, high) : _mm512_unpacklo_pd(low, high));
  }

  // The upper half of lane l takes 16-bit word l * kGroups / 16; the lower half is zeroed.
  template <int kGroups>
  static F Spread(I words) {
    constexpr int kShift = kGroups == 1 ? 4 : kGroups == 2 ? 3 : kGroups == 4 ? 2 : 1;
    const I lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const I index = _mm512_slli_epi32(_mm512_srli_epi32(lane, kShift), 16);
    return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, index, words));
  }
  static __mmask16 Mask(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static __m256i Load256(const uint16_t* p) {
    return _mm256_loadu_si256(static_cast<const __m256i_u*>(static_cast<const void*>(p)));
  }
  static __m256i_u* As256(uint16_t* p) { return static_cast<__m256i_u*>(static_cast<void*>(p)); }
  static F Widen(__m256i bf16) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
  }
};

}  // namespace mference::cpu::avx512
