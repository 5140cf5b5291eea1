#include "server/api/completion_sinks.h"

namespace mference::server {
namespace {

// The older form: parallel arrays instead of objects.
class LogprobArrays {
 public:
  void Add(const TokenLogprobs& token, const Tokenizer& tokenizer) {
    const std::string text = TokenText(token.chosen.id, tokenizer);
    tokens_.push_back(text);
    token_logprobs_.push_back(FiniteLogprob(token.chosen.logprob));
    OrderedJson top = OrderedJson::object();
    for (int32_t i = 0; i < token.top_count; ++i) {
      const TokenLogprobs::Entry& other = token.top[static_cast<size_t>(i)];
      top[TokenText(other.id, tokenizer)] = FiniteLogprob(other.logprob);
    }
    top_logprobs_.push_back(std::move(top));
    text_offset_.push_back(offset_);
    offset_ += text.size();
  }

  // What has been added since the last call; null where nothing was.
  OrderedJson Take() {
    if (tokens_.empty()) return nullptr;
    OrderedJson all = {{"tokens", std::move(tokens_)},
                       {"token_logprobs", std::move(token_logprobs_)},
                       {"top_logprobs", std::move(top_logprobs_)},
                       {"text_offset", std::move(text_offset_)}};
    tokens_ = token_logprobs_ = top_logprobs_ = text_offset_ = OrderedJson::array();
    return all;
  }

 private:
  OrderedJson tokens_ = OrderedJson::array();
  OrderedJson token_logprobs_ = OrderedJson::array();
  OrderedJson top_logprobs_ = OrderedJson::array();
  OrderedJson text_offset_ = OrderedJson::array();
  size_t offset_ = 0;
};

class CompletionSink : public ReplySink {
 public:
  CompletionSink(std::shared_ptr<Exchange> exchange, SinkOptions options, bool stream)
      : exchange_(std::move(exchange)), options_(std::move(options)), stream_(stream) {}

  void Begin() override {
    if (stream_) exchange_->BeginStream(options_.heartbeat);
  }

  void Add(const std::vector<DialectEvent>& events,
           const std::vector<TokenLogprobs>& logprobs) override {
    for (const TokenLogprobs& token : logprobs) logprobs_.Add(token, *options_.tokenizer);
    for (const DialectEvent& event : events) text_ += event.text;
    if (stream_ && !text_.empty()) Write(Object(nullptr));
  }

  void Finish(FinishReason reason, const Usage& usage) override {
    OrderedJson last = Object(FinishReasonName(reason));
    if (!stream_) {
      last["usage"] = UsageJson(usage);
      exchange_->Send({.body = Dump(last)});
      return;
    }
    Write(last);
    if (options_.include_usage) {
      OrderedJson chunk = HeadJson(options_.head, "text_completion");
      chunk["choices"] = OrderedJson::array();
      chunk["usage"] = UsageJson(usage);
      Write(chunk);
    }
    End();
  }

  void Fail(const ApiError& error) override {
    if (!stream_) return exchange_->Send(ErrorResponse(error));
    exchange_->Write(SseEvent(ErrorBody(error)));
    End();
  }

 private:
  // An object with what has come since the last one.
  OrderedJson Object(const char* finish_reason) {
    OrderedJson choice = {{"text", std::exchange(text_, "")},
                          {"index", 0},
                          {"logprobs", logprobs_.Take()},
                          {"finish_reason", nullptr}};
    if (finish_reason != nullptr) choice["finish_reason"] = finish_reason;
    OrderedJson object = HeadJson(options_.head, "text_completion");
    object["system_fingerprint"] = options_.head.fingerprint;
    object["choices"] = OrderedJson::array({std::move(choice)});
    if (stream_ && options_.include_usage) object["usage"] = nullptr;
    return object;
  }

  void Write(const OrderedJson& object) { exchange_->Write(SseEvent(Dump(object))); }

  void End() {
    exchange_->Write(std::string(kSseDone));
    exchange_->EndStream();
  }

  const std::shared_ptr<Exchange> exchange_;
  const SinkOptions options_;
  const bool stream_;
  std::string text_;
  LogprobArrays logprobs_;
};

}  // namespace

std::unique_ptr<ReplySink> MakeCompletionSink(std::shared_ptr<Exchange> exchange,
                                              SinkOptions options) {
  return std::make_unique<CompletionSink>(std::move(exchange), std::move(options), false);
}

std::unique_ptr<ReplySink> MakeCompletionStreamSink(std::shared_ptr<Exchange> exchange,
                                                    SinkOptions options) {
  return std::make_unique<CompletionSink>(std::move(exchange), std::move(options), true);
}

}  // namespace mference::server
