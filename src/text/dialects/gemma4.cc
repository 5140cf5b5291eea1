// Gemma 4: thought channels and calls, both between tokens of their own.
//
//   turn    := [channel] (text | call)* ( <turn|> | <|tool_response> )
//   channel := <|channel> LABEL newline text <channel|>
//   call    := <|tool_call> "call:" NAME object <tool_call|>
//
// An object is JSON's with bare keys and with strings between <|"|> tokens (see literal_reader.h).
// A channel labelled `final` or `answer` is visible, any other is reasoning.

#include "text/dialects/literal_reader.h"
#include "text/dialects/parsers.h"
#include "text/dialects/reply_parser.h"

namespace mference {
namespace {

class GemmaParser final : public ReplyParser {
 public:
  explicit GemmaParser(DialectOptions options) : ReplyParser(std::move(options)) {
    // A prompt that opened a channel has written its label too.
    if (this->options().start == ReplyStart::kReasoning) state_ = State::kHiddenChannel;
  }

  bool in_reasoning() const override {
    return state_ == State::kHiddenChannel || state_ == State::kChannelLabel;
  }
  bool in_call() const override { return state_ == State::kCall; }

 protected:
  void OnText(std::string_view text) override {
    switch (state_) {
      case State::kContent:
      case State::kVisibleChannel:
        return writer().Content(text);
      case State::kHiddenChannel:
        return writer().Reasoning(text);
      case State::kChannelLabel:
        return ReadLabel(text);
      case State::kCall:
        return FeedCall(text);
    }
  }

  void OnMarker(Marker marker, std::string_view spelling) override {
    switch (state_) {
      case State::kHiddenChannel:
      case State::kVisibleChannel:
      case State::kChannelLabel:
        if (marker == Marker::kChannelClose) {
          state_ = State::kContent;
        } else {
          OnText(spelling);  // calls do not count inside a channel
        }
        return;
      case State::kCall:
        return OnMarkerInCall(marker, spelling);
      case State::kContent:
        return OnMarkerInContent(marker, spelling);
    }
  }

  void OnFinish(ReplyEnd end) override {
    if (state_ == State::kCall) return EndInsideCall(end);
    // Without tools the call before <|tool_response> was passed on as text.
    if (end == ReplyEnd::kToolResponse && completed_calls() == 0 && !call_as_text_) {
      FailAtToken("<|tool_response>", "the reply asks for a tool's response without a call");
    }
  }

 private:
  enum class State { kContent, kChannelLabel, kHiddenChannel, kVisibleChannel, kCall };

  void OnMarkerInContent(Marker marker, std::string_view spelling) {
    switch (marker) {
      case Marker::kChannelOpen:
        label_.clear();
        state_ = State::kChannelLabel;
        return;
      case Marker::kChannelClose:
        return;  // the prompt closed the channel already
      case Marker::kCallOpen:
        if (!has_tools()) break;
        OpenCall(position() + spelling.size());
        header_done_ = false;
        object_.emplace(LiteralSyntax{.gemma = true,
                                      .unique_keys = false,
                                      .max_depth = options().limits.depth,
                                      .hard_depth = options().limits.depth});
        state_ = State::kCall;
        return;
      case Marker::kCallClose:
        if (!has_tools()) break;
        return FailAtToken(spelling, "a call is closed that was not opened");
      case Marker::kToolResponseOpen:
      case Marker::kToolResponseClose:
        if (!has_tools() || completed_calls() > 0) return;
        return FailAtToken(spelling, "a tool's response stands before any call");
      default:
        break;
    }
    if (marker == Marker::kCallOpen) call_as_text_ = true;
    writer().Content(spelling);
  }

  void OnMarkerInCall(Marker marker, std::string_view spelling) {
    switch (marker) {
      case Marker::kCallClose:
        state_ = State::kContent;
        return Judge();
      case Marker::kStringDelimiter:
        return FeedCall({&kStringDelimiterByte, 1});
      case Marker::kCallOpen:
        return FailAtToken(spelling, "a call is opened inside an open call");
      default:
        return FailAtToken(spelling, "a control token stands inside a call");
    }
  }

  // Only the label's first bytes matter: enough to tell the visible ones from the rest.
  void ReadLabel(std::string_view text) {
    constexpr size_t kLabelBytes = 16;
    const size_t newline = text.find('\n');
    label_ += text.substr(0, newline).substr(0, kLabelBytes - std::min(kLabelBytes, label_.size()));
    if (newline == std::string_view::npos) return;
    const bool visible = label_ == "final" || label_ == "answer";
    state_ = visible ? State::kVisibleChannel : State::kHiddenChannel;
    if (newline + 1 < text.size()) OnText(text.substr(newline + 1));
  }

  void FeedCall(std::string_view text) {
    const size_t before = call_text().size();
    const bool fits = AppendToCall(text);
    std::string_view fresh = call_text().substr(before);
    if (!header_done_) {
      const size_t brace = fresh.find('{');
      if (brace != std::string_view::npos) {
        header_done_ = true;
        header_bytes_ = before + brace;
        fresh.remove_prefix(brace);
        if (const auto name = HeaderName()) Announce(*name);
      }
    }
    if (header_done_) {
      object_->Push(fresh);
      StreamArguments(object_->json().text());
    }
    if (!fits) FailOversized();
  }

  // NAME of `call:NAME`, all that stands before the object.
  std::optional<std::string_view> HeaderName() const {
    constexpr std::string_view kPrefix = "call:";
    const std::string_view header = TrimAsciiSpace(call_text().substr(0, header_bytes_));
    if (!header.starts_with(kPrefix)) return std::nullopt;
    return TrimAsciiSpace(header.substr(kPrefix.size()));
  }

  void Judge() {
    if (!header_done_) {
      return FailInCall({.offset = 0, .note = "expected call:NAME{...}, found no object"});
    }
    const auto name = HeaderName();
    if (!name) return FailInCall({.offset = 0, .note = "expected call: before the tool's name"});
    if (name->empty()) return FailInCall({.offset = 0, .note = "the call has no tool name"});
    if (const auto error = object_->Finish()) {
      return FailInCall({.failure_class = error->too_deep ? CallFailure::Class::kTooDeep
                                                          : CallFailure::Class::kBadSyntax,
                         .offset = header_bytes_ + error->offset,
                         .note = error->note});
    }
    JudgeCall({.name = std::string(*name),
               .streamed = object_->json().text(),
               .arguments = object_->json().Resolved()});
    CloseCall();
  }

  State state_ = State::kContent;
  std::string label_;
  bool call_as_text_ = false;  // a call was opened although no tools are declared

  bool header_done_ = false;  // the object of the open call has begun ...
  size_t header_bytes_ = 0;   // ... here
  std::optional<LiteralReader> object_;
};

}  // namespace

std::unique_ptr<DialectParser> MakeGemmaParser(DialectOptions options) {
  return std::make_unique<GemmaParser>(std::move(options));
}

}  // namespace mference
