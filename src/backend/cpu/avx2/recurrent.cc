#include "backend/cpu/simd/recurrent.h"

#include "backend/cpu/avx2/vec.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::avx2 {

void FillRecurrent(Kernels& table) { simd::Recurrent<Vec>::Fill(table); }

}  // namespace mference::cpu::avx2
