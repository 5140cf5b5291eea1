#include "backend/cpu/simd/attention.h"

#include "backend/cpu/neon/vec.h"
#include "backend/cpu/tables.h"

namespace mference::cpu::neon {

void FillAttention(Kernels& table) { simd::Attention<Vec>::Fill(table); }

}  // namespace mference::cpu::neon
