#include "backend/cpu/tables.h"

namespace mference::cpu::avx2 {

void FillAttention(Kernels& table) { scalar::FillAttention(table); }

}  // namespace mference::cpu::avx2
