#include "backend/cpu/simd/elementwise.h"

#include "backend/cpu/avx512/vec.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::avx512 {

void FillElementwise(Kernels& table) { simd::Elementwise<Vec>::Fill(table); }

}  // namespace mference::cpu::avx512
