// POST /v1/chat/completions: the body, checked.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/api/generation_fields.h"
#include "text/framing/conversation.h"

namespace mference::server {

enum class ToolChoice {
  kAuto,
  kNone,
  kRequired,
  kNamed,
};

struct ResponseFormat {
  enum class Kind { kText, kJsonObject, kJsonSchema };
  Kind kind = Kind::kText;
  jinja::Value schema;  // kJsonSchema
};

struct ChatRequest {
  GenerationFields generation;
  std::vector<ChatMessage> messages;
  std::vector<ToolDeclaration> tools;  // empty also where tool_choice is none
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string forced_tool;  // kNamed
  bool parallel_tool_calls = true;
  ResponseFormat format;
  bool thinking = false;
  std::string reasoning_effort;  // empty: by `thinking`
  std::optional<int64_t> max_reasoning_tokens;
  std::vector<std::pair<std::string, jinja::Value>> template_variables;
};

// Throws ApiError for the first thing that is wrong, in the order of the specification.
ChatRequest ParseChatRequest(const jinja::Value& body, const ServedModel& model);

}  // namespace mference::server
