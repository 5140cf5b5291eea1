#include "backend/cpu/simd/matmul.h"

#include "backend/cpu/neon/vec.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::neon {

void FillMatmul(Kernels& table) { simd::MatmulTable<Vec>::Fill(table); }

}  // namespace mference::cpu::neon
