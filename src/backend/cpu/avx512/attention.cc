#include "backend/cpu/simd/attention.h"

#include "backend/cpu/avx512/vec.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::avx512 {

void FillAttention(Kernels& table) { simd::Attention<Vec>::Fill(table); }

}  // namespace mference::cpu::avx512
