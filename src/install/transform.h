// What happens to bytes on their way from a source tensor to the install.
//
// Almost always nothing: packed values, scales and biases are copied as they are. Ternary
// checkpoints (gturbo-format 5.3) need two lossless rewritings into the affine layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace mference {

enum class TransformKind : uint8_t {
  kIdentity,
  kInt2ToInt4,  // 16 two-bit codes per word become two words of eight four-bit codes
  kRepeatBf16,  // each BF16 value `repeat` times, with its sign flipped if `negate`
};

struct Transform {
  TransformKind kind = TransformKind::kIdentity;
  uint32_t repeat = 1;
  bool negate = false;

  bool operator==(const Transform&) const = default;

  // As in plan fingerprints: "identity", "unpack-int2-to-int4", "repeat-bf16:32:1".
  std::string Name() const;
  // Bytes of the smallest piece that can be transformed alone.
  uint64_t unit_bytes() const;
  // Output bytes per input byte.
  uint64_t expansion() const;
};

// Rewrites the first `source_bytes` (a multiple of the unit) of `buffer` into its first
// source_bytes * expansion() bytes, in place.
void ApplyTransform(const Transform& transform, std::span<std::byte> buffer, size_t source_bytes);

// Whether ternary codes contain the pattern 3, which a valid file never does. `bytes` holds two-bit
// codes.
bool HasInvalidTernaryCode(std::span<const std::byte> bytes);

}  // namespace mference
