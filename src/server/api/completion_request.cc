#include "server/api/completion_request.h"

#include <algorithm>

namespace mference::server {
namespace {

using jinja::Value;

constexpr int64_t kDefaultMaxTokens = 16;
constexpr int64_t kMaxLogprobs = 5;
// Raw text has no turns: no reasoning or calls that could be told from the rest, and no template.
constexpr std::string_view kForChats[] = {
    "messages",  "response_format",      "tools",    "tool_choice",         "reasoning_effort",
    "reasoning", "max_reasoning_tokens", "thinking", "chat_template_kwargs"};

// `logprobs` is a number here: how many alternatives.
void ReadLogprobs(RequestFields& fields, GenerationFields* out) {
  const Value* value = fields.Find("logprobs");
  if (value == nullptr || (value->IsBool() && !value->boolean())) return;
  const int64_t top = fields.Integer("logprobs").value_or(0);
  if (top < 0 || top > kMaxLogprobs) {
    fields.Refuse("invalid_value", "logprobs", "logprobs must be from 0 to {}", kMaxLogprobs);
  }
  out->logprobs = true;
  out->top_logprobs = static_cast<int32_t>(top);
}

std::vector<TokenId> ReadIds(RequestFields& fields, const Value& list, const ServedModel& model) {
  std::vector<TokenId> ids;
  ids.reserve(list.items().size());
  for (const Value& item : list.items()) {
    if (!item.IsSmallInt()) fields.FailType("prompt", "a string or an array of token ids");
    if (item.small_int() < 0 || item.small_int() >= model.vocab_size) {
      fields.Refuse("invalid_value", "prompt", "{} is not a token id below {}", item.small_int(),
                    model.vocab_size);
    }
    ids.push_back(static_cast<TokenId>(item.small_int()));
  }
  return ids;
}

void ReadPrompt(RequestFields& fields, const ServedModel& model, CompletionRequest* out) {
  const Value* prompt = fields.Find("prompt");
  if (prompt == nullptr) throw ApiError(400, "invalid_json", "prompt is missing", "prompt");
  // A batch of one is what many clients send.
  if (prompt->IsList() && !prompt->items().empty() && !prompt->items()[0].IsSmallInt()) {
    if (prompt->items().size() > 1) {
      fields.Refuse("unsupported_value", "prompt", "only one prompt per request is supported");
    }
    prompt = &prompt->items()[0];
  }
  if (prompt->IsList()) {
    out->given_as_tokens = true;
    out->tokens = ReadIds(fields, *prompt, model);
    if (out->tokens.empty()) fields.Refuse("invalid_value", "prompt", "prompt is empty");
    return;
  }
  if (!prompt->IsString()) fields.FailType("prompt", "a string or an array of token ids");
  out->prompt = prompt->text();
}

void RefuseChatMembers(RequestFields& fields) {
  for (const std::string_view name : kForChats) {
    const Value* value = fields.Find(name);
    if (value == nullptr || IsNeutral(*value)) continue;
    fields.Refuse("unsupported_value", name, "{} is for chat completions", name);
  }
}

}  // namespace

CompletionRequest ParseCompletionRequest(const Value& body, const ServedModel& model) {
  RequestFields fields(body);
  CompletionRequest request;
  request.generation.sampling = model.sampling_defaults;
  CheckModel(fields, model);
  ReadLogprobs(fields, &request.generation);
  ReadPenalties(fields, &request.generation);
  ReadSampling(fields, model, kDefaultMaxTokens, &request.generation);
  ReadStreaming(fields, &request.generation);
  RefuseChatMembers(fields);
  RefuseUnsupported(fields);
  ReadPrompt(fields, model, &request);
  fields.Find("user");
  fields.AddUnasked(&request.generation.ignored);
  return request;
}

}  // namespace mference::server
