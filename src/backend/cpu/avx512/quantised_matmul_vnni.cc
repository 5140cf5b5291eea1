#include "backend/cpu/avx512/vec.h"
#include "backend/cpu/simd/quantised_matmul.h"
#include "backend/cpu/simd/single_row.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::avx512 {
namespace {

struct VnniVec : Vec {
  static constexpr bool kByteDots = true;
  static I AddByteDots(I sum, I codes, I x) { return _mm512_dpbusd_epi32(sum, codes, x); }
  static I AddDots(I sum, I codes, I x, I more_codes, I more_x) {
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, codes, x), more_codes, more_x);
  }
};

}  // namespace

void FillQuantisedMatmulVnni(Kernels& table) {
  simd::QuantisedMatmulTable<VnniVec>::Fill(table);
  simd::SingleRowTable<VnniVec>::Fill(table);
}

}  // namespace mference::cpu::avx512
