// How vocabularies write bytes: the byte alphabet of byte-level ones, where every byte is a
// printable character, and the tokens `<0xNN>` of byte fallback.
//
// Printable bytes of Latin-1 (0x21-0x7E, 0xA1-0xAC, 0xAE-0xFF) stand for themselves; the other 68,
// in order, are U+0100 and up (a space is U+0120). The scheme is that of the GPT-2 tokenizer.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace mference {

class ByteAlphabet {
 public:
  static constexpr uint32_t kCodes = 256 + 68;

  constexpr ByteAlphabet() {
    uint16_t next = 256;
    for (uint16_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      code_[byte] = printable ? byte : next++;
    }
    byte_.fill(-1);
    for (uint16_t byte = 0; byte < 256; ++byte) byte_[code_[byte]] = static_cast<int16_t>(byte);
  }

  // The character that stands for `byte`.
  constexpr uint32_t Code(uint8_t byte) const { return code_[byte]; }

  // The byte that the character `code` stands for, if it is in the alphabet.
  constexpr std::optional<uint8_t> Byte(uint32_t code) const {
    if (code >= kCodes || byte_[code] < 0) return std::nullopt;
    return static_cast<uint8_t>(byte_[code]);
  }

 private:
  std::array<uint16_t, 256> code_ = {};
  std::array<int16_t, kCodes> byte_ = {};
};

inline constexpr ByteAlphabet kByteAlphabet;

// The byte that a byte-fallback token `<0xNN>` stands for.
inline std::optional<uint8_t> ByteOfFallbackToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return byte;
}

}  // namespace mference
