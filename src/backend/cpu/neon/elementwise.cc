#include "backend/cpu/tables.h"

namespace mference::cpu::neon {

void FillElementwise(Kernels& table) { scalar::FillElementwise(table); }

}  // namespace mference::cpu::neon
