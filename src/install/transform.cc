#include "install/transform.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"

namespace mference {
namespace {

uint8_t SpreadNibble(unsigned two_codes) {
  return static_cast<uint8_t>((two_codes & 3u) | ((two_codes & 12u) << 2));
}

// Byte k holds codes 4k..4k+3; the output bytes 2k and 2k+1 hold two codes each. Backwards, so that
// nothing is overwritten before it was read.
void UnpackInt2(std::span<std::byte> buffer, size_t source_bytes) {
  for (size_t i = source_bytes; i-- > 0;) {
    const auto codes = std::to_integer<unsigned>(buffer[i]);
    buffer[2 * i] = std::byte{SpreadNibble(codes & 15u)};
    buffer[2 * i + 1] = std::byte{SpreadNibble(codes >> 4)};
  }
}

void RepeatBf16(std::span<std::byte> buffer, size_t source_bytes, uint32_t repeat, bool negate) {
  constexpr uint16_t kSignBit = 0x8000;
  for (size_t i = source_bytes / 2; i-- > 0;) {
    uint16_t value = 0;
    std::memcpy(&value, buffer.data() + 2 * i, 2);
    if (negate) value ^= kSignBit;
    for (size_t k = repeat; k-- > 0;) {
      std::memcpy(buffer.data() + 2 * (i * repeat + k), &value, 2);
    }
  }
}

}  // namespace

std::string Transform::Name() const {
  switch (kind) {
    case TransformKind::kIdentity:
      return "identity";
    case TransformKind::kInt2ToInt4:
      return "unpack-int2-to-int4";
    case TransformKind::kRepeatBf16:
      return fmt::format("repeat-bf16:{}:{}", repeat, negate ? 1 : 0);
  }
  return "";
}

uint64_t Transform::unit_bytes() const {
  switch (kind) {
    case TransformKind::kIdentity:
      return 1;
    case TransformKind::kInt2ToInt4:
      return 4;
    case TransformKind::kRepeatBf16:
      return 2;
  }
  return 1;
}

uint64_t Transform::expansion() const {
  switch (kind) {
    case TransformKind::kIdentity:
      return 1;
    case TransformKind::kInt2ToInt4:
      return 2;
    case TransformKind::kRepeatBf16:
      return repeat;
  }
  return 1;
}

void ApplyTransform(const Transform& transform, std::span<std::byte> buffer, size_t source_bytes) {
  Check(source_bytes % transform.unit_bytes() == 0 &&
            source_bytes * transform.expansion() <= buffer.size(),
        "transform outside its buffer");
  switch (transform.kind) {
    case TransformKind::kIdentity:
      return;
    case TransformKind::kInt2ToInt4:
      return UnpackInt2(buffer, source_bytes);
    case TransformKind::kRepeatBf16:
      return RepeatBf16(buffer, source_bytes, transform.repeat, transform.negate);
  }
}

bool HasInvalidTernaryCode(std::span<const std::byte> bytes) {
  constexpr uint64_t kLowBits = 0x5555555555555555u;
  uint64_t found = 0;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    found |= word & (word >> 1) & kLowBits;
  }
  for (; i < bytes.size(); ++i) {
    const auto word = std::to_integer<uint64_t>(bytes[i]);
    found |= word & (word >> 1) & 0x55u;
  }
  return found != 0;
}

}  // namespace mference
