// One request on its way through the server: received, prepared, waiting, generated.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "constrain/reasoning_limit.h"
#include "constrain/token_constraint.h"
#include "engine/generator.h"
#include "engine/reply_stream.h"
#include "engine/turn_history.h"
#include "server/generation/reply_sink.h"
#include "server/http/exchange.h"

namespace mference::server {

// The conversation a reply belongs to, to be remembered with it.
struct ChatTurn {
  std::vector<ChatMessage> messages;
  std::vector<ToolDeclaration> tools;
  PromptOptions options;
};

// Everything the model needs to know of a request.
struct PreparedGeneration {
  std::vector<TokenId> prompt;
  // The prompt continued from what the model really said earlier; empty where that is no different.
  // It is taken where more of it can be reused.
  std::vector<TokenId> continued_prompt;
  std::optional<ChatTurn> turn;  // chat only
  SamplingParams sampling;
  int64_t max_tokens = 0;  // clipped to the context when it starts
  ReplyStreamOptions stream;
  std::unique_ptr<TokenConstraint> constraint;  // may be null
  ReasoningLimit* reasoning_limit = nullptr;    // the constraint, where it is one
  bool logprobs = false;
  int32_t top_logprobs = 0;
  bool show_reasoning = false;
  bool one_call_only = false;  // parallel_tool_calls: false
};

// The ids of a reply's calls: the client and the turn history are told the same ones.
class CallIds {
 public:
  const std::string& Get(size_t call);

 private:
  std::vector<std::string> ids_;
};

// Shared by the threads it passes through, one after the other; only the atomics are touched by
// several at once.
struct Job {
  using Clock = std::chrono::steady_clock;

  std::shared_ptr<Exchange> exchange;
  const Clock::time_point received = Clock::now();
  bool streaming = false;
  PreparedGeneration generation;
  std::unique_ptr<ReplySink> sink;
  CallIds call_ids;

  CancelFlag cancelled{false};  // the client has gone, or the server is going
  std::atomic<int64_t> prefill_done{0};
  std::atomic<int64_t> prefill_total{0};

  const std::string& id() const { return exchange->id(); }
};

}  // namespace mference::server
