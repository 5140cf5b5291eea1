#include "server/generation/constraints.h"

#include "constrain/grammar_constraint.h"
#include "constrain/reply_grammar.h"
#include "server/api/request_fields.h"

namespace mference::server {
namespace {

bool ForcesCall(const ChatRequest& request) {
  return request.tool_choice == ToolChoice::kRequired || request.tool_choice == ToolChoice::kNamed;
}

ReplyGrammarOptions Describe(const ChatRequest& request, TextFamily family, ReplyStart start) {
  ReplyGrammarOptions options;
  options.family = family;
  options.start = start;
  options.reasoning = request.thinking;
  switch (request.format.kind) {
    case ResponseFormat::Kind::kText:
      break;
    case ResponseFormat::Kind::kJsonObject:
      options.schema = AnyObjectSchema();
      break;
    case ResponseFormat::Kind::kJsonSchema:
      options.schema = ToJson(request.format.schema);
      break;
  }
  using Calls = ReplyGrammarOptions::Calls;
  if (!request.tools.empty()) {
    options.calls = ForcesCall(request) ? Calls::kRequired : Calls::kAllowed;
  }
  for (const ToolDeclaration& tool : request.tools) {
    options.tools.push_back({tool.name, ToJson(tool.parameters)});
  }
  options.only_tool = request.forced_tool;
  options.parallel_calls = request.parallel_tool_calls;
  return options;
}

}  // namespace

std::unique_ptr<TokenConstraint> MakeConstraint(const TextLayer& text, const ChatRequest& request,
                                                ReplyStart start) {
  const bool formatted = request.format.kind != ResponseFormat::Kind::kText;
  if (!formatted && !ForcesCall(request)) return nullptr;
  const std::string param = formatted ? "response_format.json_schema.schema" : std::string("tools");
  try {
    return text.MakeConstraint(CompileReplyGrammar(Describe(request, text.family(), start)));
  } catch (const SchemaError& error) {
    throw ApiError(400, "unsupported_value",
                   fmt::format("the JSON schema cannot be enforced: {}", error.what()), param);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    throw ApiError(400, "invalid_value", error.what(), param);
  }
}

}  // namespace mference::server
