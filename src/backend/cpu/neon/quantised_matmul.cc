#include "backend/cpu/simd/quantised_matmul.h"

#include "backend/cpu/neon/vec.h"
#include "backend/cpu/simd/single_row.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::neon {

void FillQuantisedMatmul(Kernels& table) {
  simd::QuantisedMatmulTable<Vec>::Fill(table);
  simd::SingleRowTable<Vec>::Fill(table);
}

}  // namespace mference::cpu::neon
