#include "backend/cpu/simd/recurrent.h"

#include "backend/cpu/avx512/vec.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::avx512 {

void FillRecurrent(Kernels& table) { simd::Recurrent<Vec>::Fill(table); }

}  // namespace mference::cpu::avx512
