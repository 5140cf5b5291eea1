#include "backend/cpu/simd/attention.h"

#include "backend/cpu/avx2/vec.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::avx2 {

void FillAttention(Kernels& table) { simd::Attention<Vec>::Fill(table); }

}  // namespace mference::cpu::avx2
