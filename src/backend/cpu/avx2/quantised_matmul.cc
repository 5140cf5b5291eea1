#include "backend/cpu/simd/quantised_matmul.h"

#include "backend/cpu/avx2/vec.h"
#include "backend/cpu/simd/single_row.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::avx2 {

void FillQuantisedMatmul(Kernels& table) {
  simd::QuantisedMatmulTable<Vec>::Fill(table);
  simd::SingleRowTable<Vec>::Fill(table);
}

}  // namespace mference::cpu::avx2
