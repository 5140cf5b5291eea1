#include "backend/cpu/tables.h"

namespace mference::cpu::avx512 {

void FillElementwise(Kernels& table) { scalar::FillElementwise(table); }

}  // namespace mference::cpu::avx512
