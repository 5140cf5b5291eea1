#include "backend/cpu/tables.h"

namespace mference::cpu::avx2 {

void FillMatmul(Kernels& table) { scalar::FillMatmul(table); }

}  // namespace mference::cpu::avx2
