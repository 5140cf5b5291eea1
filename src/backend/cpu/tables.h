// What each instruction set's folder provides to the dispatcher. Internal to the kernels.
//
// Every folder has the same files with the same functions: `matmul.cc`, `quantised_matmul.cc` (part
// of `matmul.cc` in the scalar folder), `elementwise.cc`, `attention.cc` and `recurrent.cc` each
// fill their part of the table, `kernels.cc` puts the table together. The scalar folder is the
// reference and spells the loops out; the SIMD folders instantiate the bodies in simd/ with their
// own `vec.h`.
#pragma once

#include "backend/cpu/kernels.h"

namespace mference::cpu {

namespace scalar {
const Kernels& Table();
void FillMatmul(Kernels& table);
void FillElementwise(Kernels& table);
void FillAttention(Kernels& table);
void FillRecurrent(Kernels& table);
}  // namespace scalar

namespace avx2 {
const Kernels& Table();
const Kernels& VnniTable();  // for CPUs with AVX-VNNI
void FillMatmul(Kernels& table);
void FillQuantisedMatmul(Kernels& table);
void FillElementwise(Kernels& table);
void FillAttention(Kernels& table);
void FillRecurrent(Kernels& table);
}  // namespace avx2

namespace avx512 {
const Kernels& Table();
void FillMatmul(Kernels& table);
void FillQuantisedMatmul(Kernels& table);
void FillQuantisedMatmulVnni(Kernels& table);  // for CPUs with AVX512-VNNI
void FillElementwise(Kernels& table);
void FillAttention(Kernels& table);
void FillRecurrent(Kernels& table);
}  // namespace avx512

namespace neon {
const Kernels& Table();
const Kernels& I8mmTable();  // for CPUs with 8-bit matrix products
void FillMatmul(Kernels& table);
void FillQuantisedMatmul(Kernels& table);
void FillElementwise(Kernels& table);
void FillAttention(Kernels& table);
void FillRecurrent(Kernels& table);
}  // namespace neon

}  // namespace mference::cpu
