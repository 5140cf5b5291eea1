// What a family expects of a resident tensor, against what the index says.
#include <algorithm>
#include <optional>

#include "base/error.h"
#include "format/resident_index.h"

namespace mference {
namespace {

[[noreturn]] void FailSize(const ResidentTensor& tensor, const std::string& expected) {
  Fail(ErrorCode::kTensorSizeMismatch,
       "tensor '{}': expected {}, found {} [{}] with {} weight, {} scale and {} bias bytes",
       tensor.name, expected, DTypeName(tensor.dtype), fmt::join(tensor.shape, ", "),
       tensor.weight.bytes, tensor.scales.bytes, tensor.biases.bytes);
}

bool HasShape(const ResidentTensor& tensor, std::span<const uint32_t> shape) {
  return shape.size() == static_cast<size_t>(tensor.rank()) &&
         std::equal(shape.begin(), shape.end(), tensor.shape.begin());
}

std::optional<AffineEncoding> EncodingOf(const ResidentTensor& tensor) {
  const uint64_t elements = tensor.element_count();
  const uint64_t columns = tensor.shape[static_cast<size_t>(tensor.rank() - 1)];
  const uint64_t rows = elements / columns;
  AffineEncoding encoding;
  for (const int bits : {2, 4, 8}) {
    if (columns * static_cast<uint64_t>(bits) % 32 == 0 &&
        tensor.weight.bytes == elements * static_cast<uint64_t>(bits) / 8) {
      encoding.bits = bits;
    }
  }
  const uint64_t groups = tensor.scales.bytes / (2 * rows);
  if (encoding.bits == 0 || tensor.dtype != DType::kU32 || groups == 0 || columns % groups != 0 ||
      tensor.scales.bytes != 2 * rows * groups || tensor.biases.bytes != tensor.scales.bytes) {
    return std::nullopt;
  }
  encoding.group_size = columns / groups;
  return encoding;
}

}  // namespace

void RequirePlain(const ResidentTensor& tensor, DType dtype, std::span<const uint32_t> shape) {
  if (tensor.dtype == dtype && HasShape(tensor, shape) && tensor.scales.bytes == 0 &&
      tensor.biases.bytes == 0 &&
      tensor.weight.bytes == tensor.element_count() * ElementBytes(dtype)) {
    return;
  }
  FailSize(tensor, fmt::format("{} [{}]", DTypeName(dtype), fmt::join(shape, ", ")));
}

AffineEncoding RequireAffine(const ResidentTensor& tensor, std::span<const uint32_t> shape) {
  const auto encoding = HasShape(tensor, shape) ? EncodingOf(tensor) : std::nullopt;
  if (!encoding) {
    FailSize(tensor, fmt::format("an affine [{}] of 2, 4 or 8 bits with scales and biases",
                                 fmt::join(shape, ", ")));
  }
  return *encoding;
}

void RequireAffine(const ResidentTensor& tensor, std::span<const uint32_t> shape,
                   const AffineEncoding& expected) {
  const auto encoding = HasShape(tensor, shape) ? EncodingOf(tensor) : std::nullopt;
  if (encoding != expected) {
    FailSize(tensor, fmt::format("an affine [{}] of {} bits, group {}", fmt::join(shape, ", "),
                                 expected.bits, expected.group_size));
  }
}

}  // namespace mference
