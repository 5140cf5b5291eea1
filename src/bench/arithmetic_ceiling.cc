#include "bench/arithmetic_ceiling.h"

#include <algorithm>
#include <cstdint>

#include "bench/together.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

namespace mference::bench {
namespace {

constexpr int kPasses = 8;
// Iterations of a pass: some 5 ms.
constexpr int64_t kRounds = 1 << 20;
// Chains that do not depend on each other: latency (4 cycles) times issue (2 per cycle) and a few
// more, within 16 registers.
constexpr int kChains = 12;

// A loop over kChains registers returns the operations it has done.
using Loop = double (*)();

struct Candidate {
  const char* type;
  const char* instruction;
  bool (*supported)();
  Loop loop;
};

// Keeps the compiler from computing a chain's end directly, or from dropping it.
#define MFERENCE_KEEP(chain, constraint) asm volatile("" : "+" constraint(chain))

// The body of a loop: chains that start at `start`, and the statement `step` that changes one
// of them in `operations`. A macro, since a function called from one with a target attribute does
// not inherit it, and would not be inlined.
#define MFERENCE_PEAK_LOOP(Register, constraint, operations, start, step)   \
  Register chains[kChains];                                                 \
  _Pragma("GCC unroll 12") for (Register & chain : chains) chain = (start); \
  for (int64_t round = 0; round < kRounds; ++round) {                       \
    _Pragma("GCC unroll 12") for (Register & chain : chains) {              \
      step;                                                                 \
      MFERENCE_KEEP(chain, constraint);                                     \
    }                                                                       \
  }                                                                         \
  return (operations)*kChains * kRounds

#if defined(__x86_64__)

bool HasLeaf7(unsigned leaf, unsigned bit, int reg) {
  unsigned values[4] = {};
  if (__get_cpuid_count(7, leaf, &values[0], &values[1], &values[2], &values[3]) == 0) return false;
  return (values[reg] >> bit & 1) != 0;
}
constexpr int kEax = 0, kEcx = 2;

bool HasFma() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool HasAvx2() { return __builtin_cpu_supports("avx2"); }
bool HasAvx512() { return __builtin_cpu_supports("avx512f"); }
bool HasBf16() { return HasAvx512() && HasLeaf7(1, 5, kEax); }
bool HasVnni512() { return HasAvx512() && HasLeaf7(0, 11, kEcx); }
bool HasVnni256() { return HasAvx2() && HasLeaf7(1, 4, kEax); }

__attribute__((target("avx2,fma"))) double FmaAvx2() {
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
  MFERENCE_PEAK_LOOP(__m256, "x", 2.0 * 8, _mm256_set1_ps(1), chain = _mm256_fmadd_ps(chain, x, y));
}

__attribute__((target("avx512f"))) double FmaAvx512() {
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
  MFERENCE_PEAK_LOOP(__m512, "v", 2.0 * 16, _mm512_set1_ps(1),
                     chain = _mm512_fmadd_ps(chain, x, y));
}

__attribute__((target("avx512f,avx512bw,avx512bf16"))) double Bf16Avx512() {
  const auto x = (__m512bh)_mm512_set1_epi16(0x3f80);
  MFERENCE_PEAK_LOOP(__m512, "v", 2.0 * 32, _mm512_set1_ps(1),
                     chain = _mm512_dpbf16_ps(chain, x, x));
}

__attribute__((target("avx512f,avx512vnni"))) double VnniAvx512() {
  const __m512i x = _mm512_set1_epi32(0x03030303), y = _mm512_set1_epi32(0x05050505);
  MFERENCE_PEAK_LOOP(__m512i, "v", 2.0 * 64, _mm512_set1_epi32(1),
                     chain = _mm512_dpbusd_epi32(chain, x, y));
}

__attribute__((target("avx2,avxvnni"))) double VnniAvx2() {
  const __m256i x = _mm256_set1_epi32(0x03030303), y = _mm256_set1_epi32(0x05050505);
  MFERENCE_PEAK_LOOP(__m256i, "x", 2.0 * 32, _mm256_set1_epi32(1),
                     chain = _mm256_dpbusd_avx_epi32(chain, x, y));
}

// Three instructions where dot products are not built in.
__attribute__((target("avx2"))) double MaddAvx2() {
  __m256i x = _mm256_set1_epi8(3);
  const __m256i y = _mm256_set1_epi8(5), ones = _mm256_set1_epi16(1);
  MFERENCE_PEAK_LOOP(
      __m256i, "x", 2.0 * 32, _mm256_set1_epi32(1), MFERENCE_KEEP(x, "x");
      chain = _mm256_add_epi32(chain, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones)));
}

constexpr Candidate kCandidates[] = {
    {"fp32", "avx512 fma", HasAvx512, FmaAvx512},
    {"fp32", "avx2 fma", HasFma, FmaAvx2},
    {"bf16", "avx512-bf16 dpbf16", HasBf16, Bf16Avx512},
    {"int8", "avx512-vnni dpbusd", HasVnni512, VnniAvx512},
    {"int8", "avx-vnni dpbusd", HasVnni256, VnniAvx2},
    {"int8", "avx2 maddubs", HasAvx2, MaddAvx2},
};

#elif defined(__aarch64__)

// Bits of the Linux ABI.
bool HasDotProduct() { return (getauxval(AT_HWCAP) & (1ul << 20)) != 0; }
bool HasI8mm() { return (getauxval(AT_HWCAP2) & (1ul << 13)) != 0; }
bool HasBf16() { return (getauxval(AT_HWCAP2) & (1ul << 14)) != 0; }
bool Always() { return true; }

double FmaNeon() {
  const float32x4_t x = vdupq_n_f32(0.999f), y = vdupq_n_f32(1e-3f);
  MFERENCE_PEAK_LOOP(float32x4_t, "w", 2.0 * 4, vdupq_n_f32(1), chain = vfmaq_f32(y, chain, x));
}

__attribute__((target("arch=armv8.2-a+dotprod"))) double DotNeon() {
  const int8x16_t x = vdupq_n_s8(3);
  MFERENCE_PEAK_LOOP(int32x4_t, "w", 2.0 * 16, vdupq_n_s32(1), chain = vdotq_s32(chain, x, x));
}

__attribute__((target("arch=armv8.2-a+i8mm"))) double MatrixNeon() {
  const int8x16_t x = vdupq_n_s8(3);
  MFERENCE_PEAK_LOOP(int32x4_t, "w", 2.0 * 32, vdupq_n_s32(1), chain = vmmlaq_s32(chain, x, x));
}

__attribute__((target("arch=armv8.2-a+bf16"))) double Bf16Neon() {
  uint16_t one = 0x3f80;
  MFERENCE_KEEP(one, "r");  // GCC 12 would load a known one as a half, which the target may lack
  const bfloat16x8_t x = vreinterpretq_bf16_u16(vdupq_n_u16(one));
  MFERENCE_PEAK_LOOP(float32x4_t, "w", 2.0 * 16, vdupq_n_f32(1), chain = vbfmmlaq_f32(chain, x, x));
}

constexpr Candidate kCandidates[] = {
    {"fp32", "neon fma", Always, FmaNeon},
    {"bf16", "bfmmla", HasBf16, Bf16Neon},
    {"int8", "smmla", HasI8mm, MatrixNeon},
    {"int8", "sdot", HasDotProduct, DotNeon},
};

#else

double FmaScalar() { MFERENCE_PEAK_LOOP(float, "m", 2.0, 1, chain = chain * 0.999f + 1e-3f); }
bool Always() { return true; }

constexpr Candidate kCandidates[] = {{"fp32", "scalar", Always, FmaScalar}};

#endif

}  // namespace

std::vector<ArithmeticCeiling> MeasureArithmetic(int threads) {
  std::vector<ArithmeticCeiling> ceilings;
  for (const Candidate& candidate : kCandidates) {
    if (!candidate.supported()) continue;
    const std::vector<double> rates =
        RatesTogether(threads, kPasses, [&](int) { return candidate.loop(); });
    ceilings.push_back({.type = candidate.type,
                        .instruction = candidate.instruction,
                        .threads = threads,
                        .per_second = *std::max_element(rates.begin(), rates.end())});
  }
  return ceilings;
}

}  // namespace mference::bench
