#include "backend/cpu/neon/vec.h"
#include "backend/cpu/simd/quantised_matmul.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::neon {
namespace {

// FEAT_I8MM: one instruction multiplies 2 rows of 8 bytes with 2 others, twice the products of a
// dot product. On server CPUs since 2020, on Apple's since 2022.
struct I8mmVec : Vec {
  // 16 integer sums, 4 vectors of codes and 4 of activations: 24 of 32 registers. Rows go in pairs.
  static constexpr int kQuantisedRows = 8;

  // As QuantisedTile has it: q is [kRows][kBlock], w [word][2 * kLanes][4], all bytes.
  template <int kRows, int kBlock>
  [[gnu::always_inline]] static void MultiplyBlock(const std::byte* q, const std::byte* w,
                                                   I (&sum)[kRows][2]) {
    constexpr int kPairs = (kRows + 1) / 2;
    constexpr int kWordBytes = 2 * kLanes * 4;
    // Rows of activations 2 p and 2 p + 1 times weight rows 2 c and 2 c + 1; an odd last row of
    // activations is its own partner.
    int32x4_t products[kPairs][kLanes];
    simd::Unroll<kPairs * kLanes>([&](auto i) __attribute__((always_inline)) {
      products[i / kLanes][i % kLanes] = vdupq_n_s32(0);
    });
    for (int at = 0; at < kBlock; at += 16, w += 4 * kWordBytes) {
      // 8 bytes of each of two rows of activations, and the next 8.
      int8x16_t x[kPairs][2];
      simd::Unroll<kPairs>([&](auto pair) __attribute__((always_inline)) {
        constexpr int kFirst = 2 * pair;
        constexpr int kSecond = kFirst + 1 < kRows ? kFirst + 1 : kFirst;
        const uint64x2_t first = vreinterpretq_u64_u32(LoadWords(q + kFirst * kBlock + at));
        const uint64x2_t second = vreinterpretq_u64_u32(LoadWords(q + kSecond * kBlock + at));
        x[pair][0] = vreinterpretq_s8_u64(vzip1q_u64(first, second));
        x[pair][1] = vreinterpretq_s8_u64(vzip2q_u64(first, second));
      });
      simd::Unroll<2>([&](auto half) __attribute__((always_inline)) {
        simd::Unroll<2>([&](auto v) __attribute__((always_inline)) {
          const std::byte* const from = w + half * 2 * kWordBytes + v * kLanes * 4;
          const I even = LoadWords(from);
          const I odd = LoadWords(from + kWordBytes);
          const int8x16_t left = vreinterpretq_s8_u32(vzip1q_u32(even, odd));
          const int8x16_t right = vreinterpretq_s8_u32(vzip2q_u32(even, odd));
          simd::Unroll<kPairs>([&](auto pair) __attribute__((always_inline)) {
            int32x4_t(&into)[kLanes] = products[pair];
            into[2 * v] = vmmlaq_s32(into[2 * v], x[pair][half], left);
            into[2 * v + 1] = vmmlaq_s32(into[2 * v + 1], x[pair][half], right);
          });
        });
      });
    }
    simd::Unroll<kRows>([&](auto i) __attribute__((always_inline)) {
      simd::Unroll<2>([&](auto v) __attribute__((always_inline)) {
        const uint64x2_t left = vreinterpretq_u64_s32(products[i / 2][2 * v]);
        const uint64x2_t right = vreinterpretq_u64_s32(products[i / 2][2 * v + 1]);
        sum[i][v] =
            vreinterpretq_u32_u64(i % 2 == 0 ? vzip1q_u64(left, right) : vzip2q_u64(left, right));
      });
    });
  }
};

}  // namespace

const Kernels& I8mmTable() {
  static const Kernels table = [] {
    Kernels t = Table();
    t.name = "neon-i8mm";
    simd::QuantisedMatmulTable<I8mmVec>::Fill(t);
    return t;
  }();
  return table;
}

}  // namespace mference::cpu::neon
