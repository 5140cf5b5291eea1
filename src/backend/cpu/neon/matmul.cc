#include "backend/cpu/tables.h"

namespace mference::cpu::neon {

void FillMatmul(Kernels& table) { scalar::FillMatmul(table); }

}  // namespace mference::cpu::neon
