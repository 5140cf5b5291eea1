#include "base/utf8.h"

#include <simdjson.h>

namespace mference {

Utf8Step DecodeUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, Utf8Status::kValid};
  // Bounds of the second byte exclude overlong forms, surrogates and codes above U+10FFFF.
  uint32_t length = 0;
  uint32_t low = 0x80;
  uint32_t high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {kReplacementCode, 1, Utf8Status::kInvalid};
  }
  for (uint32_t i = 1; i < length; ++i) {
    if (i >= text.size()) return {kReplacementCode, i, Utf8Status::kIncomplete};
    if (byte(i) < low || byte(i) > high) return {kReplacementCode, i, Utf8Status::kInvalid};
    low = 0x80;
    high = 0xBF;
  }
  return DecodeValidUtf8(text);
}

void AppendUtf8(std::string& out, uint32_t code) {
  const auto push = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xC0 | code >> 6);
    push(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    push(0xE0 | code >> 12);
    push(0x80 | (code >> 6 & 0x3F));
    push(0x80 | (code & 0x3F));
  } else {
    push(0xF0 | code >> 18);
    push(0x80 | (code >> 12 & 0x3F));
    push(0x80 | (code >> 6 & 0x3F));
    push(0x80 | (code & 0x3F));
  }
}

bool IsValidUtf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

bool IsWhiteSpace(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

}  // namespace mference
