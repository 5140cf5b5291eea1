// Framing of plain conversations for models that were installed without a chat template.
//
// Covers system, user and assistant messages; tools and their results need the model's own
// template. Where both cover a conversation, this and the family's template agree byte for byte.
#pragma once

#include <vector>

#include "text/framing/conversation.h"
#include "text/framing/family.h"
#include "text/framing/prompt_renderer.h"
#include "text/template/traced_string.h"

namespace mference {

// Every family but DeepSeek, whose encoder needs no template. Throws MessagesError for what a plain
// conversation cannot hold.
jinja::TracedString FramePlain(TextFamily family, const std::string& bos_token,
                               const std::vector<ChatMessage>& messages,
                               const PromptOptions& options);

// The opening of the model's turn, as at the end of a prompt.
jinja::TracedString GenerationPrompt(TextFamily family, const PromptOptions& options);

// Inkling's effort for these options: a number in [0, 0.99], or nothing for the model's default.
std::optional<double> InklingEffort(const PromptOptions& options);

}  // namespace mference
