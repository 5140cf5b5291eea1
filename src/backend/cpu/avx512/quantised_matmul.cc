#include "backend/cpu/simd/quantised_matmul.h"

#include "backend/cpu/avx512/vec.h"
#include "backend/cpu/simd/single_row.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::avx512 {

void FillQuantisedMatmul(Kernels& table) {
  if (__builtin_cpu_supports("avx512vnni")) return FillQuantisedMatmulVnni(table);
  simd::QuantisedMatmulTable<Vec>::Fill(table);
  simd::SingleRowTable<Vec>::Fill(table);
}

}  // namespace mference::cpu::avx512
