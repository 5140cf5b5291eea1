// Inkling: a reply is a sequence of sections, each with an optional author and a kind.
//
//   reply   := { section } <|content_model_end_sampling|>   the first may omit <|message_model|>
//   section := <|message_model|> [NAME] ( <|content_text|> text | <|content_thinking|> text
//              | <|content_invoke_tool_json|> {"name": NAME, "args": object} ) <|end_message|>

#include "text/dialects/json_call.h"
#include "text/dialects/parsers.h"
#include "text/dialects/reply_parser.h"

namespace mference {
namespace {

class InklingParser final : public ReplyParser {
 public:
  explicit InklingParser(DialectOptions options) : ReplyParser(std::move(options)) {
    if (this->options().start == ReplyStart::kContent) state_ = State::kText;
    if (this->options().start == ReplyStart::kReasoning) state_ = State::kThinking;
  }

  bool in_reasoning() const override { return state_ == State::kThinking; }
  bool in_call() const override { return state_ == State::kInvoke; }

 protected:
  void OnText(std::string_view text) override {
    switch (state_) {
      case State::kHeader:
        return ReadHeader(text);
      case State::kIdle:
        return FailAtToken(text, "text stands between two sections");
      case State::kText:
      case State::kInvokeAsText:
        return writer().Content(text);
      case State::kThinking:
        return writer().Reasoning(text);
      case State::kInvoke:
        return FeedCall(text);
    }
  }

  void OnMarker(Marker marker, std::string_view spelling) override {
    switch (state_) {
      case State::kHeader:
        return OnMarkerInHeader(marker, spelling);
      case State::kIdle:
        if (marker != Marker::kMessageModel) {
          return FailAtToken(spelling, "expected <|message_model|> or the end of the reply");
        }
        header_.clear();
        first_section_ = false;
        state_ = State::kHeader;
        return;
      case State::kText:
      case State::kThinking:
        if (marker != Marker::kEndMessage) {
          return FailAtToken(spelling, "a control token stands inside a section");
        }
        state_ = State::kIdle;
        return;
      case State::kInvokeAsText:
        writer().Content(spelling);
        if (marker == Marker::kEndMessage) state_ = State::kIdle;
        return;
      case State::kInvoke:
        if (marker == Marker::kEndMessage) return Judge();
        return FailAtToken(spelling, "a control token stands inside a call");
    }
  }

  void OnFinish(ReplyEnd end) override {
    if (state_ == State::kInvoke) return EndInsideCall(end);
    // A header that the limit cut off is dropped, but a reply of one word without any marker is
    // an answer.
    if (state_ == State::kHeader && first_section_ && end != ReplyEnd::kLength) {
      writer().Content(header_);
    }
  }

 private:
  enum class State { kHeader, kIdle, kText, kThinking, kInvoke, kInvokeAsText };

  void ReadHeader(std::string_view text) {
    constexpr size_t kMaxHeaderBytes = 1024;
    header_ += text;
    if (IsToolName(header_)) return;
    if (first_section_) {
      // No author is called that: the model writes plain text without its markers.
      state_ = State::kText;
      writer().Content(header_);
    } else if (header_.size() > kMaxHeaderBytes) {
      FailAtToken(text, "a section's author is too long, or its kind is missing");
    }
  }

  void OnMarkerInHeader(Marker marker, std::string_view spelling) {
    switch (marker) {
      case Marker::kMessageModel:
        header_.clear();
        first_section_ = false;
        return;
      case Marker::kContentText:
      case Marker::kContentThinking:
        if (!header_.empty()) {
          return FailAtToken(spelling, "a text or thinking section has an author");
        }
        state_ = marker == Marker::kContentText ? State::kText : State::kThinking;
        return;
      case Marker::kInvokeJson:
        if (!has_tools()) break;
        OpenCall(position() + spelling.size());
        call_.emplace(JsonCallForm{.argument_keys = kInklingArgumentKeys,
                                   .unique_keys = false,
                                   .string_arguments = false,
                                   .depth = options().limits.depth});
        state_ = State::kInvoke;
        return;
      case Marker::kInvokeText:
        if (!has_tools()) break;
        return FailAtToken(spelling, "a free-text invocation is no tool call");
      default:
        return FailAtToken(spelling, "expected the kind of a section");
    }
    writer().Content(header_);
    writer().Content(spelling);
    state_ = State::kInvokeAsText;
  }

  void FeedCall(std::string_view text) {
    const size_t before = call_text().size();
    const bool fits = AppendToCall(text);
    call_->Push(call_text().substr(before));
    if (const auto name = call_->Name(); name && (header_.empty() || *name == header_)) {
      Announce(*name);
    }
    StreamArguments(call_->ArgumentsSoFar());
    if (!fits) FailOversized();
  }

  void Judge() {
    state_ = State::kIdle;
    const auto result = call_->Finish();
    if (const auto* problem = std::get_if<CallProblem>(&result)) return FailInCall(*problem);
    const auto& call = std::get<ParsedCall>(result);
    if (!header_.empty() && header_ != call.name) {
      return FailInCall({.note = "the section's author and the call's name differ"});
    }
    JudgeCall(call);
    CloseCall();
  }

  State state_ = State::kHeader;
  bool first_section_ = true;  // no <|message_model|> yet: the prompt ended with it
  std::string header_;         // the author so far
  std::optional<JsonCallReader> call_;
};

}  // namespace

std::unique_ptr<DialectParser> MakeInklingParser(DialectOptions options) {
  return std::make_unique<InklingParser>(std::move(options));
}

}  // namespace mference
