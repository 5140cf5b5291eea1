#include "backend/cpu/tables.h"

namespace mference::cpu::avx2 {

void FillElementwise(Kernels& table) { scalar::FillElementwise(table); }

}  // namespace mference::cpu::avx2
