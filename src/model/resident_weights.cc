#include "model/resident_weights.h"

#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/float16.h"

namespace mference {
namespace {

WeightEncoding PlainEncoding(const ResidentTensor& tensor) {
  if (tensor.dtype == DType::kBf16) return WeightEncoding::kBf16;
  if (tensor.dtype == DType::kF32) return WeightEncoding::kF32;
  Fail(ErrorCode::kTensorSizeMismatch, "{}: expected BF16 or F32 values", tensor.name);
}

void RequireMatrixShape(int32_t layer, const char* what, const ExpertMatrix& matrix, int32_t rows,
                        int32_t cols) {
  if (matrix.rows == static_cast<uint64_t>(rows) && matrix.columns == static_cast<uint64_t>(cols)) {
    return;
  }
  Fail(ErrorCode::kLayoutCorrupt, "layer {}: expert matrix {} is [{}, {}], expected [{}, {}]",
       layer, what, matrix.rows, matrix.columns, rows, cols);
}

}  // namespace

MatrixWeights ResidentWeights::Matrix(const std::string& name, int32_t rows, int32_t cols) const {
  const ResidentTensor& tensor = directory_.Tensor(name);
  const std::array<uint32_t, 2> shape = {static_cast<uint32_t>(rows), static_cast<uint32_t>(cols)};
  MatrixWeights weights{.name = name,
                        .rows = rows,
                        .cols = cols,
                        .data = directory_.Bytes(tensor.weight).data(),
                        .file = &directory_.weights_file(),
                        .data_offset = tensor.weight.offset,
                        .scales_offset = tensor.scales.offset,
                        .biases_offset = tensor.biases.offset};
  if (tensor.dtype == DType::kU32) {
    const AffineEncoding encoding = RequireAffine(tensor, shape);
    weights.encoding = WeightEncoding::kAffine;
    weights.bits = encoding.bits;
    weights.group = static_cast<int32_t>(encoding.group_size);
    weights.scales = directory_.Bytes(tensor.scales).data();
    weights.biases = directory_.Bytes(tensor.biases).data();
  } else {
    weights.encoding = PlainEncoding(tensor);
    RequirePlain(tensor, tensor.dtype, shape);
  }
  return weights;
}

VectorWeights ResidentWeights::Vector(const std::string& name, int32_t size) const {
  return Flat(name, {size});
}

VectorWeights ResidentWeights::Flat(const std::string& name,
                                    std::initializer_list<int32_t> shape) const {
  const ResidentTensor& tensor = directory_.Tensor(name);
  const WeightEncoding encoding = PlainEncoding(tensor);
  const std::vector<uint32_t> expected(shape.begin(), shape.end());
  RequirePlain(tensor, tensor.dtype, expected);
  return {.name = name,
          .encoding = encoding,
          .size = static_cast<int32_t>(tensor.element_count()),
          .data = directory_.Bytes(tensor.weight).data()};
}

float ResidentWeights::Scalar(const std::string& name) const {
  const VectorWeights weights = Vector(name, 1);
  if (weights.encoding == WeightEncoding::kF32) {
    float value = 0;
    std::memcpy(&value, weights.data, sizeof(value));
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, weights.data, sizeof(bits));
  return FloatFromBf16(bits);
}

ExpertLayerWeights ResidentWeights::Experts(int32_t layer, int32_t hidden, int32_t intermediate,
                                            Activation activation) const {
  const Layout& layout = directory_.layout();
  const LayerLayout& experts = layout.layers[static_cast<size_t>(layer)];
  RequireMatrixShape(layer, "gate", experts.blob.gate, intermediate, hidden);
  RequireMatrixShape(layer, "up", experts.blob.up, intermediate, hidden);
  RequireMatrixShape(layer, "down", experts.blob.down, hidden, intermediate);
  return {.store_layer = layer,
          .experts = static_cast<int32_t>(layout.experts_per_layer),
          .activation = activation,
          .blob = experts.blob};
}

}  // namespace mference
