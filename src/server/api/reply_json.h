// Parts of answers that chat and text completions share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/sampler.h"
#include "server/generation/reply_sink.h"
#include "text/tokenizer/tokenizer.h"

namespace mference::server {

// What every object of one answer repeats.
struct ReplyHead {
  std::string id;  // "chatcmpl-..."
  int64_t created = 0;
  std::string model;
  std::string fingerprint;
};

// With an id of `prefix` and the current time.
ReplyHead MakeReplyHead(std::string_view prefix, const std::string& model,
                        const std::string& fingerprint);

// {"id", "object", "created", "model"}
OrderedJson HeadJson(const ReplyHead& head, const char* object);

OrderedJson UsageJson(const Usage& usage);

// One token of `logprobs.content`: text, log-probability, bytes, and the alternatives.
OrderedJson LogprobJson(const TokenLogprobs& logprobs, const Tokenizer& tokenizer);

// A token's text on its own; bytes that are no UTF-8 by themselves become U+FFFD.
std::string TokenText(TokenId id, const Tokenizer& tokenizer);

// JSON cannot say minus infinity; clients know this number.
double FiniteLogprob(float logprob);

// Compact; what is not UTF-8 becomes U+FFFD.
std::string Dump(const OrderedJson& json);

// `data: TEXT` and a blank line. `text` has no newline.
std::string SseEvent(std::string_view text);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace mference::server
