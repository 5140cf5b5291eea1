// A conversation as clients send it: OpenAI-style messages and tools, checked and made uniform.
//
// Parsing names the offending member in every refusal and accepts the variations that real clients
// send (content parts, reasoning under several names, null content next to calls, arguments as
// text).
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/framing/family.h"
#include "text/template/value.h"

namespace mference {

enum class ChatRole { kSystem, kDeveloper, kUser, kAssistant, kTool };

const char* ChatRoleName(ChatRole role);

// A call the assistant made. `arguments` is a dictionary whose numbers keep the digits as written.
struct ChatToolCall {
  std::string id;
  std::string name;
  jinja::Value arguments;
};

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string content;                   // text parts joined; empty where it was null
  std::string reasoning;                 // assistant only
  std::vector<ChatToolCall> tool_calls;  // assistant only
  std::string tool_call_id;              // tool only: the call that this answers
  std::string name;                      // the optional participant's name, or the tool's
};

// A declared tool. `parameters` is a JSON schema (an object), as the client wrote it.
struct ToolDeclaration {
  std::string name;
  std::optional<std::string> description;
  jinja::Value parameters;
};

// What was wrong with a request's messages or tools. `reason` is the API's code (`invalid_message`,
// `unsupported_content`, `invalid_tool_call`, `invalid_tool_arguments`, `invalid_tool_result`,
// `unsupported_tool`, `invalid_tool_name`, `invalid_tool_schema`, `invalid_value`), `param` the
// member, e.g. `messages[2].content`.
class MessagesError : public Error {
 public:
  MessagesError(std::string reason, std::string param, const std::string& message);
  const std::string& reason() const { return reason_; }
  const std::string& param() const { return param_; }

 private:
  std::string reason_;
  std::string param_;
};

struct ConversationLimits {
  size_t max_messages = 100'000;
  size_t max_tools = 256;
  size_t max_json_depth = 64;  // of schemas and arguments
};

// Parses and checks. Both take values from ParseJsonValue or FromJson. `messages` must be a
// non-empty array. Members that mean nothing here (`annotations`, vendors' own) are ignored; their
// names are added to `ignored`, if given, for a log. Throws MessagesError.
std::vector<ChatMessage> ParseMessages(const jinja::Value& messages,
                                       const ConversationLimits& limits = {},
                                       std::set<std::string>* ignored = nullptr);
// `tools` may be None: no tools. For Gemma, property names that its call syntax cannot write are
// refused; every other family takes the schema as JSON. Throws MessagesError.
std::vector<ToolDeclaration> ParseTools(const jinja::Value& tools, TextFamily family,
                                        const ConversationLimits& limits = {});

}  // namespace mference
