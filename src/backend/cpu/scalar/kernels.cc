#include "backend/cpu/tables.h"

namespace mference::cpu::scalar {

const Kernels& Table() {
  static const Kernels table = [] {
    Kernels t;
    t.name = "scalar";
    FillMatmul(t);
    FillElementwise(t);
    FillAttention(t);
    FillRecurrent(t);
    return t;
  }();
  return table;
}

}  // namespace mference::cpu::scalar
