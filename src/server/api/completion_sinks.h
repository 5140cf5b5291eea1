// Replies of /v1/completions, whole or as a stream of events.
#pragma once

#include <functional>
#include <memory>

#include "server/api/chat_sinks.h"

namespace mference::server {

// The options mean the same.
std::unique_ptr<ReplySink> MakeCompletionSink(std::shared_ptr<Exchange> exchange,
                                              SinkOptions options);
std::unique_ptr<ReplySink> MakeCompletionStreamSink(std::shared_ptr<Exchange> exchange,
                                                    SinkOptions options);

}  // namespace mference::server
