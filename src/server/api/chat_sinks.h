// Replies of /v1/chat/completions, whole or as a stream of events.
#pragma once

#include <functional>
#include <memory>

#include "engine/text_layer.h"
#include "server/api/reply_json.h"
#include "server/generation/job.h"

namespace mference::server {

struct SinkOptions {
  ReplyHead head;
  bool include_usage = false;  // streams only
  bool logprobs = false;
  const Tokenizer* tokenizer = nullptr;  // must outlive the sink
  CallIds* call_ids = nullptr;           // chat; must outlive the sink
  // What a stream says while nothing else is to say.
  std::function<std::string()> heartbeat;
};

std::unique_ptr<ReplySink> MakeChatSink(std::shared_ptr<Exchange> exchange, SinkOptions options);
std::unique_ptr<ReplySink> MakeChatStreamSink(std::shared_ptr<Exchange> exchange,
                                              SinkOptions options);

}  // namespace mference::server
