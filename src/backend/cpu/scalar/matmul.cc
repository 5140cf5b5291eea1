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

// Prepared: for each row its codes, then for each block f, z and the sum of x.
struct BlockFactors {
  float f;
  float z;
  float sum_of_x;
};

size_t QuantisedRowBytes(const WeightMatrix& shape) {
  const auto cols = static_cast<size_t>(shape.cols);
  return cols + cols / static_cast<size_t>(ActivationBlock(shape)) * sizeof(BlockFactors);
}

size_t QuantisedPreparedBytes(const WeightMatrix& shape, int n) {
  return static_cast<size_t>(n) * QuantisedRowBytes(shape);
}

void QuantisedPrepare(const WeightMatrix& shape, const float* x, ptrdiff_t x_stride, int /*n*/,
                      int begin, int end, std::byte* prepared) {
  const int width = ActivationBlock(shape);
  for (int i = begin; i < end; ++i) {
    std::byte* codes = prepared + static_cast<size_t>(i) * QuantisedRowBytes(shape);
    std::byte* factors_at = codes + shape.cols;
    const float* const row = x + i * x_stride;
    for (const float* block = row; block < row + shape.cols; block += width) {
      const auto [low, high] = std::minmax_element(block, block + width);
      const float range = *high - *low;
      const float per_unit = range > 0 ? 255.0f / range : 0.0f;
      int sum = 0;
      for (int c = 0; c < width; ++c) {
        const int q = static_cast<int>(std::nearbyint((block[c] - *low) * per_unit)) - 128;
        sum += q;
        *codes++ = static_cast<std::byte>(q);
      }
      BlockFactors factors;
      factors.f = range / 255.0f;
      factors.z = *low + 128.0f * factors.f;
      factors.sum_of_x =
          factors.f * static_cast<float>(sum) + static_cast<float>(width) * factors.z;
      std::memcpy(factors_at, &factors, sizeof factors);
      factors_at += sizeof factors;
    }
  }
}

void QuantisedPlace(const WeightMatrix& shape, const std::byte* row, int /*n*/, int i,
                    std::byte* prepared) {
  const size_t bytes = QuantisedRowBytes(shape);
  std::memcpy(prepared + static_cast<size_t>(i) * bytes, row, bytes);
}

float QuantisedProduct(const WeightMatrix& w, int row, const std::byte* prepared) {
  const std::byte* const data = w.data + static_cast<size_t>(row) * RowBytes(w);
  const int bits = BitsPerValue(w.format);
  const int per_byte = 8 / bits;
  const int groups = w.cols / w.group;
  const int width = ActivationBlock(w);
  const std::byte* factors_at = prepared + w.cols;
  float total = 0;
  for (int group = 0; group < groups; ++group) {
    float product = 0;
    float sum_of_x = 0;
    for (int begin = group * w.group; begin < (group + 1) * w.group; begin += width) {
      int dots = 0;
      int codes = 0;
      for (int c = begin; c < begin + width; ++c) {
        const int code = (std::to_integer<int>(data[c / per_byte]) >> (bits * (c % per_byte))) &
                         ((1 << bits) - 1);
        dots += code * std::to_integer<int8_t>(prepared[c]);
        codes += code;
      }
      BlockFactors factors;
      std::memcpy(&factors, factors_at, sizeof factors);
      factors_at += sizeof factors;
      product = std::fma(static_cast<float>(dots), factors.f, product);
      product = std::fma(static_cast<float>(codes), factors.z, product);
      sum_of_x += factors.sum_of_x;
    }
    const size_t at = static_cast<size_t>(row) * groups + group;
    total = std::fma(FloatFromBf16(w.scales[at]), product, total);
    total = std::fma(FloatFromBf16(w.biases[at]), sum_of_x, total);
  }
  return total;
}

void QuantisedMatmul(const WeightMatrix& w, const std::byte* prepared, int n, float* y,
                     ptrdiff_t y_stride, int row_begin, int row_end) {
  for (int i = 0; i < n; ++i) {
    const std::byte* const x = prepared + static_cast<size_t>(i) * QuantisedRowBytes(w);
    for (int r = row_begin; r < row_end; ++r) y[i * y_stride + r] = QuantisedProduct(w, r, x);
  }
}

// Prepared: codes, then for each group f and f * sum of q.
size_t SingleRowPreparedBytes(const WeightMatrix& shape) {
  return static_cast<size_t>(shape.cols) * sizeof(int16_t) +
         static_cast<size_t>(shape.cols / shape.group) * 2 * sizeof(float);
}

void SingleRowPrepare(const WeightMatrix& shape, const float* x, std::byte* prepared) {
  std::byte* factors_at = prepared + static_cast<size_t>(shape.cols) * sizeof(int16_t);
  for (int begin = 0; begin < shape.cols; begin += shape.group) {
    float largest = 0;
    for (int c = begin; c < begin + shape.group; ++c) largest = std::max(largest, std::abs(x[c]));
    const float inverse = largest > 0 ? kSingleRowTop / largest : 0.0f;
    int sum = 0;
    for (int c = begin; c < begin + shape.group; ++c) {
      const auto q = static_cast<int16_t>(std::nearbyint(x[c] * inverse));
      sum += q;
      std::memcpy(prepared + static_cast<size_t>(c) * sizeof q, &q, sizeof q);
    }
    const float factor = largest / kSingleRowTop;
    const float factors[2] = {factor, factor * static_cast<float>(sum)};
    std::memcpy(factors_at, factors, sizeof factors);
    factors_at += sizeof factors;
  }
}

void SingleRowMatmul(const WeightMatrix& w, const std::byte* prepared, float* y, int row_begin,
                     int row_end) {
  const int bits = BitsPerValue(w.format);
  const int per_byte = 8 / bits;
  const int groups = w.cols / w.group;
  for (int r = row_begin; r < row_end; ++r) {
    const std::byte* const data = w.data + static_cast<size_t>(r) * RowBytes(w);
    const std::byte* factors_at = prepared + static_cast<size_t>(w.cols) * sizeof(int16_t);
    float total = 0;
    for (int group = 0; group < groups; ++group) {
      int dots = 0;
      for (int c = group * w.group; c < (group + 1) * w.group; ++c) {
        int16_t q = 0;
        std::memcpy(&q, prepared + static_cast<size_t>(c) * sizeof q, sizeof q);
        dots += ((std::to_integer<int>(data[c / per_byte]) >> (bits * (c % per_byte))) &
                 ((1 << bits) - 1)) *
                q;
      }
      float factors[2];
      std::memcpy(factors, factors_at, sizeof factors);
      factors_at += sizeof factors;
      const size_t at = static_cast<size_t>(r) * groups + group;
      total = std::fma(static_cast<float>(dots), FloatFromBf16(w.scales[at]) * factors[0], total);
      total = std::fma(FloatFromBf16(w.biases[at]), factors[1], total);
    }
    y[r] = total;
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
  table.quantised_prepared_bytes = QuantisedPreparedBytes;
  table.quantised_prepare = QuantisedPrepare;
  table.quantised_place = QuantisedPlace;
  table.quantised_matmul = QuantisedMatmul;
  table.single_row_prepared_bytes = SingleRowPreparedBytes;
  table.single_row_prepare = SingleRowPrepare;
  table.single_row_matmul = SingleRowMatmul;
  table.dequantize_row = DequantizeRow;
}

}  // namespace mference::cpu::scalar
