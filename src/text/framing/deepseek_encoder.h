// DeepSeek V4's prompt encoding: its publisher ships an encoder instead of a chat template.
//
// Follows the publisher's encoder (families/deepseek_v4_flash, section 5.2): adjacent user messages
// and tool results share one user turn, results stand in the order of the calls, and in thinking
// mode without tools the reasoning before the last user message is dropped.
#pragma once

#include <string>
#include <string_view>

#include "text/framing/conversation.h"
#include "text/template/traced_string.h"
#include "text/template/value.h"

namespace mference {

struct DeepseekOptions {
  bool thinking = false;
  bool drop_thinking = true;      // forced off when any message carries tools
  bool maximum_effort = false;    // only with `thinking`
  bool generation_prompt = true;  // whether a last user turn is followed by the assistant's opener
};

// The request does not follow the encoder's rules. `kind` is the exception that the publisher's
// encoder raises: NotImplementedError or AssertionError.
class DeepseekEncodingError : public MessagesError {
 public:
  DeepseekEncodingError(std::string kind, const std::string& message)
      : MessagesError("invalid_message", "messages", message), kind_(std::move(kind)) {}
  const std::string& kind() const { return kind_; }

 private:
  std::string kind_;
};

// `messages` is a list of dictionaries in the form of OpenAI's API; arguments of calls are JSON
// text or a dictionary. `tools` (a list, or None) go on the leading system message, or on an empty
// one put in front. Markers are Origin::kTemplate, everything of the messages is what it was made
// with.
jinja::TracedString EncodeDeepseek(const jinja::Value& messages, const jinja::Value& tools,
                                   const DeepseekOptions& options);

// Markers of the encoding; bars are U+FF5C, low lines U+2581.
inline constexpr std::string_view kDeepseekBegin = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kDeepseekEnd = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kDeepseekUser = "<｜User｜>";
inline constexpr std::string_view kDeepseekAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kDeepseekDsml = "｜DSML｜";
inline constexpr std::string_view kThinkOpen = "<think>";
inline constexpr std::string_view kThinkClose = "</think>";

}  // namespace mference
