#include "backend/cpu/tables.h"

namespace mference::cpu::avx2 {

const Kernels& Table() {
  static const Kernels table = [] {
    Kernels t;
    t.name = "avx2";
    FillMatmul(t);
    FillQuantisedMatmul(t);
    FillElementwise(t);
    FillAttention(t);
    FillRecurrent(t);
    return t;
  }();
  return table;
}

}  // namespace mference::cpu::avx2
