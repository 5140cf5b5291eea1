// Arm NEON (AArch64): vectors of 4 floats.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace mference::cpu::neon {

struct Vec {
  using F = float32x4_t;
  using I = uint32x4_t;

  static constexpr int kLanes = 4;
  // 24 accumulators, 2 vectors of B and a broadcast: 27 of 32 registers.
  static constexpr int kTileRows = 12;
  // As in avx512/vec.h.
  static constexpr int kStreams = 4;
  static constexpr int kFewBatch = 2;
  static constexpr int kFewRows = 16;
  // As in avx512/vec.h.
  static constexpr int kQuantisedRows = 6;
  static constexpr bool kByteDots = false;

  static F Zero() { return vdupq_n_f32(0); }
  static F Set(float x) { return vdupq_n_f32(x); }
  static F Load(const float* p) { return vld1q_f32(p); }
  static F LoadPartial(const float* p, int n) {
    float padded[kLanes] = {};
    for (int i = 0; i < n; ++i) padded[i] = p[i];
    return vld1q_f32(padded);
  }
  static void Store(float* p, F x) { vst1q_f32(p, x); }
  static void StorePartial(float* p, F x, int n) {
    float padded[kLanes];
    vst1q_f32(padded, x);
    for (int i = 0; i < n; ++i) p[i] = padded[i];
  }

  static F Add(F a, F b) { return vaddq_f32(a, b); }
  static F Sub(F a, F b) { return vsubq_f32(a, b); }
  static F Mul(F a, F b) { return vmulq_f32(a, b); }
  static F Div(F a, F b) { return vdivq_f32(a, b); }
  static F Fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  // As on x86: the second operand wins if either is NaN.
  static F Min(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static F Max(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static F Abs(F a) { return vabsq_f32(a); }
  static F CopySign(F magnitude, F sign) {
    return vbslq_f32(vdupq_n_u32(0x80000000u), sign, magnitude);
  }
  static F Round(F a) { return vrndnq_f32(a); }
  static F ScaleByPowerOfTwo(F a, F n) {
    // In two halves, so that neither leaves the range of exponents.
    const int32x4_t exponent = vcvtq_s32_f32(n);
    const int32x4_t first = vshrq_n_s32(exponent, 1);
    return vmulq_f32(vmulq_f32(a, PowerOfTwo(first)), PowerOfTwo(vsubq_s32(exponent, first)));
  }
  static bool AnyEqual(F a, F b) { return vmaxvq_u32(vceqq_f32(a, b)) != 0; }
  static float Sum(F a) { return vaddvq_f32(a); }
  static float Largest(F a) { return vmaxvq_f32(a); }
  static void Deinterleave(F a, F b, F& even, F& odd) {
    even = vuzp1q_f32(a, b);
    odd = vuzp2q_f32(a, b);
  }

  static F LoadF16(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static void StoreF16(uint16_t* p, F x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
  static F LoadBf16(const uint16_t* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
  }
  static F LoadBf16Partial(const uint16_t* p, int n) {
    uint16_t padded[kLanes] = {};
    for (int i = 0; i < n; ++i) padded[i] = p[i];
    return LoadBf16(padded);
  }
  static void StoreBf16(uint16_t* p, F x) {
    // Round half to even by integer arithmetic; a NaN keeps its top bits and stays one.
    const I bits = vreinterpretq_u32_f32(x);
    const I odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const I rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const I quiet = vorrq_u32(bits, vdupq_n_u32(0x00400000));
    vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet), 16));
  }

  static I LoadWords(const std::byte* p) {
    return vreinterpretq_u32_u8(vld1q_u8(static_cast<const uint8_t*>(static_cast<const void*>(p))));
  }
  static I LoadWordsPartial(const std::byte* p, int n) {
    std::byte padded[4 * kLanes] = {};
    std::memcpy(padded, p, static_cast<size_t>(n) * 4);
    return LoadWords(padded);
  }
  static void StoreWords(std::byte* p, I a) {
    vst1q_u8(static_cast<uint8_t*>(static_cast<void*>(p)), vreinterpretq_u8_u32(a));
  }
  static I ZeroWords() { return vdupq_n_u32(0); }
  static I SetWord(const std::byte* p) {
    uint32_t word;
    std::memcpy(&word, p, sizeof word);
    return vdupq_n_u32(word);
  }
  static I And(I a, int32_t mask) { return vandq_u32(a, vdupq_n_u32(static_cast<uint32_t>(mask))); }
  static F FloatOfWords(I a) { return vcvtq_f32_s32(vreinterpretq_s32_u32(a)); }
  // Codes of up to 15 are the same bytes with a sign as without.
  static I AddDots(I sum, I codes, I x, I more_codes, I more_x) {
    int32x4_t dots =
        vdotq_s32(vreinterpretq_s32_u32(sum), vreinterpretq_s8_u32(codes), vreinterpretq_s8_u32(x));
    dots = vdotq_s32(dots, vreinterpretq_s8_u32(more_codes), vreinterpretq_s8_u32(more_x));
    return vreinterpretq_u32_s32(dots);
  }
  static I AddPairs(I sum, I codes, I x) {
    const int16x8_t c = vreinterpretq_s16_u32(codes);
    const int16x8_t q = vreinterpretq_s16_u32(x);
    const int32x4_t low = vmull_s16(vget_low_s16(c), vget_low_s16(q));
    const int32x4_t high = vmull_high_s16(c, q);
    return vreinterpretq_u32_s32(vaddq_s32(vreinterpretq_s32_u32(sum), vpaddq_s32(low, high)));
  }
  template <int kPerByte>
  static void StoreSignedBytes(std::byte* p, const F (&x)[4]) {
    constexpr uint8_t kOrders[2][16] = {{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15},
                                        {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}};
    const int16x8_t low =
        vcombine_s16(vmovn_s32(vcvtq_s32_f32(x[0])), vmovn_s32(vcvtq_s32_f32(x[1])));
    const int16x8_t high =
        vcombine_s16(vmovn_s32(vcvtq_s32_f32(x[2])), vmovn_s32(vcvtq_s32_f32(x[3])));
    const uint8x16_t bytes = vreinterpretq_u8_s8(vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
    vst1q_u8(static_cast<uint8_t*>(static_cast<void*>(p)),
             vqtbl1q_u8(bytes, vld1q_u8(kOrders[kPerByte == 2 ? 0 : 1])));
  }

  static F FloatBits(I a) { return vreinterpretq_f32_u32(a); }
  static I IntBits(F a) { return vreinterpretq_u32_f32(a); }
  template <int kBits>
  static I ShiftRight(I a) {
    if constexpr (kBits == 0) {
      return a;
    } else {
      return vshrq_n_u32(a, kBits);
    }
  }
  static F Bf16Low(I a) { return vreinterpretq_f32_u32(vshlq_n_u32(a, 16)); }
  static F Bf16High(I a) { return vreinterpretq_f32_u32(vandq_u32(a, vdupq_n_u32(0xffff0000u))); }

  template <int kBits>
  static F Code(I a) {
    return vcvtq_f32_u32(vandq_u32(a, vdupq_n_u32((1u << kBits) - 1u)));
  }

  template <int kBits, int kIndex>
  static F CodeInPlace(I a) {
    return vcvtq_f32_u32(vandq_u32(a, vdupq_n_u32(((1u << kBits) - 1u) << (kBits * kIndex))));
  }

  template <int kGroups>
  static F SpreadBf16(const uint16_t* p) {
    if constexpr (kGroups == 1) {
      return vreinterpretq_f32_u32(vdupq_n_u32(static_cast<uint32_t>(*p) << 16));
    } else {
      static_assert(kGroups == 2);
      const I words = {p[0], p[0], p[1], p[1]};
      return vreinterpretq_f32_u32(vshlq_n_u32(words, 16));
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
  [[gnu::always_inline]] static void Prefetch(const void* p) { __builtin_prefetch(p); }

 private:
  static F PowerOfTwo(int32x4_t n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
  }
};

}  // namespace mference::cpu::neon
