#include "backend/cpu/simd/matmul.h"

#include "backend/cpu/avx512/vec.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::avx512 {

void FillMatmul(Kernels& table) { simd::MatmulTable<Vec>::Fill(table); }

}  // namespace mference::cpu::avx512
