#include "backend/cpu/tables.h"

namespace mference::cpu::neon {

void FillAttention(Kernels& table) { scalar::FillAttention(table); }

}  // namespace mference::cpu::neon
