// Looks resident tensors up in an opened model directory and checks them against what a family
// expects: the bridge from files to `Backend::Load*`.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "backend/backend.h"
#include "format/model_directory.h"

namespace mference {

// Borrows the directory, which must outlive every weight made from it: nothing is copied.
class ResidentWeights {
 public:
  explicit ResidentWeights(const ModelDirectory& directory) : directory_(directory) {}

  // Throws kTensorNotFound, or kTensorSizeMismatch when shape, type or byte counts differ from
  // [rows, cols] (bits and group are taken from the tensor's own sizes).
  MatrixWeights Matrix(const std::string& name, int32_t rows, int32_t cols) const;
  VectorWeights Vector(const std::string& name, int32_t size) const;
  // A tensor of several dimensions, row-major, as one vector.
  VectorWeights Flat(const std::string& name, std::initializer_list<int32_t> shape) const;
  // The value of a one-element tensor.
  float Scalar(const std::string& name) const;
  // The blobs of model layer `layer`: gate and up [intermediate, hidden], down [hidden,
  // intermediate]. Throws kLayoutCorrupt when they have other shapes.
  ExpertLayerWeights Experts(int32_t layer, int32_t hidden, int32_t intermediate,
                             Activation activation) const;

 private:
  const ModelDirectory& directory_;
};

}  // namespace mference
