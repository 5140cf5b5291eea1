// Element types of stored tensors: what a safetensors header and a resident index can name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace mference {

// The values are the dtype byte of a resident index entry.
enum class DType : uint8_t {
  kU32 = 0,  // packed quantised codes
  kBf16 = 1,
  kF16 = 2,
  kF32 = 3,
  kI64 = 4,
  kI32 = 5,
};

constexpr uint8_t kDTypeCount = 6;

constexpr uint64_t ElementBytes(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
    case DType::kF16:
      return 2;
    case DType::kU32:
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kI64:
      return 8;
  }
  return 0;
}

// The spelling of safetensors: "BF16".
const char* DTypeName(DType dtype);
std::optional<DType> ParseDType(std::string_view name);

}  // namespace mference
