#include "text/framing/prompt_renderer.h"

#include <algorithm>
#include <utility>

#include "text/framing/builtin_framing.h"
#include "text/framing/deepseek_encoder.h"
#include "text/framing/schema.h"
#include "text/template/operators.h"
#include "text/template/unicode.h"

namespace mference {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Origin;
using jinja::TracedString;
using jinja::Value;

Value Trusted(std::string_view text) { return Value::Str(std::string(text), Origin::kTemplate); }
Value Data(std::string_view text) { return Value::Str(std::string(text), Origin::kData); }

Prompt ToPrompt(const TracedString& traced) {
  Prompt prompt;
  prompt.text = traced.text();
  traced.ForEachRun([&](size_t begin, size_t end, Origin origin) {
    prompt.spans.push_back({begin, end, origin == Origin::kTemplate});
  });
  return prompt;
}

// ---- mapping: what a family cannot say is said in the nearest form that it has

bool IsGuidance(ChatRole role) { return role == ChatRole::kSystem || role == ChatRole::kDeveloper; }

// The role that the family knows for a guidance message; `leading` if nothing else came before.
ChatRole MapGuidance(TextFamily family, ChatRole role, bool leading) {
  if (family == TextFamily::kDeepseekV4 && role == ChatRole::kDeveloper && !leading) {
    return ChatRole::kUser;
  }
  // Qwen's template refuses a system message after the first.
  if (family == TextFamily::kQwen36 && !leading) return ChatRole::kUser;
  return ChatRole::kSystem;
}

bool IsEmptyTurn(const ChatMessage& message) {
  return message.role == ChatRole::kAssistant && message.content.empty() &&
         message.reasoning.empty() && message.tool_calls.empty();
}

std::vector<ChatMessage> MapMessages(TextFamily family, const std::vector<ChatMessage>& messages) {
  std::vector<ChatMessage> mapped;
  bool leading = true;
  ChatRole previous = ChatRole::kUser;  // as the client named it, where that was guidance
  bool previous_guidance = false;
  for (const ChatMessage& message : messages) {
    if (!IsGuidance(message.role)) {
      leading = false;
      previous_guidance = false;
      mapped.push_back(message);
      continue;
    }
    ChatMessage guidance = message;
    guidance.role = MapGuidance(family, message.role, leading);
    const bool joins = previous_guidance && previous == guidance.role;
    if (joins) {
      mapped.back().content += "\n\n" + guidance.content;
    } else {
      const bool note = family == TextFamily::kQwen36 && guidance.role == ChatRole::kUser;
      if (note) guidance.content.insert(0, "[System note]\n");
      mapped.push_back(guidance);
    }
    previous = guidance.role;
    previous_guidance = true;
  }
  if (mapped.size() > 1 && IsEmptyTurn(mapped.back())) mapped.pop_back();
  return mapped;
}

// ---- DSML, which has no escapes

bool HoldsDsml(const Value& value) {
  if (value.IsString()) return value.text().find(kDeepseekDsml) != std::string::npos;
  if (value.IsList()) return std::any_of(value.items().begin(), value.items().end(), HoldsDsml);
  if (!value.IsDict()) return false;
  const auto& entries = value.dict().entries();
  return std::any_of(entries.begin(), entries.end(), [](const Dict::Entry& entry) {
    return HoldsDsml(entry.key) || HoldsDsml(entry.value);
  });
}

void RequireNoDsml(const std::vector<ChatMessage>& messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    for (size_t j = 0; j < messages[i].tool_calls.size(); ++j) {
      if (!HoldsDsml(messages[i].tool_calls[j].arguments)) continue;
      const std::string param = fmt::format("messages[{}].tool_calls[{}].function.arguments", i, j);
      throw MessagesError(
          "invalid_tool_arguments", param,
          fmt::format("{} contains '{}', which the model's call syntax cannot write", param,
                      kDeepseekDsml));
    }
  }
}

// A zero-width space after the first bar keeps a result from spelling the marker.
std::string BreakDsml(const std::string& text) {
  constexpr std::string_view kBar = "｜";
  constexpr std::string_view kZeroWidthSpace = "\xE2\x80\x8B";
  std::string out;
  size_t copied = 0;
  for (size_t found = text.find(kDeepseekDsml); found != std::string::npos;
       found = text.find(kDeepseekDsml, copied)) {
    out.append(text, copied, found + kBar.size() - copied);
    out.append(kZeroWidthSpace);
    copied = found + kBar.size();
  }
  return out.append(text, copied);
}

// ---- template variables

Value MessageValue(const ChatMessage& message, bool deepseek) {
  Dict value;
  // Roles are this program's own words, so a template may build markers from them.
  value.Set(Trusted("role"), Trusted(ChatRoleName(message.role)));
  const bool result = message.role == ChatRole::kTool;
  value.Set(Trusted("content"),
            Data(deepseek && result ? BreakDsml(message.content) : message.content));
  if (!message.name.empty()) value.Set(Trusted("name"), Data(message.name));
  if (!message.reasoning.empty()) {
    value.Set(Trusted("reasoning_content"), Data(message.reasoning));
  }
  if (!message.tool_calls.empty()) {
    List calls;
    for (const ChatToolCall& call : message.tool_calls) {
      Dict function;
      function.Set(Trusted("name"), Data(call.name));
      function.Set(Trusted("arguments"), call.arguments);
      Dict described;
      described.Set(Trusted("id"), Data(call.id));
      described.Set(Trusted("type"), Trusted("function"));
      described.Set(Trusted("function"), Value::MakeDict(std::move(function)));
      calls.push_back(Value::MakeDict(std::move(described)));
    }
    value.Set(Trusted("tool_calls"), Value::MakeList(std::move(calls)));
  }
  if (result) value.Set(Trusted("tool_call_id"), Data(message.tool_call_id));
  return Value::MakeDict(std::move(value));
}

Value MessagesValue(const std::vector<ChatMessage>& messages, bool deepseek) {
  List list;
  for (const ChatMessage& message : messages) list.push_back(MessageValue(message, deepseek));
  return Value::MakeList(std::move(list));
}

Value ToolsValue(TextFamily family, const std::vector<ToolDeclaration>& tools) {
  if (tools.empty()) return Value::None();
  List list;
  for (const ToolDeclaration& tool : tools) {
    Dict function;
    function.Set(Trusted("name"), Data(tool.name));
    if (tool.description) function.Set(Trusted("description"), Data(*tool.description));
    function.Set(Trusted("parameters"), family == TextFamily::kGemma4
                                            ? NormaliseSchemaForGemma(tool.parameters)
                                            : tool.parameters);
    Dict described;
    described.Set(Trusted("type"), Trusted("function"));
    described.Set(Trusted("function"), Value::MakeDict(std::move(function)));
    list.push_back(Value::MakeDict(std::move(described)));
  }
  return Value::MakeList(std::move(list));
}

}  // namespace

PromptRenderer::PromptRenderer(TextFamily family, std::optional<jinja::Template> parsed,
                               std::string bos_token)
    : family_(family), template_(std::move(parsed)), bos_token_(std::move(bos_token)) {}

PromptRenderer PromptRenderer::Load(TextFamily family, std::string_view template_source,
                                    std::string bos_token) {
  std::optional<jinja::Template> parsed;
  if (!template_source.empty() && family != TextFamily::kDeepseekV4) {
    parsed = jinja::Template::Parse(template_source, "chat template");
  }
  if (bos_token.empty() && family == TextFamily::kGemma4) bos_token = "<bos>";
  return {family, std::move(parsed), std::move(bos_token)};
}

Prompt PromptRenderer::Render(const std::vector<ChatMessage>& messages,
                              const std::vector<ToolDeclaration>& tools,
                              const PromptOptions& options) const {
  const std::vector<ChatMessage> mapped = MapMessages(family_, messages);
  InklingEffort(options);  // refuses unknown levels for every family
  const Value tool_list = ToolsValue(family_, tools);
  if (family_ == TextFamily::kDeepseekV4) {
    RequireNoDsml(messages);
    const DeepseekOptions deepseek{
        .thinking = options.enable_thinking,
        .maximum_effort = options.reasoning_effort == "max" || options.reasoning_effort == "xhigh",
        .generation_prompt = options.add_generation_prompt};
    return ToPrompt(EncodeDeepseek(MessagesValue(mapped, true), tool_list, deepseek));
  }
  if (!template_) {
    if (!tools.empty()) {
      throw MessagesError("invalid_value", "tools",
                          "this model was installed without a chat template, which tools need");
    }
    return ToPrompt(FramePlain(family_, bos_token_, mapped, options));
  }
  Dict context;
  for (const auto& [name, value] : options.extra) context.Set(Trusted(name), value);
  context.Set(Trusted("messages"), MessagesValue(mapped, false));
  context.Set(Trusted("tools"), tool_list);
  context.Set(Trusted("add_generation_prompt"), Value::Bool(options.add_generation_prompt));
  context.Set(Trusted("enable_thinking"), Value::Bool(options.enable_thinking));
  context.Set(Trusted("bos_token"), Trusted(bos_token_));
  if (family_ == TextFamily::kInkling) {
    const std::optional<double> effort = InklingEffort(options);
    if (effort) {
      context.Set(Trusted("reasoning_effort"),
                  *effort == 0 ? Value::Int(0) : Value::Number(*effort));
    }
  }
  jinja::RenderOptions render;
  render.limits = options.limits;
  render.now = options.now;
  return ToPrompt(template_->Render(Value::MakeDict(std::move(context)), render));
}

bool PromptRenderer::Reads(std::string_view variable) const {
  constexpr std::string_view kOwn[] = {"messages", "tools", "add_generation_prompt",
                                       "enable_thinking", "bos_token"};
  const bool own = std::find(std::begin(kOwn), std::end(kOwn), variable) != std::end(kOwn);
  return template_ && !own && template_->Mentions(variable);
}

std::string_view PromptRenderer::end_of_turn() const {
  switch (family_) {
    case TextFamily::kGemma4:
      return "<turn|>";
    case TextFamily::kQwen36:
    case TextFamily::kMaple:
      return "<|im_end|>";
    case TextFamily::kDeepseekV4:
      return kDeepseekEnd;
    case TextFamily::kInkling:
      return "<|content_model_end_sampling|>";
  }
  return "";
}

Prompt PromptRenderer::Continuation(std::string_view text, const PromptOptions& options) const {
  const bool trims = family_ == TextFamily::kGemma4 || family_ == TextFamily::kQwen36;
  if (trims) {
    while (!text.empty() && jinja::IsSpace(jinja::DecodeAt(text, 0))) {
      text.remove_prefix(jinja::CodePointBytes(text, 0));
    }
    while (!text.empty()) {
      const size_t last = PreviousUtf8(text, text.size());
      if (!jinja::IsSpace(jinja::DecodeAt(text, last))) break;
      text = text.substr(0, last);
    }
  }
  std::string_view open;
  std::string_view close;
  switch (family_) {
    case TextFamily::kGemma4:
      open = "\n<|turn>user\n";
      close = "<turn|>\n";
      break;
    case TextFamily::kQwen36:
    case TextFamily::kMaple:
      open = "\n<|im_start|>user\n";
      close = "<|im_end|>\n";
      break;
    case TextFamily::kDeepseekV4:
      open = kDeepseekUser;
      break;
    case TextFamily::kInkling:
      open = "<|message_user|><|content_text|>";
      close = "<|end_message|>";
      break;
  }
  TracedString bridge(std::string(end_of_turn()), Origin::kTemplate);
  bridge.Append(open, Origin::kTemplate);
  bridge.Append(text, Origin::kData);
  bridge.Append(close, Origin::kTemplate);
  bridge.Append(GenerationPrompt(family_, options));
  return ToPrompt(bridge);
}

}  // namespace mference
