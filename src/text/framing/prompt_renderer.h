// From a conversation to the prompt of one model: the installed chat template, the family's native
// encoder (DeepSeek), or the built-in framing where a model has no template.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/framing/conversation.h"
#include "text/framing/family.h"
#include "text/framing/prompt.h"
#include "text/template/template.h"

namespace mference {

struct PromptOptions {
  bool add_generation_prompt = true;
  // Reasoning before the answer. Maple always reasons; the flag changes nothing there.
  bool enable_thinking = false;
  // A level name (none, minimal, low, medium, high, xhigh, max) for the families that have levels
  // (Inkling; DeepSeek knows max); empty means the family's default for `enable_thinking`.
  std::string reasoning_effort;
  // Further template variables, from the client or the command line. They are data: no marker in
  // them becomes a control token. They do not override messages, tools or the flags above.
  std::vector<std::pair<std::string, jinja::Value>> extra;
  std::tm now{};  // for templates that print the date
  jinja::RenderLimits limits;
};

// Immutable; safe to use from several threads.
class PromptRenderer {
 public:
  // `template_source` is the installed chat_template.jinja, empty when there is none. `bos_token`
  // is the text of the beginning-of-sequence token, as the tokenizer spells it (Gemma and DeepSeek
  // begin prompts with it), empty for families without one. DeepSeek ignores the template: its
  // encoder is the authority. Throws TemplateError when the template does not parse.
  static PromptRenderer Load(TextFamily family, std::string_view template_source,
                             std::string bos_token = "");

  TextFamily family() const { return family_; }
  bool has_template() const { return template_.has_value(); }

  // Renders the whole conversation. Throws MessagesError or jinja::TemplateError (kMessagesInvalid)
  // when the conversation cannot be framed, kTemplateInvalid when the template itself is at fault.
  Prompt Render(const std::vector<ChatMessage>& messages, const std::vector<ToolDeclaration>& tools,
                const PromptOptions& options) const;

  // What to append to a live conversation whose last turn the model has just ended (its end-of-turn
  // token is not in the context yet, and is the first marker of the result), so that `text` becomes
  // the next user message and the model answers it.
  Prompt Continuation(std::string_view text, const PromptOptions& options) const;

  // Whether a member of that name among PromptOptions::extra can make a difference.
  bool Reads(std::string_view variable) const;

  // The token text that ends a model turn.
  std::string_view end_of_turn() const;

 private:
  PromptRenderer(TextFamily family, std::optional<jinja::Template> parsed, std::string bos_token);

  TextFamily family_;
  std::optional<jinja::Template> template_;
  std::string bos_token_;
};

}  // namespace mference
