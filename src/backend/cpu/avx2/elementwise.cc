#include "backend/cpu/simd/elementwise.h"

#include "backend/cpu/avx2/vec.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::avx2 {

void FillElementwise(Kernels& table) { simd::Elementwise<Vec>::Fill(table); }

}  // namespace mference::cpu::avx2
