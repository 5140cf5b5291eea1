#include "server/api/reply_json.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>

#include "server/random_id.h"
#include "text/dialects/utf8_repair.h"

namespace mference::server {
namespace {

constexpr double kLowestLogprob = -9999.0;
constexpr int kReplyIdDigits = 32;

OrderedJson TokenJson(TokenId id, float logprob, const Tokenizer& tokenizer) {
  std::string bytes;
  tokenizer.AppendTokenBytes(id, &bytes);
  OrderedJson list = OrderedJson::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return {{"token", TokenText(id, tokenizer)},
          {"logprob", FiniteLogprob(logprob)},
          {"bytes", std::move(list)}};
}

}  // namespace

ReplyHead MakeReplyHead(std::string_view prefix, const std::string& model,
                        const std::string& fingerprint) {
  return {RandomId(prefix, kReplyIdDigits), static_cast<int64_t>(std::time(nullptr)), model,
          fingerprint};
}

OrderedJson HeadJson(const ReplyHead& head, const char* object) {
  return {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
}

OrderedJson UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

OrderedJson LogprobJson(const TokenLogprobs& logprobs, const Tokenizer& tokenizer) {
  OrderedJson entry = TokenJson(logprobs.chosen.id, logprobs.chosen.logprob, tokenizer);
  OrderedJson top = OrderedJson::array();
  for (int32_t i = 0; i < logprobs.top_count; ++i) {
    const TokenLogprobs::Entry& other = logprobs.top[static_cast<size_t>(i)];
    top.push_back(TokenJson(other.id, other.logprob, tokenizer));
  }
  entry["top_logprobs"] = std::move(top);
  return entry;
}

std::string TokenText(TokenId id, const Tokenizer& tokenizer) {
  std::string bytes;
  tokenizer.AppendTokenBytes(id, &bytes);
  Utf8Repair repair;
  std::string text = repair.Push(bytes);
  return text + repair.Flush();
}

double FiniteLogprob(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : kLowestLogprob;
}

std::string Dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string SseEvent(std::string_view text) { return fmt::format("data: {}\n\n", text); }

}  // namespace mference::server
