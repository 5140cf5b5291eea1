// Any bytes as messages (and tools) for every family's built-in framing or encoder: refused with an
// Error, or a prompt whose spans cover it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/framing/render_command.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using mference::TextFamily;
  if (size == 0) return 0;
  constexpr TextFamily kFamilies[] = {TextFamily::kGemma4, TextFamily::kQwen36,
                                      TextFamily::kDeepseekV4, TextFamily::kInkling,
                                      TextFamily::kMaple};
  const auto renderer = mference::PromptRenderer::Load(kFamilies[data[0] % 5], "");
  mference::RenderRequest request;
  request.messages_json = {reinterpret_cast<const char*>(data) + 1, size - 1};
  request.options.enable_thinking = (data[0] & 0x80) != 0;
  try {
    const mference::Prompt prompt = mference::RenderConversation(renderer, request);
    size_t covered = 0;
    for (const mference::PromptSpan& span : prompt.spans) {
      if (span.begin != covered || span.end <= span.begin) std::abort();
      covered = span.end;
    }
    if (covered != prompt.text.size()) std::abort();
  } catch (const mference::Error&) {
  }
  const mference::JsonlRenderer lines(std::nullopt, std::tm{});
  lines.RenderLine(request.messages_json);
  return 0;
}
