// Weight matrices for kernel tests.
#pragma once

#include "base/float16.h"
#include "kernels/kernel_testing.h"

namespace mference::cpu {

struct MatrixShape {
  WeightFormat format;
  int rows;
  int cols;
  int group;
};

// For messages; with the rows of activations where a test has several.
inline std::string Describe(const MatrixShape& s, int n = 1) {
  return "bits " + std::to_string(BitsPerValue(s.format)) + " [" + std::to_string(s.rows) + ", " +
         std::to_string(s.cols) + "] group " + std::to_string(s.group) + " rows of x " +
         std::to_string(n);
}

// A matrix in its stored form, and the same values in double.
struct TestMatrix {
  TestMatrix(WeightFormat format, int rows, int cols, int group)
      : data(static_cast<size_t>(rows) * static_cast<size_t>(cols) *
             static_cast<size_t>(BitsPerValue(format)) / 8),
        scales(IsAffine(format) ? static_cast<size_t>(rows * (cols / group)) : 0),
        biases(scales.size()),
        values(static_cast<size_t>(rows * cols)),
        magnitudes(values.size()) {
    view = {format, rows, cols, group, data.data(), scales.data(), biases.data()};
  }

  void Put(size_t i, unsigned code) {  // for affine formats
    const auto bits = static_cast<size_t>(BitsPerValue(view.format));
    const size_t group = i / static_cast<size_t>(view.group);
    data[i * bits / 8] |= static_cast<std::byte>(code << (i * bits % 8));
    const double scaled = static_cast<double>(FloatFromBf16(scales[group])) * code;
    const auto bias = static_cast<double>(FloatFromBf16(biases[group]));
    values[i] = scaled + bias;
    magnitudes[i] = std::abs(scaled) + std::abs(bias);
  }
  void Put(size_t i, float value) {  // for BF16 and FP32
    if (view.format == WeightFormat::kBf16) {
      const uint16_t bits = Bf16FromFloat(value);
      std::memcpy(data.data() + 2 * i, &bits, 2);
      value = FloatFromBf16(bits);
    } else {
      std::memcpy(data.data() + 4 * i, &value, 4);
    }
    values[i] = static_cast<double>(value);
    magnitudes[i] = std::abs(values[i]);
  }

  GuardedBuffer<std::byte> data;
  GuardedBuffer<uint16_t> scales;
  GuardedBuffer<uint16_t> biases;
  std::vector<double> values;      // [rows, cols]
  std::vector<double> magnitudes;  // |scale code| + |bias|: what rounding is relative to
  WeightMatrix view;
};

}  // namespace mference::cpu
