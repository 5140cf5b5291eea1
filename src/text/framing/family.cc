#include "text/framing/family.h"

#include <array>
#include <utility>

namespace mference {
namespace {

constexpr std::array<std::pair<TextFamily, const char*>, 5> kNames = {{
    {TextFamily::kGemma4, "gemma4"},
    {TextFamily::kQwen36, "qwen36"},
    {TextFamily::kDeepseekV4, "deepseek_v4"},
    {TextFamily::kInkling, "inkling"},
    {TextFamily::kMaple, "maple"},
}};

}  // namespace

const char* TextFamilyName(TextFamily family) {
  for (const auto& [known, name] : kNames) {
    if (known == family) return name;
  }
  return "unknown";
}

std::optional<TextFamily> ParseTextFamily(std::string_view name) {
  for (const auto& [family, known] : kNames) {
    if (name == known) return family;
  }
  return std::nullopt;
}

}  // namespace mference
