#include "backend/cpu/avx2/vec.h"
#include "backend/cpu/simd/quantised_matmul.h"
#include "backend/cpu/simd/single_row.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::avx2 {
namespace {

// AVX-VNNI: byte dot products without AVX-512, on client CPUs since 2021.
struct VnniVec : Vec {
  static constexpr bool kByteDots = true;
  static I AddByteDots(I sum, I codes, I x) { return _mm256_dpbusd_avx_epi32(sum, codes, x); }
  static I AddDots(I sum, I codes, I x, I more_codes, I more_x) {
    return AddByteDots(AddByteDots(sum, codes, x), more_codes, more_x);
  }
};

}  // namespace

const Kernels& VnniTable() {
  static const Kernels table = [] {
    Kernels t = Table();
    t.name = "avx2-vnni";
    simd::QuantisedMatmulTable<VnniVec>::Fill(t);
    simd::SingleRowTable<VnniVec>::Fill(t);
    return t;
  }();
  return table;
}

}  // namespace mference::cpu::avx2
