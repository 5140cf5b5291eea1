// A layer's resident tensors, as families whose checkpoints name them
// `language_model.model.layers.N` load them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <string>

#include "backend/backend.h"
#include "model/resident_weights.h"

namespace mference {

// Borrows what it is made from. Throws as `ResidentWeights` and `Backend::Load*` do.
class LayerLoader {
 public:
  LayerLoader(const ResidentWeights& resident, Backend& backend, int32_t hidden_size, int32_t index)
      : resident_(resident),
        backend_(backend),
        hidden_size_(hidden_size),
        prefix_(fmt::format("language_model.model.layers.{}.", index)) {}

  // [rows, hidden], of normed states.
  Matrix FromHidden(const std::string& name, int32_t rows) const {
    return Projection(name, rows, hidden_size_, MatrixInput::kNormed);
  }
  // [hidden, cols], of inner values.
  Matrix ToHidden(const std::string& name, int32_t cols) const {
    return Projection(name, hidden_size_, cols, MatrixInput::kInner);
  }
  Vector Norm(const std::string& name, int32_t size) const { return Plain(name + ".weight", size); }
  Vector HiddenNorm(const std::string& name) const { return Norm(name, hidden_size_); }
  Vector Plain(const std::string& name, int32_t size, float factor = 1.0f) const {
    return backend_.LoadVector(resident_.Vector(prefix_ + name, size), factor);
  }
  // A tensor of several dimensions as one vector.
  Vector Flat(const std::string& name, std::initializer_list<int32_t> shape) const {
    return backend_.LoadVector(resident_.Flat(prefix_ + name, shape));
  }
  float Scalar(const std::string& name) const { return resident_.Scalar(prefix_ + name); }

 private:
  Matrix Projection(const std::string& name, int32_t rows, int32_t cols, MatrixInput input) const {
    return backend_.LoadMatrix(resident_.Matrix(prefix_ + name + ".weight", rows, cols), input);
  }

  const ResidentWeights& resident_;
  Backend& backend_;
  const int32_t hidden_size_;
  const std::string prefix_;
};

}  // namespace mference
