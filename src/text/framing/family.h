// The chat families as text sees them: one framing and one tool-call dialect each.
#pragma once

#include <optional>
#include <string_view>

namespace mference {

enum class TextFamily { kGemma4, kQwen36, kDeepseekV4, kInkling, kMaple };

// The command line's names: gemma4, qwen36, deepseek_v4, inkling, maple.
const char* TextFamilyName(TextFamily family);
std::optional<TextFamily> ParseTextFamily(std::string_view name);

}  // namespace mference
