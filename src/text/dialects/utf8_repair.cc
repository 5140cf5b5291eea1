#include "text/dialects/utf8_repair.h"

#include <cstdint>

#include "base/utf8.h"

namespace mference {
std::string Utf8Repair::Push(std::string_view bytes) {
  std::string joined;
  if (!tail_.empty()) {
    joined = std::move(tail_);
    tail_.clear();
    joined += bytes;
    bytes = joined;
  }
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Step step = DecodeUtf8(bytes);
    if (step.status == Utf8Status::kIncomplete) {
      tail_ = std::string(bytes);
      break;
    }
    out += step.status == Utf8Status::kValid ? bytes.substr(0, step.length) : kReplacementUtf8;
    bytes.remove_prefix(step.length);
  }
  return out;
}

std::string Utf8Repair::Flush() {
  if (tail_.empty()) return "";
  tail_.clear();
  return std::string(kReplacementUtf8);
}

std::string_view CutAtScalar(std::string_view text, size_t length) {
  if (length >= text.size()) return text;
  while (length > 0 && (static_cast<uint8_t>(text[length]) & 0xC0) == 0x80) --length;
  return text.substr(0, length);
}

}  // namespace mference
