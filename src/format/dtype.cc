#include "format/dtype.h"

namespace mference {

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kU32:
      return "U32";
    case DType::kBf16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kF32:
      return "F32";
    case DType::kI64:
      return "I64";
    case DType::kI32:
      return "I32";
  }
  return "?";
}

std::optional<DType> ParseDType(std::string_view name) {
  for (uint8_t code = 0; code < kDTypeCount; ++code) {
    const auto dtype = static_cast<DType>(code);
    if (name == DTypeName(dtype)) return dtype;
  }
  return std::nullopt;
}

}  // namespace mference
