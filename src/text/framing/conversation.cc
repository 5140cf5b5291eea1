#include "text/framing/conversation.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "text/template/operators.h"
#include "text/template/python_text.h"

namespace mference {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;

constexpr std::array<std::pair<ChatRole, const char*>, 5> kRoles = {{
    {ChatRole::kSystem, "system"},
    {ChatRole::kDeveloper, "developer"},
    {ChatRole::kUser, "user"},
    {ChatRole::kAssistant, "assistant"},
    {ChatRole::kTool, "tool"},
}};

constexpr size_t kMaxNameLength = 64;

template <typename... Args>
[[noreturn]] void Refuse(const char* reason, const std::string& param,
                         fmt::format_string<Args...> format, Args&&... args) {
  throw MessagesError(reason, param, fmt::format(format, std::forward<Args>(args)...));
}

// A value as an error shows it: its JSON type and, for short scalars, itself.
std::string Describe(const Value& value) {
  constexpr size_t kMaxShown = 40;
  if (value.IsDict()) return "an object";
  if (value.IsList()) return "an array";
  std::string text = value.IsString() ? value.text() : jinja::ToJson(value, {}).text();
  const bool whole = text.size() <= kMaxShown;
  if (!whole) text = "a long text";
  return value.IsString() && whole ? jinja::StringRepr(text) : text;
}

// The member, or null when it is absent or null: clients send both for "not given".
const Value* Member(const Dict& object, std::string_view name) {
  const Value* member = object.Find(name);
  return member == nullptr || member->IsNone() ? nullptr : member;
}

const std::string& RequireText(const char* reason, const Value& value, const std::string& param) {
  if (!value.IsString())
    Refuse(reason, param, "{} must be a string, found {}", param, Describe(value));
  return value.text();
}

std::string OptionalText(const char* reason, const Dict& object, std::string_view name,
                         const std::string& param) {
  const Value* member = Member(object, name);
  if (member == nullptr) return "";
  return RequireText(reason, *member, fmt::format("{}.{}", param, name));
}

bool IsToolName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameLength &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '.';
         });
}

void CheckToolName(const char* reason, const std::string& name, const std::string& param) {
  if (IsToolName(name)) return;
  Refuse(reason, param, "{} must be 1 to {} of the characters A-Z a-z 0-9 _ - . , found {}", param,
         kMaxNameLength, Describe(Value::Str(name, jinja::Origin::kData)));
}

// Remembers which calls wait for a result, by id.
class CallLedger {
 public:
  void Open(const std::string& id, const std::string& function, const std::string& param) {
    const auto [call, inserted] = open_.emplace(id, function);
    if (!inserted) {
      Refuse("invalid_tool_call", param, "{} repeats the id '{}' of a call without a result", param,
             id);
    }
  }

  // The function's name; the call is answered.
  std::string Close(const std::string& id, const std::string& param) {
    const auto call = open_.find(id);
    if (call == open_.end()) {
      Refuse("invalid_tool_result", param,
             "{} names no earlier tool call that still waits for its result: '{}'", param, id);
    }
    std::string function = std::move(call->second);
    open_.erase(call);
    return function;
  }

 private:
  std::map<std::string, std::string> open_;
};

class MessageParser {
 public:
  MessageParser(const ConversationLimits& limits, std::set<std::string>* ignored)
      : limits_(limits), ignored_(ignored) {}

  ChatMessage Parse(const Value& value, std::string param) {
    param_ = std::move(param);
    if (!value.IsDict()) {
      Refuse("invalid_message", param_, "{} must be an object, found {}", param_, Describe(value));
    }
    const Dict& object = value.dict();
    ChatMessage message;
    message.role = ParseRole(object);
    NoteIgnored(object);
    if (Member(object, "function_call") != nullptr) {
      Refuse("invalid_message", param_ + ".function_call",
             "{}.function_call is not supported; use tool_calls", param_);
    }
    message.name = OptionalText("invalid_message", object, "name", param_);
    if (const Value* calls = Member(object, "tool_calls")) ParseCalls(*calls, message);
    ParseContent(object, message);
    if (message.role == ChatRole::kAssistant) ParseReasoning(object, message);
    if (message.role == ChatRole::kTool) ParseResult(object, message);
    return message;
  }

 private:
  ChatRole ParseRole(const Dict& object) const {
    const Value* role = Member(object, "role");
    if (role == nullptr) Refuse("invalid_message", param_, "{}.role is missing", param_);
    const std::string& name = RequireText("invalid_message", *role, param_ + ".role");
    for (const auto& [known, text] : kRoles) {
      if (name == text) return known;
    }
    Refuse("invalid_message", param_ + ".role",
           "{}.role must be system, developer, user, assistant or tool, found {}", param_,
           Describe(*role));
  }

  void NoteIgnored(const Dict& object) {
    static constexpr std::array<std::string_view, 10> kKnown = {
        "role",      "content",        "name",          "tool_calls",        "tool_call_id",
        "reasoning", "reasoning_text", "function_call", "reasoning_content", "refusal"};
    if (ignored_ == nullptr) return;
    for (const Dict::Entry& entry : object.entries()) {
      if (!entry.key.IsString()) continue;
      if (std::find(kKnown.begin(), kKnown.end(), entry.key.text()) == kKnown.end()) {
        ignored_->insert(entry.key.text());
      }
    }
  }

  void ParseContent(const Dict& object, ChatMessage& message) const {
    const std::string param = param_ + ".content";
    const Value* content = Member(object, "content");
    if (content == nullptr) {
      const bool calls = message.role == ChatRole::kAssistant && !message.tool_calls.empty();
      if (!calls) {
        Refuse(message.role == ChatRole::kTool ? "invalid_tool_result" : "invalid_message", param,
               "{}: message content is required", param);
      }
      return;
    }
    if (content->IsString()) {
      message.content = content->text();
      return;
    }
    if (!content->IsList()) {
      Refuse("invalid_message", param, "{} must be a string or an array of parts, found {}", param,
             Describe(*content));
    }
    for (size_t i = 0; i < content->items().size(); ++i) {
      message.content +=
          PartText(content->items()[i], message.role, fmt::format("{}[{}]", param, i));
    }
  }

  static std::string PartText(const Value& part, ChatRole role, const std::string& param) {
    if (!part.IsDict()) {
      Refuse("invalid_message", param, "{} must be an object, found {}", param, Describe(part));
    }
    const std::string type = OptionalText("invalid_message", part.dict(), "type", param);
    const bool refusal = type == "refusal" && role == ChatRole::kAssistant;
    if (type != "text" && !refusal) {
      Refuse("unsupported_content", param,
             "{}: content parts of type '{}' are not supported, only text", param, type);
    }
    const char* member = refusal ? "refusal" : "text";
    const Value* text = Member(part.dict(), member);
    if (text == nullptr) Refuse("invalid_message", param, "{}.{} is missing", param, member);
    return RequireText("invalid_message", *text, fmt::format("{}.{}", param, member));
  }

  void ParseReasoning(const Dict& object, ChatMessage& message) const {
    for (const char* name : {"reasoning_content", "reasoning", "reasoning_text"}) {
      // Some clients put structured objects there, which are theirs alone.
      const Value* reasoning = Member(object, name);
      if (reasoning == nullptr || !reasoning->IsString() || reasoning->text().empty()) continue;
      message.reasoning = reasoning->text();
      return;
    }
  }

  void ParseCalls(const Value& calls, ChatMessage& message) {
    const std::string param = param_ + ".tool_calls";
    if (!calls.IsList()) {
      Refuse("invalid_tool_call", param, "{} must be an array, found {}", param, Describe(calls));
    }
    if (message.role != ChatRole::kAssistant && !calls.items().empty()) {
      Refuse("invalid_tool_call", param, "{} is for assistant messages only", param);
    }
    for (size_t i = 0; i < calls.items().size(); ++i) {
      message.tool_calls.push_back(ParseCall(calls.items()[i], fmt::format("{}[{}]", param, i)));
    }
  }

  ChatToolCall ParseCall(const Value& value, const std::string& param) {
    const char* reason = "invalid_tool_call";
    if (!value.IsDict()) {
      Refuse(reason, param, "{} must be an object, found {}", param, Describe(value));
    }
    const std::string type = OptionalText(reason, value.dict(), "type", param);
    if (type != "function") {
      Refuse(reason, param + ".type", "{}.type must be 'function', found '{}'", param, type);
    }
    ChatToolCall call;
    call.id = OptionalText(reason, value.dict(), "id", param);
    if (call.id.empty()) Refuse(reason, param + ".id", "{}.id must be a non-empty string", param);
    const Value* function = Member(value.dict(), "function");
    if (function == nullptr || !function->IsDict()) {
      Refuse(reason, param + ".function", "{}.function must be an object", param);
    }
    const std::string inner = param + ".function";
    call.name = OptionalText(reason, function->dict(), "name", inner);
    CheckToolName(reason, call.name, inner + ".name");
    call.arguments = ParseArguments(function->dict().Find("arguments"), inner + ".arguments");
    ledger_.Open(call.id, call.name, param + ".id");
    return call;
  }

  Value ParseArguments(const Value* arguments, const std::string& param) const {
    const char* reason = "invalid_tool_arguments";
    if (arguments == nullptr || arguments->IsNone()) {
      Refuse("invalid_tool_call", param, "{} is missing", param);
    }
    if (arguments->IsDict()) return *arguments;
    const std::string& text = RequireText("invalid_tool_call", *arguments, param);
    if (text.empty()) return Value::MakeDict({});
    Value parsed;
    try {
      parsed = jinja::ParseJsonValue(text, param, ErrorCode::kMessagesInvalid,
                                     jinja::NumberStyle::kAsWritten, jinja::Origin::kData,
                                     limits_.max_json_depth);
    } catch (const Error& error) {
      Refuse(reason, param, "{}", error.what());
    }
    if (!parsed.IsDict()) {
      Refuse(reason, param, "{} must hold a JSON object, found {}", param, Describe(parsed));
    }
    return parsed;
  }

  void ParseResult(const Dict& object, ChatMessage& message) {
    const std::string param = param_ + ".tool_call_id";
    message.tool_call_id = OptionalText("invalid_tool_result", object, "tool_call_id", param_);
    const std::string function = ledger_.Close(message.tool_call_id, param);
    if (message.name.empty()) message.name = function;
  }

  const ConversationLimits& limits_;
  std::set<std::string>* ignored_;
  std::string param_;
  CallLedger ledger_;
};

// Checks a JSON schema as far as the framings rely on it.
class SchemaChecker {
 public:
  SchemaChecker(TextFamily family, size_t max_depth)
      : gemma_(family == TextFamily::kGemma4), max_depth_(max_depth) {}

  void Check(const Value& schema, const std::string& param) const {
    if (schema.depth() > max_depth_) {
      Refuse("invalid_tool_schema", param, "{} nests deeper than {} levels", param, max_depth_);
    }
    CheckNode(schema, param);
  }

 private:
  void CheckNode(const Value& node, const std::string& param) const {
    if (node.IsList()) {
      for (size_t i = 0; i < node.items().size(); ++i) {
        CheckNode(node.items()[i], fmt::format("{}[{}]", param, i));
      }
    }
    if (!node.IsDict()) return;
    for (const auto& [key, value] : node.dict().entries()) {
      const std::string inner = fmt::format("{}.{}", param, key.text());
      if (key.text() == "properties") {
        CheckProperties(value, inner);
      } else if (IsSchemaPosition(key.text())) {
        CheckNode(value, inner);
      }
    }
  }

  void CheckProperties(const Value& properties, const std::string& param) const {
    if (!properties.IsDict()) {
      Refuse("invalid_tool_schema", param, "{} must be an object, found {}", param,
             Describe(properties));
    }
    for (const auto& [name, schema] : properties.dict().entries()) {
      if (gemma_ && !IsGemmaKey(name.text())) {
        Refuse("invalid_tool_schema", param,
               "{}: the property name '{}' may hold only letters, digits, _ - . and $", param,
               name.text());
      }
      CheckNode(schema, fmt::format("{}.{}", param, name.text()));
    }
  }

  // Keywords below which schemas stand; `enum`, `default` and the like hold values.
  static bool IsSchemaPosition(std::string_view key) {
    static constexpr std::array<std::string_view, 10> kKeywords = {
        "items",       "anyOf", "oneOf", "allOf", "not", "additionalProperties",
        "prefixItems", "if",    "then",  "else"};
    return std::find(kKeywords.begin(), kKeywords.end(), key) != kKeywords.end();
  }

  static bool IsGemmaKey(std::string_view name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      const auto byte = static_cast<unsigned char>(c);
      return byte >= 0x80 || std::isalnum(byte) != 0 ||
             std::string_view("_-.$").find(c) != std::string_view::npos;
    });
  }

  bool gemma_;
  size_t max_depth_;
};

}  // namespace

const char* ChatRoleName(ChatRole role) {
  for (const auto& [known, name] : kRoles) {
    if (known == role) return name;
  }
  return "unknown";
}

MessagesError::MessagesError(std::string reason, std::string param, const std::string& message)
    : Error(ErrorCode::kMessagesInvalid, message),
      reason_(std::move(reason)),
      param_(std::move(param)) {}

std::vector<ChatMessage> ParseMessages(const Value& messages, const ConversationLimits& limits,
                                       std::set<std::string>* ignored) {
  if (!messages.IsList()) {
    Refuse("invalid_message", "messages", "messages must be an array, found {}",
           Describe(messages));
  }
  const List& items = messages.items();
  if (items.empty()) Refuse("invalid_message", "messages", "messages must not be empty");
  if (items.size() > limits.max_messages) {
    Refuse("invalid_message", "messages", "{} messages are more than the {} allowed", items.size(),
           limits.max_messages);
  }
  MessageParser parser(limits, ignored);
  std::vector<ChatMessage> parsed;
  for (size_t i = 0; i < items.size(); ++i) {
    parsed.push_back(parser.Parse(items[i], fmt::format("messages[{}]", i)));
  }
  return parsed;
}

std::vector<ToolDeclaration> ParseTools(const Value& tools, TextFamily family,
                                        const ConversationLimits& limits) {
  if (tools.IsNone()) return {};
  if (!tools.IsList()) {
    Refuse("invalid_tool_schema", "tools", "tools must be an array, found {}", Describe(tools));
  }
  if (tools.items().size() > limits.max_tools) {
    Refuse("invalid_value", "tools", "{} tools are more than the {} allowed", tools.items().size(),
           limits.max_tools);
  }
  const SchemaChecker checker(family, limits.max_json_depth);
  std::set<std::string> names;
  std::vector<ToolDeclaration> parsed;
  for (size_t i = 0; i < tools.items().size(); ++i) {
    const Value& tool = tools.items()[i];
    const std::string param = fmt::format("tools[{}]", i);
    if (!tool.IsDict()) {
      Refuse("unsupported_tool", param, "{} must be an object, found {}", param, Describe(tool));
    }
    const std::string type = OptionalText("unsupported_tool", tool.dict(), "type", param);
    const Value* function = Member(tool.dict(), "function");
    if (type != "function") {
      Refuse("unsupported_tool", param + ".type", "{}.type must be 'function', found '{}'", param,
             type);
    }
    if (function == nullptr || !function->IsDict()) {
      Refuse("unsupported_tool", param + ".function", "{}.function must be an object", param);
    }
    const std::string inner = param + ".function";
    ToolDeclaration declaration;
    declaration.name = OptionalText("invalid_tool_name", function->dict(), "name", inner);
    CheckToolName("invalid_tool_name", declaration.name, inner + ".name");
    if (!names.insert(declaration.name).second) {
      Refuse("invalid_tool_name", inner + ".name", "{}.name repeats the name '{}'", inner,
             declaration.name);
    }
    if (Member(function->dict(), "description") != nullptr) {
      declaration.description =
          OptionalText("invalid_tool_schema", function->dict(), "description", inner);
    }
    const Value* parameters = Member(function->dict(), "parameters");
    if (parameters == nullptr) {
      Dict empty;
      empty.Set(Value::Str("type", jinja::Origin::kTemplate),
                Value::Str("object", jinja::Origin::kTemplate));
      empty.Set(Value::Str("properties", jinja::Origin::kTemplate), Value::MakeDict({}));
      declaration.parameters = Value::MakeDict(std::move(empty));
    } else if (parameters->IsDict()) {
      declaration.parameters = *parameters;
      checker.Check(*parameters, inner + ".parameters");
    } else {
      Refuse("invalid_tool_schema", inner + ".parameters", "{}.parameters must be an object",
             inner);
    }
    parsed.push_back(std::move(declaration));
  }
  return parsed;
}

}  // namespace mference
