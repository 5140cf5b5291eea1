#include "backend/cpu/tables.h"

namespace mference::cpu::neon {

const Kernels& Table() {
  static const Kernels table = [] {
    Kernels t;
    t.name = "neon";
    FillMatmul(t);
    FillQuantisedMatmul(t);
    FillElementwise(t);
    FillAttention(t);
    FillRecurrent(t);
    return t;
  }();
  return table;
}

}  // namespace mference::cpu::neon
