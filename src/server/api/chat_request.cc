#include "server/api/chat_request.h"

#include <algorithm>
#include <set>

namespace mference::server {
namespace {

using jinja::Value;

constexpr int64_t kDefaultMaxTokens = 4096;

// Describe the request or its sender, not the answer.
constexpr std::string_view kWithoutEffect[] = {"user",
                                               "metadata",
                                               "store",
                                               "service_tier",
                                               "prompt_cache_key",
                                               "prompt_cache_retention",
                                               "safety_identifier"};

constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                         "high", "xhigh",   "max"};

void ReadLogprobs(RequestFields& fields, GenerationFields* out) {
  out->logprobs = fields.Bool("logprobs").value_or(false);
  const int64_t top = fields.Integer("top_logprobs").value_or(0);
  if (top < 0 || top > TokenLogprobs::kMaxTop) {
    fields.Refuse("invalid_value", "top_logprobs", "top_logprobs must be from 0 to {}",
                  TokenLogprobs::kMaxTop);
  }
  if (top > 0 && !out->logprobs) {
    fields.Refuse("invalid_value", "top_logprobs", "top_logprobs needs logprobs to be true");
  }
  out->top_logprobs = static_cast<int32_t>(top);
}

// Returns the name that a named choice asks for.
void ReadToolChoice(RequestFields& fields, ChatRequest* out) {
  const Value* choice = fields.Find("tool_choice");
  if (choice == nullptr) return;
  if (choice->IsString()) {
    const std::string& text = choice->text();
    if (text == "auto") return;
    if (text == "none") {
      out->tool_choice = ToolChoice::kNone;
    } else if (text == "required") {
      out->tool_choice = ToolChoice::kRequired;
    } else {
      fields.Refuse("invalid_value", "tool_choice",
                    "tool_choice must be auto, none, required or name a function");
    }
    return;
  }
  if (!choice->IsDict()) fields.FailType("tool_choice", "a string or an object");
  RequestFields object(*choice, "tool_choice");
  const std::string type = object.Text("type").value_or("");
  if (type != "function") {
    object.Refuse("unsupported_value", "type",
                  "tool_choice of the type '{}' is not supported, only 'function'",
                  type.substr(0, 40));
  }
  std::optional<RequestFields> function = object.Object("function");
  const std::optional<std::string> name = function ? function->Text("name") : object.Text("name");
  if (!name) object.FailType("function", "an object with a name");
  out->tool_choice = ToolChoice::kNamed;
  out->forced_tool = *name;
}

void ReadTools(RequestFields& fields, const ServedModel& model, ChatRequest* out) {
  const Value* tools = fields.Find("tools");
  if (tools != nullptr) out->tools = ParseTools(*tools, model.family);
  const bool forced =
      out->tool_choice == ToolChoice::kRequired || out->tool_choice == ToolChoice::kNamed;
  if (forced && out->tools.empty()) {
    fields.Refuse("invalid_value", "tool_choice",
                  "tool_choice asks for a call, but there are no "
                  "tools");
  }
  if (out->tool_choice == ToolChoice::kNamed &&
      std::none_of(out->tools.begin(), out->tools.end(),
                   [&](const ToolDeclaration& tool) { return tool.name == out->forced_tool; })) {
    fields.Refuse("invalid_value", "tool_choice", "tool_choice names '{}', which is not in tools",
                  out->forced_tool.substr(0, 64));
  }
  if (out->tool_choice == ToolChoice::kNone) out->tools.clear();
}

void ReadResponseFormat(RequestFields& fields, ChatRequest* out) {
  std::optional<RequestFields> format = fields.Object("response_format");
  if (!format) return;
  const std::optional<std::string> type = format->Text("type");
  if (!type) format->FailType("type", "a string");
  if (*type == "json_object") {
    out->format.kind = ResponseFormat::Kind::kJsonObject;
  } else if (*type == "json_schema") {
    out->format.kind = ResponseFormat::Kind::kJsonSchema;
    std::optional<RequestFields> holder = format->Object("json_schema");
    if (!holder) format->FailType("json_schema", "an object");
    const Value* schema = holder->Find("schema");
    if (schema == nullptr || (!schema->IsDict() && !schema->IsBool())) {
      holder->FailType("schema", "a JSON schema");
    }
    out->format.schema = *schema;
    holder->Bool("strict");  // always
    for (const char* name : {"name", "description"}) holder->Find(name);
    holder->AddUnasked(&out->generation.ignored);
  } else if (*type != "text") {
    format->Refuse("invalid_value", "type",
                   "response_format.type must be text, json_object or json_schema");
  }
  format->AddUnasked(&out->generation.ignored);
  const bool forced =
      out->tool_choice == ToolChoice::kRequired || out->tool_choice == ToolChoice::kNamed;
  if (forced && out->format.kind != ResponseFormat::Kind::kText) {
    fields.Refuse("unsupported_value", "response_format",
                  "response_format cannot be combined with a tool_choice that forces a call");
  }
}

bool IsEffort(const std::string& level) {
  return std::find(std::begin(kEfforts), std::end(kEfforts), level) != std::end(kEfforts);
}

void ReadEffort(RequestFields& fields, const char* name, ChatRequest* out) {
  const std::optional<std::string> level = fields.Text(name);
  if (!level) return;
  if (!IsEffort(*level)) {
    fields.Refuse("invalid_value", name,
                  "{} must be none, minimal, low, medium, high, xhigh or max", fields.PathOf(name));
  }
  out->reasoning_effort = *level;
  out->thinking = *level != "none";
}

void ReadReasoningLimit(RequestFields& fields, const char* name, ChatRequest* out) {
  const std::optional<int64_t> limit = fields.Integer(name);
  if (!limit) return;
  if (*limit < 0) {
    fields.Refuse("invalid_value", name, "{} must not be negative", fields.PathOf(name));
  }
  out->max_reasoning_tokens = limit;
}

// Members of other servers' `reasoning`, which would change the answer.
void RefuseReasoningMembers(RequestFields& reasoning) {
  constexpr std::pair<const char*, const char*> kInstead[] = {
      {"max_tokens", "use max_reasoning_tokens"},
      {"enabled", "use reasoning.effort"},
      {"exclude", "reasoning arrives apart from the content"}};
  for (const auto& [name, advice] : kInstead) {
    const Value* value = reasoning.Find(name);
    if (value == nullptr || IsNeutral(*value)) continue;
    reasoning.Refuse("unsupported_value", name, "{} is not supported; {}", reasoning.PathOf(name),
                     advice);
  }
}

// Later ones win: the more specific switch comes later.
void ReadReasoning(RequestFields& fields, const ServedModel& model, ChatRequest* out) {
  out->thinking = model.thinking;
  if (std::optional<RequestFields> variables = fields.Object("chat_template_kwargs")) {
    if (const std::optional<bool> thinking = variables->Bool("enable_thinking")) {
      out->thinking = *thinking;
    }
    if (const Value* object = fields.Find("chat_template_kwargs")) {
      for (const auto& [key, value] : object->dict().entries()) {
        if (key.text() != "enable_thinking") {
          out->template_variables.emplace_back(key.text(), value);
        }
      }
    }
  }
  if (std::optional<RequestFields> thinking = fields.Object("thinking")) {
    const std::string type = thinking->Text("type").value_or("");
    if (type != "enabled" && type != "disabled") {
      thinking->Refuse("invalid_value", "type", "thinking.type must be enabled or disabled");
    }
    out->thinking = type == "enabled";
    ReadReasoningLimit(*thinking, "budget_tokens", out);
    thinking->AddUnasked(&out->generation.ignored);
  }
  if (std::optional<RequestFields> reasoning = fields.Object("reasoning")) {
    ReadEffort(*reasoning, "effort", out);
    RefuseReasoningMembers(*reasoning);
    reasoning->AddUnasked(&out->generation.ignored);
  }
  ReadEffort(fields, "reasoning_effort", out);
  ReadReasoningLimit(fields, "max_reasoning_tokens", out);
  // A block that is opened and closed at once would only move the reasoning into the answer.
  if (out->thinking && out->max_reasoning_tokens == 0) {
    out->thinking = false;
    out->reasoning_effort = "none";
  }
}

}  // namespace

ChatRequest ParseChatRequest(const Value& body, const ServedModel& model) {
  RequestFields fields(body);
  ChatRequest request;
  GenerationFields& generation = request.generation;
  generation.sampling = model.sampling_defaults;
  CheckModel(fields, model);
  ReadLogprobs(fields, &generation);
  ReadPenalties(fields, &generation);
  request.parallel_tool_calls = fields.Bool("parallel_tool_calls").value_or(true);
  ReadSampling(fields, model, kDefaultMaxTokens, &generation);
  ReadStreaming(fields, &generation);
  RefuseUnsupported(fields);
  ReadToolChoice(fields, &request);
  ReadReasoning(fields, model, &request);
  try {
    ReadTools(fields, model, &request);
    ReadResponseFormat(fields, &request);
    const Value* messages = fields.Find("messages");
    if (messages == nullptr) throw ApiError(400, "invalid_json", "messages is missing", "messages");
    if (!messages->IsList()) fields.FailType("messages", "an array");
    std::set<std::string> ignored;
    request.messages = ParseMessages(*messages, {}, &ignored);
    for (const std::string& name : ignored) generation.ignored.push_back("messages[]." + name);
  } catch (const MessagesError& error) {
    throw ApiError(400, error.reason(), error.what(), error.param());
  }
  for (const std::string_view name : kWithoutEffect) fields.Find(name);
  std::vector<std::string> ignored;
  fields.AddUnasked(&ignored);
  generation.ignored.insert(generation.ignored.begin(), ignored.begin(), ignored.end());
  return request;
}

}  // namespace mference::server
