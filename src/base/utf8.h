// UTF-8 one scalar at a time, with the Unicode rule for invalid input: one U+FFFD per maximal
// subpart of an ill-formed sequence (Unicode 15, section 3.9, table 3-8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mference {

constexpr uint32_t kReplacementCode = 0xFFFD;
constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

enum class Utf8Status : uint8_t {
  kValid,       // a whole scalar
  kInvalid,     // a maximal subpart that cannot become a scalar
  kIncomplete,  // the text ends inside what may still become a scalar
};

struct Utf8Step {
  uint32_t code;    // the scalar; U+FFFD unless kValid
  uint32_t length;  // bytes consumed, at least 1
  Utf8Status status;
};

// Reads the first scalar of `text`, which must not be empty.
Utf8Step DecodeUtf8(std::string_view text);

// Reads the first scalar of `text`, which must be valid UTF-8 and not empty.
inline Utf8Step DecodeValidUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, Utf8Status::kValid};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2, Utf8Status::kValid};
  if (lead < 0xF0) {
    return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3, Utf8Status::kValid};
  }
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4, Utf8Status::kValid};
}

// Start of the scalar that ends at `end` (> 0) in valid UTF-8.
inline size_t PreviousUtf8(std::string_view text, size_t end) {
  do --end;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

// `code` must be a scalar value.
void AppendUtf8(std::string& out, uint32_t code);

// RFC 3629: no overlong forms, surrogates or values above U+10FFFF.
bool IsValidUtf8(std::string_view text);

// The Unicode property White_Space.
bool IsWhiteSpace(uint32_t code);

}  // namespace mference
