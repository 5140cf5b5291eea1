#include "backend/cpu/simd/recurrent.h"

#include "backend/cpu/neon/vec.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::neon {

void FillRecurrent(Kernels& table) { simd::Recurrent<Vec>::Fill(table); }

}  // namespace mference::cpu::neon
