// Reference: weight matrices times activations, in the order the definition is written.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/tables.h"
#include "base/float16.h"

namespace mference::cpu::scalar {
namespace {

// The stored value of W[row, col]: for affine weights scale * code + bias with one rounding.
float Value(const WeightMatrix& w, int row, int col) {
  const std::byte* data = w.data + static_cast<size_t>(row) * RowBytes(w);
  switch (w.format) {
    case WeightFormat::kF32: {
      float value;
      std::memcpy(&value, data + static_cast<size_t>(col) * 4, 4);
      return value;
    }
    case WeightFormat::kBf16: {
      uint16_t bits;
      std::memcpy(&bits, data + static_cast<size_t>(col) * 2, 2);
      return FloatFromBf16(bits);
    }
    default: {
      const int bits = BitsPerValue(w.format);
      const int per_byte = 8 / bits;
      const auto packed = std::to_integer<unsigned>(data[col / per_byte]);
      const unsigned code = (packed >> (bits * (col % per_byte))) & ((1u << bits) - 1u);
      const size_t group = static_cast<size_t>(row) * (w.cols / w.group) + col / w.group;
      return std::fma(FloatFromBf16(w.scales[group]), static_cast<float>(code),
                      FloatFromBf16(w.biases[group]));
    }
  }
}

size_t PreparedFloats(const WeightMatrix& shape, int n) {
  return static_cast<size_t>(n) * static_cast<size_t>(shape.cols);
}

// The reference needs no rearrangement: prepared activations are the rows, tightly packed.
void Prepare(const WeightMatrix& shape, const float* x, ptrdiff_t x_stride, int /*n*/, int begin,
             int end, float* prepared) {
  for (int i = begin; i < end; ++i) {
    std::copy_n(x + i * x_stride, shape.cols, prepared + static_cast<ptrdiff_t>(i) * shape.cols);
  }
}

void Matmul(const WeightMatrix& w, const float* prepared, int n, float* y, ptrdiff_t y_stride,
            int row_begin, int row_end) {
  for (int r = row_begin; r < row_end; ++r) {
    for (int i = 0; i < n; ++i) y[i * y_stride + r] = 0.0f;
    for (int c = 0; c < w.cols; ++c) {
      const float value = Value(w, r, c);
      for (int i = 0; i < n; ++i) {
        float& sum = y[i * y_stride + r];
        sum = std::fma(value, prepared[static_cast<ptrdiff_t>(i) * w.cols + c], sum);
      }
    }
  }
}

void DequantizeRow(const WeightMatrix& w, int row, float factor, float* out) {
  for (int c = 0; c < w.cols; ++c) out[c] = Value(w, row, c) * factor;
}

}  // namespace

void FillMatmul(Kernels& table) {
  table.matmul_row_tile = 1;
  table.matmul_prepared_floats = PreparedFloats;
  table.matmul_prepare = Prepare;
  table.matmul = Matmul;
  table.dequantize_row = DequantizeRow;
}

}  // namespace mference::cpu::scalar
