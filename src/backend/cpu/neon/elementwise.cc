#include "backend/cpu/simd/elementwise.h"

#include "backend/cpu/neon/vec.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::neon {

void FillElementwise(Kernels& table) { simd::Elementwise<Vec>::Fill(table); }

}  // namespace mference::cpu::neon
