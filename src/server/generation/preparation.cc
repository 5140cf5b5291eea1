#include "server/generation/preparation.h"

#include <ctime>

#include "server/api/request_fields.h"
#include "server/generation/constraints.h"
#include "text/template/template.h"

namespace mference::server {
namespace {

std::tm LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

void RequireRoom(const std::vector<TokenId>& prompt, const ServedModel& model, const char* param) {
  const auto length = static_cast<int64_t>(prompt.size());
  if (length >= model.context) throw ContextLengthExceeded(model.context, length, param);
}

PreparedGeneration FromFields(const GenerationFields& fields) {
  PreparedGeneration generation;
  generation.sampling = fields.sampling;
  generation.max_tokens = fields.max_tokens;
  generation.stream.stops = fields.stops;
  generation.logprobs = fields.logprobs;
  generation.top_logprobs = fields.top_logprobs;
  return generation;
}

void LimitReasoning(int64_t max_tokens, const TextLayer& text, PreparedGeneration& generation) {
  const std::optional<ReasoningTokens> tokens = text.reasoning_tokens();
  if (!tokens) {
    throw ApiError(400, "unsupported_value",
                   "the model's vocabulary has no tokens that open and close reasoning",
                   "max_reasoning_tokens");
  }
  auto limit = std::make_unique<ReasoningLimit>(
      *tokens, max_tokens, generation.stream.start == ReplyStart::kReasoning,
      text.tokenizer().id_limit(), std::move(generation.constraint));
  generation.reasoning_limit = limit.get();
  generation.constraint = std::move(limit);
}

EffectivePrompt Render(const ChatTurn& turn, const TextLayer& text, TurnHistory& history) {
  try {
    return history.Prepare(text, turn.messages, turn.tools, turn.options);
  } catch (const MessagesError& error) {
    throw ApiError(400, error.reason(), error.what(), error.param());
  } catch (const jinja::TemplateError& error) {
    // What the template says of the conversation is for the client, also where it gives up.
    throw ApiError(
        400, "invalid_message",
        fmt::format("the model's chat template refuses the conversation: {}", error.detail()),
        "messages");
  }
}

}  // namespace

PreparedGeneration PrepareChat(const ChatRequest& request, const TextLayer& text,
                               const ServedModel& model, TurnHistory& history) {
  PreparedGeneration generation = FromFields(request.generation);
  ChatTurn& turn = generation.turn.emplace();
  turn.messages = request.messages;
  turn.tools = request.tools;
  turn.options.enable_thinking = request.thinking;
  turn.options.reasoning_effort = request.reasoning_effort;
  turn.options.extra = request.template_variables;
  turn.options.now = LocalTime();
  EffectivePrompt prompt = Render(turn, text, history);
  RequireRoom(prompt.rendered_ids, model, "messages");
  const bool differs = prompt.remembered_tokens > 0 && prompt.ids != prompt.rendered_ids;
  if (differs && static_cast<int64_t>(prompt.ids.size()) < model.context) {
    generation.continued_prompt = std::move(prompt.ids);
  }
  generation.prompt = std::move(prompt.rendered_ids);
  generation.stream.start = DefaultReplyStart(text.family(), request.thinking);
  generation.constraint = MakeConstraint(text, request, generation.stream.start);
  if (request.max_reasoning_tokens) LimitReasoning(*request.max_reasoning_tokens, text, generation);
  for (const ToolDeclaration& tool : request.tools) {
    generation.stream.tools.push_back({tool.name, Json(ToJson(tool.parameters))});
  }
  generation.stream.stream_arguments = request.generation.stream;
  generation.show_reasoning = request.thinking;
  generation.one_call_only = !request.parallel_tool_calls;
  return generation;
}

PreparedGeneration PrepareCompletion(const CompletionRequest& request, const TextLayer& text,
                                     const ServedModel& model) {
  PreparedGeneration generation = FromFields(request.generation);
  generation.stream.raw = true;
  generation.prompt = request.given_as_tokens ? request.tokens : text.EncodeRaw(request.prompt);
  if (generation.prompt.empty()) {
    throw ApiError(400, "invalid_value", "prompt is empty", "prompt");
  }
  RequireRoom(generation.prompt, model, "prompt");
  return generation;
}

}  // namespace mference::server
