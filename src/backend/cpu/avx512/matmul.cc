#include "backend/cpu/tables.h"

namespace mference::cpu::avx512 {

void FillMatmul(Kernels& table) { scalar::FillMatmul(table); }

}  // namespace mference::cpu::avx512
