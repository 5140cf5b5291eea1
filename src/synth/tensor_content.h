// The bytes of synthetic tensors, computed where and when they are asked for.
//
// Nothing is stored but small vectors: a packed matrix of any size is a handful of numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace mference {

// Immutable; any number of threads may fill at once.
class TensorContent {
 public:
  TensorContent() = default;
  TensorContent(const TensorContent&) = delete;
  TensorContent& operator=(const TensorContent&) = delete;
  virtual ~TensorContent() = default;

  // Bytes [offset, offset + out.size()) of the tensor.
  virtual void Fill(uint64_t offset, std::span<std::byte> out) const = 0;
};

// An affine matrix (or a stack of them) with uniform codes: value = scale * code + bias.
//
// Every group draws a scale of either sign, between half and one and a half times the mean
// magnitude, and the bias that makes its values average nearly zero. Signs matter: with scales of
// one sign the bias rounding of all groups adds up to one direction that swamps the hidden state.
struct AffineStatistics {
  uint64_t stream = 0;
  int bits = 4;
  uint64_t columns = 0;
  double value_rms = 0;
  // What every value has besides: `row_offsets[row]` times the sign of its column group, +1 or -1.
  // One entry stands for all rows; none: no offset. The signs are one direction of the input.
  std::vector<float> row_offsets{};
  std::vector<float> direction{};  // [column groups], if there are offsets
};

constexpr uint64_t kSynthGroup = 64;  // columns that share a scale

// U32 [rows, columns * bits / 32], BF16 [rows, columns / 64] twice.
std::unique_ptr<TensorContent> AffineCodes(const AffineStatistics& statistics);
std::unique_ptr<TensorContent> AffineScales(const AffineStatistics& statistics);
std::unique_ptr<TensorContent> AffineBiases(const AffineStatistics& statistics);

std::unique_ptr<TensorContent> Bf16Vector(std::span<const double> values);

}  // namespace mference
