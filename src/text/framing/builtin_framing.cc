#include "text/framing/builtin_framing.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "text/framing/deepseek_encoder.h"
#include "text/template/operators.h"
#include "text/template/python_text.h"
#include "text/template/unicode.h"

namespace mference {
namespace {

using jinja::Origin;
using jinja::TracedString;

TracedString Data(const std::string& text) { return {text, Origin::kData}; }

void Append(TracedString& out, std::string_view marker) { out.Append(marker, Origin::kTemplate); }

// Without the characters for which `strip` holds at the chosen ends.
template <typename Strip>
TracedString StripEnds(const TracedString& text, bool left, bool right, Strip strip) {
  size_t begin = 0;
  size_t end = text.size();
  while (left && begin < end && strip(jinja::DecodeAt(text.text(), begin))) {
    begin += jinja::CodePointBytes(text.text(), begin);
  }
  while (right && end > begin) {
    const size_t last = PreviousUtf8(text.text(), end);
    if (!strip(jinja::DecodeAt(text.text(), last))) break;
    end = last;
  }
  return text.Slice(begin, end);
}

TracedString Trim(const TracedString& text) { return StripEnds(text, true, true, jinja::IsSpace); }

bool IsNewline(char32_t c) { return c == '\n'; }

struct Split {
  TracedString reasoning;
  TracedString content;
};

// Reasoning that clients left in the content: up to the first `</think>` (from the last `<think>`
// before it), while the content is what follows the last one.
Split SplitInlineReasoning(const TracedString& content) {
  const std::string& text = content.text();
  const size_t close = text.find(kThinkClose);
  if (close == std::string::npos) return {{}, content};
  TracedString head = StripEnds(content.Slice(0, close), false, true, IsNewline);
  const size_t open = head.text().rfind(kThinkOpen);
  if (open != std::string::npos) head = head.Slice(open + kThinkOpen.size(), head.size());
  const size_t after = text.rfind(kThinkClose) + kThinkClose.size();
  return {StripEnds(head, true, false, IsNewline),
          StripEnds(content.Slice(after, text.size()), true, false, IsNewline)};
}

Split SplitMessage(const ChatMessage& message, const TracedString& content) {
  if (!message.reasoning.empty()) return {Data(message.reasoning), content};
  return SplitInlineReasoning(content);
}

[[noreturn]] void FailWithoutTemplate(const char* what) {
  throw MessagesError(
      "invalid_message", "messages",
      fmt::format("this model was installed without a chat template, which {} need", what));
}

void RequirePlain(const std::vector<ChatMessage>& messages) {
  for (const ChatMessage& message : messages) {
    if (message.role == ChatRole::kTool || !message.tool_calls.empty()) {
      FailWithoutTemplate("tool calls and results");
    }
  }
}

// ---- Gemma 4

// The text without the channels that the model wrote its reasoning to.
TracedString StripChannels(const TracedString& content) {
  constexpr std::string_view kOpen = "<|channel>";
  constexpr std::string_view kClose = "<channel|>";
  TracedString out;
  for (size_t begin = 0; begin <= content.size();) {
    const size_t end = std::min(content.text().find(kClose, begin), content.size());
    const size_t open = std::min(content.text().find(kOpen, begin), end);
    out.AppendSlice(content, begin, open);
    begin = end + kClose.size();
  }
  return Trim(out);
}

void FrameGemma(TracedString& out, const std::string& bos_token,
                const std::vector<ChatMessage>& messages, const PromptOptions& options) {
  Append(out, bos_token);
  size_t first = 0;
  const bool system = !messages.empty() && messages[0].role == ChatRole::kSystem;
  if (system || options.enable_thinking) {
    Append(out, "<|turn>system\n");
    if (options.enable_thinking) Append(out, "<|think|>\n");
    if (system) out.Append(Trim(Data(messages[first++].content)));
    Append(out, "<turn|>\n");
  }
  for (size_t i = first; i < messages.size(); ++i) {
    const bool model = messages[i].role == ChatRole::kAssistant;
    const bool continues = model && i > first && messages[i - 1].role == ChatRole::kAssistant;
    if (!continues) {
      Append(out, "<|turn>");
      Append(out, model ? "model" : ChatRoleName(messages[i].role));
      Append(out, "\n");
    }
    const TracedString content = Data(messages[i].content);
    out.Append(model ? StripChannels(content) : Trim(content));
    Append(out, "<turn|>\n");
  }
}

// ---- ChatML: Qwen 3.6 and Maple

void OpenChatMl(TracedString& out, ChatRole role) {
  Append(out, "<|im_start|>");
  Append(out, ChatRoleName(role));
  Append(out, "\n");
}

void AppendThinkBlock(TracedString& out, const TracedString& reasoning) {
  Append(out, "<think>\n");
  out.Append(reasoning);
  Append(out, "\n</think>\n\n");
}

// Index of the last user message that is no wrapped tool result.
std::optional<size_t> LastQuery(const std::vector<ChatMessage>& messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    if (messages[i].role != ChatRole::kUser) continue;
    const TracedString text = Trim(Data(messages[i].content));
    const bool wrapped =
        text.text().starts_with("<tool_response>") && text.text().ends_with("</tool_response>");
    if (!wrapped) return i;
  }
  return std::nullopt;
}

void FrameQwen(TracedString& out, const std::vector<ChatMessage>& messages) {
  const std::optional<size_t> last_query = LastQuery(messages);
  if (!last_query) {
    throw MessagesError("invalid_message", "messages", "No user query found in messages.");
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    OpenChatMl(out, messages[i].role);
    const TracedString content = Trim(Data(messages[i].content));
    if (messages[i].role == ChatRole::kAssistant) {
      const Split split = SplitMessage(messages[i], content);
      if (i > *last_query) AppendThinkBlock(out, Trim(split.reasoning));
      out.Append(split.content);
    } else {
      out.Append(content);
    }
    Append(out, "<|im_end|>\n");
  }
}

void FrameMaple(TracedString& out, const std::vector<ChatMessage>& messages) {
  for (const ChatMessage& message : messages) {
    OpenChatMl(out, message.role);
    if (message.role == ChatRole::kAssistant) {
      const Split split = SplitMessage(message, Data(message.content));
      if (split.reasoning.empty()) {
        out.Append(split.content);
      } else {
        AppendThinkBlock(out, StripEnds(split.reasoning, true, true, IsNewline));
        out.Append(StripEnds(split.content, true, false, IsNewline));
      }
    } else {
      out.Append(Data(message.content));
    }
    Append(out, "<|im_end|>\n");
  }
}

// ---- Inkling

std::string_view InklingMarker(ChatRole role) {
  switch (role) {
    case ChatRole::kUser:
      return "<|message_user|>";
    case ChatRole::kAssistant:
      return "<|message_model|>";
    default:
      return "<|message_system|>";
  }
}

void AppendInklingBlock(TracedString& out, ChatRole role, std::string_view kind,
                        const TracedString& payload) {
  Append(out, InklingMarker(role));
  Append(out, kind);
  out.Append(payload);
  Append(out, "<|end_message|>");
}

void FrameInkling(TracedString& out, const std::vector<ChatMessage>& messages,
                  const PromptOptions& options) {
  constexpr std::string_view kText = "<|content_text|>";
  constexpr double kDefaultEffort = 0.9;
  const double effort = InklingEffort(options).value_or(kDefaultEffort);
  bool effort_done = false;
  const auto write_effort = [&] {
    if (std::exchange(effort_done, true)) return;
    TracedString line("Thinking effort level: ", Origin::kTemplate);
    Append(line, effort == 0 ? "0" : jinja::FloatRepr(effort));
    AppendInklingBlock(out, ChatRole::kSystem, kText, line);
  };
  for (const ChatMessage& message : messages) {
    if (message.role != ChatRole::kSystem) write_effort();
    if (message.role == ChatRole::kAssistant && !message.reasoning.empty()) {
      AppendInklingBlock(out, message.role, "<|content_thinking|>", Data(message.reasoning));
    }
    AppendInklingBlock(out, message.role, kText, Data(message.content));
    if (message.role == ChatRole::kAssistant) Append(out, "<|content_model_end_sampling|>");
  }
  write_effort();
}

}  // namespace

std::optional<double> InklingEffort(const PromptOptions& options) {
  static constexpr std::array<std::pair<std::string_view, double>, 7> kLevels = {{{"none", 0.0},
                                                                                  {"minimal", 0.1},
                                                                                  {"low", 0.2},
                                                                                  {"medium", 0.7},
                                                                                  {"high", 0.9},
                                                                                  {"xhigh", 0.99},
                                                                                  {"max", 0.99}}};
  if (options.reasoning_effort.empty()) {
    return options.enable_thinking ? std::nullopt : std::optional<double>(0.0);
  }
  for (const auto& [level, effort] : kLevels) {
    if (options.reasoning_effort == level) return effort;
  }
  throw MessagesError("invalid_value", "reasoning_effort",
                      fmt::format("unknown reasoning effort '{}'", options.reasoning_effort));
}

TracedString GenerationPrompt(TextFamily family, const PromptOptions& options) {
  TracedString out;
  if (!options.add_generation_prompt) return out;
  switch (family) {
    case TextFamily::kGemma4:
      Append(out, "<|turn>model\n");
      if (!options.enable_thinking) Append(out, "<|channel>thought\n<channel|>");
      break;
    case TextFamily::kQwen36:
      Append(out, "<|im_start|>assistant\n<think>\n");
      if (!options.enable_thinking) Append(out, "\n</think>\n\n");
      break;
    case TextFamily::kMaple:
      Append(out, "<|im_start|>assistant\n<think>\n");
      break;
    case TextFamily::kInkling:
      Append(out, "<|message_model|>");
      break;
    case TextFamily::kDeepseekV4:
      Append(out, kDeepseekAssistant);
      Append(out, options.enable_thinking ? kThinkOpen : kThinkClose);
      break;
  }
  return out;
}

TracedString FramePlain(TextFamily family, const std::string& bos_token,
                        const std::vector<ChatMessage>& messages, const PromptOptions& options) {
  RequirePlain(messages);
  TracedString out;
  switch (family) {
    case TextFamily::kGemma4:
      FrameGemma(out, bos_token, messages, options);
      break;
    case TextFamily::kQwen36:
      FrameQwen(out, messages);
      break;
    case TextFamily::kMaple:
      FrameMaple(out, messages);
      break;
    case TextFamily::kInkling:
      FrameInkling(out, messages, options);
      break;
    case TextFamily::kDeepseekV4:
      FailWithoutTemplate("only");
  }
  out.Append(GenerationPrompt(family, options));
  return out;
}

}  // namespace mference
