#include "server/api/chat_sinks.h"

#include <utility>

#include "text/dialects/utf8_repair.h"

namespace mference::server {
namespace {

using Kind = DialectEvent::Kind;

// Clients put fragments together; small ones keep each event small.
constexpr size_t kFragmentBytes = 1024;

class ChatSink : public ReplySink {
 public:
  ChatSink(std::shared_ptr<Exchange> exchange, SinkOptions options)
      : exchange_(std::move(exchange)), options_(std::move(options)) {}

  void Begin() override {}

  void Add(const std::vector<DialectEvent>& events,
           const std::vector<TokenLogprobs>& logprobs) override {
    AppendEvents(events, &reply_);
    for (const TokenLogprobs& token : logprobs) {
      logprobs_.push_back(LogprobJson(token, *options_.tokenizer));
    }
  }

  void Finish(FinishReason reason, const Usage& usage) override {
    OrderedJson message = {{"role", "assistant"}};
    const bool only_calls = reply_.content.empty() && !reply_.calls.empty();
    message["content"] = only_calls ? OrderedJson() : OrderedJson(reply_.content);
    if (!reply_.reasoning.empty()) message["reasoning_content"] = reply_.reasoning;
    message["refusal"] = nullptr;
    if (!reply_.calls.empty()) message["tool_calls"] = Calls();
    OrderedJson choice = {{"index", 0}, {"message", std::move(message)}};
    choice["logprobs"] = options_.logprobs
                             ? OrderedJson{{"content", std::move(logprobs_)}, {"refusal", nullptr}}
                             : OrderedJson();
    choice["finish_reason"] = FinishReasonName(reason);
    OrderedJson body = HeadJson(options_.head, "chat.completion");
    body["choices"] = OrderedJson::array({std::move(choice)});
    body["usage"] = UsageJson(usage);
    body["system_fingerprint"] = options_.head.fingerprint;
    exchange_->Send({.body = Dump(body)});
  }

  void Fail(const ApiError& error) override { exchange_->Send(ErrorResponse(error)); }

 private:
  OrderedJson Calls() const {
    OrderedJson calls = OrderedJson::array();
    for (const ToolCall& call : reply_.calls) {
      calls.push_back({{"id", options_.call_ids->Get(calls.size())},
                       {"type", "function"},
                       {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    return calls;
  }

  const std::shared_ptr<Exchange> exchange_;
  const SinkOptions options_;
  Reply reply_;
  OrderedJson logprobs_ = OrderedJson::array();
};

class ChatStreamSink : public ReplySink {
 public:
  ChatStreamSink(std::shared_ptr<Exchange> exchange, SinkOptions options)
      : exchange_(std::move(exchange)), options_(std::move(options)) {}

  void Begin() override {
    exchange_->BeginStream(options_.heartbeat);
    WriteDelta({{"role", "assistant"}, {"content", ""}});
  }

  void Add(const std::vector<DialectEvent>& events,
           const std::vector<TokenLogprobs>& logprobs) override {
    for (const TokenLogprobs& token : logprobs) {
      logprobs_.push_back(LogprobJson(token, *options_.tokenizer));
    }
    for (const DialectEvent& event : events) Add(event);
  }

  void Finish(FinishReason reason, const Usage& usage) override {
    WriteDelta(OrderedJson::object(), FinishReasonName(reason));
    if (options_.include_usage) {
      OrderedJson chunk = Chunk();
      chunk["choices"] = OrderedJson::array();
      chunk["usage"] = UsageJson(usage);
      exchange_->Write(SseEvent(Dump(chunk)));
    }
    End();
  }

  void Fail(const ApiError& error) override {
    exchange_->Write(SseEvent(ErrorBody(error)));
    End();
  }

 private:
  void Add(const DialectEvent& event) {
    switch (event.kind) {
      case Kind::kContent:
        return WriteDelta({{"content", event.text}});
      case Kind::kReasoning:
        return WriteDelta({{"reasoning_content", event.text}});
      case Kind::kCallStarted:
        return WriteCall({{"index", event.call},
                          {"id", options_.call_ids->Get(event.call)},
                          {"type", "function"},
                          {"function", {{"name", event.text}, {"arguments", ""}}}});
      case Kind::kCallArguments:
        return WriteArguments(event.call, event.text);
      case Kind::kCallCompleted:
        return ReleaseBrace(event.call);
    }
  }

  void WriteCall(OrderedJson call) {
    WriteDelta({{"tool_calls", OrderedJson::array({std::move(call)})}});
  }

  // A brace may be the last of the arguments. It waits for what follows it, or for the call to be
  // complete: what a client holds of a call that fails or is cut off is no JSON.
  void WriteArguments(size_t index, std::string_view text) {
    ReleaseBrace(index);
    brace_held_ = text.ends_with('}');
    if (brace_held_) text.remove_suffix(1);
    while (!text.empty()) {
      const std::string_view fragment = CutAtScalar(text, kFragmentBytes);
      text.remove_prefix(fragment.size());
      WriteFragment(index, fragment);
    }
  }

  void ReleaseBrace(size_t index) {
    if (std::exchange(brace_held_, false)) WriteFragment(index, "}");
  }

  void WriteFragment(size_t index, std::string_view fragment) {
    WriteCall({{"index", index}, {"function", {{"arguments", fragment}}}});
  }

  OrderedJson Chunk() const {
    OrderedJson chunk = HeadJson(options_.head, "chat.completion.chunk");
    chunk["system_fingerprint"] = options_.head.fingerprint;
    return chunk;
  }

  // What is known of tokens goes with the first thing shown after them.
  void WriteDelta(OrderedJson delta, const char* finish_reason = nullptr) {
    OrderedJson choice = {{"index", 0}, {"delta", std::move(delta)}};
    if (options_.logprobs) {
      choice["logprobs"] =
          logprobs_.empty() ? OrderedJson()
                            : OrderedJson{{"content", std::move(logprobs_)}, {"refusal", nullptr}};
      logprobs_ = OrderedJson::array();
    }
    choice["finish_reason"] = finish_reason == nullptr ? OrderedJson() : OrderedJson(finish_reason);
    OrderedJson chunk = Chunk();
    chunk["choices"] = OrderedJson::array({std::move(choice)});
    if (options_.include_usage) chunk["usage"] = nullptr;
    exchange_->Write(SseEvent(Dump(chunk)));
  }

  void End() {
    exchange_->Write(std::string(kSseDone));
    exchange_->EndStream();
  }

  const std::shared_ptr<Exchange> exchange_;
  const SinkOptions options_;
  bool brace_held_ = false;
  OrderedJson logprobs_ = OrderedJson::array();
};

}  // namespace

std::unique_ptr<ReplySink> MakeChatSink(std::shared_ptr<Exchange> exchange, SinkOptions options) {
  return std::make_unique<ChatSink>(std::move(exchange), std::move(options));
}

std::unique_ptr<ReplySink> MakeChatStreamSink(std::shared_ptr<Exchange> exchange,
                                              SinkOptions options) {
  return std::make_unique<ChatStreamSink>(std::move(exchange), std::move(options));
}

}  // namespace mference::server
