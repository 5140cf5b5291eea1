// Qwen 3.6 and Maple: think blocks and calls between tokens of their own.
//
//   turn := [ <think> text </think> ] ( text | <tool_call> body </tool_call> )*
//
// A Qwen body is tagged (qwen_call.h) or JSON, a Maple body is JSON. Qwen at times forgets the
// token and writes a bare <function=NAME> ... </function>; as the last thing of a reply, at the
// start of a line and naming a declared tool, that is taken for the call it means to be.

#include <algorithm>

#include "text/dialects/json_call.h"
#include "text/dialects/parsers.h"
#include "text/dialects/qwen_call.h"
#include "text/dialects/reply_parser.h"

namespace mference {
namespace {

// More than `<function=NAME>` can be long, with white space in front.
constexpr size_t kMaxHeaderBytes = 256;

class ChatMlParser final : public ReplyParser {
 public:
  explicit ChatMlParser(DialectOptions options) : ReplyParser(std::move(options)) {
    // Maple's prompt opens a think block always, so its content always follows one.
    if (!is_qwen()) writer().SkipContentNewlines();
    if (this->options().start == ReplyStart::kReasoning) BeginReasoning();
  }

  bool in_reasoning() const override { return state_ == State::kReasoning; }
  bool in_call() const override { return state_ == State::kCall; }

 protected:
  void OnText(std::string_view text) override {
    switch (state_) {
      case State::kReasoning:
        return writer().Reasoning(text);
      case State::kContent:
        return is_qwen() && has_tools() ? ScanContent(text) : writer().Content(text);
      case State::kCall:
        return FeedCall(text);
    }
  }

  void OnMarker(Marker marker, std::string_view spelling) override {
    switch (state_) {
      case State::kReasoning:
        if (marker != Marker::kThinkClose) return writer().Reasoning(spelling);
        writer().EndReasoning();
        writer().SkipContentNewlines();
        state_ = State::kContent;
        return;
      case State::kCall:
        if (marker == Marker::kCallClose) return Judge();
        return FailAtToken(spelling, marker == Marker::kCallOpen
                                         ? "a call is opened inside an open call"
                                         : "a control token stands inside a call");
      case State::kContent:
        ReleaseBare();
        return OnMarkerInContent(marker, spelling);
    }
  }

  void OnFinish(ReplyEnd end) override {
    if (state_ == State::kCall) return EndInsideCall(end);
    if (!bare_.empty()) JudgeBare();
  }

 private:
  enum class State { kReasoning, kContent, kCall };
  enum class Body { kUndecided, kTagged, kJson };

  bool is_qwen() const { return options().family == TextFamily::kQwen36; }

  void BeginReasoning() {
    state_ = State::kReasoning;
    writer().BeginReasoning(/*trim=*/true);
  }

  void OnMarkerInContent(Marker marker, std::string_view spelling) {
    switch (marker) {
      case Marker::kThinkOpen:
        return BeginReasoning();
      case Marker::kThinkClose:
        return;  // without an opener it means nothing
      case Marker::kCallOpen:
        if (!has_tools()) break;
        OpenCall(position() + spelling.size());
        state_ = State::kCall;
        body_ = Body::kUndecided;
        return;
      case Marker::kCallClose:
        if (!has_tools()) break;
        return FailAtToken(spelling, "a call is closed that was not opened");
      default:
        break;
    }
    writer().Content(spelling);
  }

  void FeedCall(std::string_view text) {
    const size_t before = call_text().size();
    const bool fits = AppendToCall(text);
    std::string_view fresh = call_text().substr(before);
    if (body_ == Body::kUndecided) {
      const std::string_view body = TrimAsciiSpace(fresh);  // all before it is white space
      if (!body.empty()) {
        body_ = is_qwen() && body[0] != '{' ? Body::kTagged : Body::kJson;
        json_.emplace(JsonCallForm{.argument_keys = kMapleArgumentKeys,
                                   .unique_keys = true,
                                   .string_arguments = true,
                                   .depth = options().limits.depth});
        fresh = call_text();
      }
    }
    if (body_ == Body::kTagged) {
      if (const auto name = QwenCallName(call_text().substr(0, kMaxHeaderBytes))) Announce(*name);
    } else if (body_ == Body::kJson) {
      json_->Push(fresh);
      if (const auto name = json_->Name()) Announce(*name);
      StreamArguments(json_->ArgumentsSoFar());
    }
    if (!fits) FailOversized();
  }

  std::variant<ParsedCall, CallProblem> ReadTagged(std::string_view text) const {
    const auto name = QwenCallName(text);
    const DialectTool* tool = name ? FindTool(*name) : nullptr;
    return ReadQwenCall(text, tool != nullptr ? &tool->parameters : nullptr,
                        options().limits.depth);
  }

  void Judge() {
    state_ = State::kContent;
    std::variant<ParsedCall, CallProblem> result;
    if (body_ == Body::kUndecided) {
      result = CallProblem{.note = "the call is empty"};
    } else {
      result = body_ == Body::kJson ? json_->Finish() : ReadTagged(call_text());
    }
    if (const auto* problem = std::get_if<CallProblem>(&result)) return FailInCall(*problem);
    JudgeCall(std::get<ParsedCall>(result));
    CloseCall();
  }

  // Content of Qwen, where each line may begin a bare function.
  void ScanContent(std::string_view text) {
    if (bare_.empty()) return ScanLines(text, 0);
    bare_ += text;
    if (MayBeCall(bare_)) return;
    const std::string held = std::move(bare_);
    bare_.clear();
    writer().Content(std::string_view(held).substr(0, 1));
    ScanLines(held, 1);
  }

  // Passes `text` on from `from` until a line may be a call.
  void ScanLines(std::string_view text, size_t from) {
    while (from < text.size()) {
      const bool line_start = from == 0 ? writer().content_at_line_start() : text[from - 1] == '\n';
      if (line_start && text[from] == '<' && bare_allowed_ && completed_calls() == 0) {
        bare_searched_ = 0;
        bare_end_ = 0;
        if (MayBeCall(text.substr(from))) {
          bare_ = text.substr(from);
          return;
        }
      }
      const size_t newline = text.find('\n', from);
      const size_t end = newline == std::string_view::npos ? text.size() : newline + 1;
      writer().Content(text.substr(from, end - from));
      from = end;
    }
  }

  // Whether `bare`, so far, can become a call of a declared tool that ends the reply.
  bool MayBeCall(std::string_view bare) {
    if (bare.size() < kFunctionOpen.size()) return kFunctionOpen.starts_with(bare);
    if (!bare.starts_with(kFunctionOpen) || bare.size() > options().limits.call_bytes) return false;
    if (const auto name = QwenCallName(bare.substr(0, kMaxHeaderBytes))) {
      return FindTool(*name) != nullptr && !TextFollows(bare);
    }
    const std::string_view part = bare.substr(kFunctionOpen.size());
    return std::any_of(options().tools.begin(), options().tools.end(),
                       [&](const DialectTool& tool) { return tool.name.starts_with(part); });
  }

  // Text after a complete call: it was an example, say, and not the last thing of the reply. Only
  // the first </function> is tried: where it does not end a call (a value may contain it), the end
  // of the reply has to tell.
  bool TextFollows(std::string_view bare) {
    if (bare_end_ == 0) {
      const size_t close = bare.find(kFunctionClose, bare_searched_);
      if (close == std::string_view::npos) {
        bare_searched_ = bare.size() - std::min(bare.size(), kFunctionClose.size());
        return false;
      }
      const size_t end = close + kFunctionClose.size();
      const auto result = ReadTagged(bare.substr(0, end));
      bare_end_ = std::holds_alternative<ParsedCall>(result) ? end : std::string_view::npos;
    }
    const bool follows = bare_end_ < bare.size() && !TrimAsciiSpace(bare.substr(bare_end_)).empty();
    if (follows) bare_allowed_ = false;  // a later one would be half of what was meant
    return follows;
  }

  void JudgeBare() {
    const auto result = ReadTagged(bare_);
    const auto* call = std::get_if<ParsedCall>(&result);
    if (call == nullptr || CheckName(call->name, 0)) return ReleaseBare();
    OpenCall(position() - bare_.size());
    CompleteCall(*call);
    bare_.clear();
  }

  // Something follows or the reply ends: the held text is no call, nor is any line of it.
  void ReleaseBare() {
    writer().Content(bare_);
    bare_.clear();
  }

  State state_ = State::kContent;
  Body body_ = Body::kUndecided;
  std::optional<JsonCallReader> json_;

  std::string bare_;  // content held from a possible bare function on
  bool bare_allowed_ = true;
  size_t bare_searched_ = 0;  // no </function> begins before this ...
  size_t bare_end_ = 0;       // ... or the first one completes the call here (npos: it does not)
};

}  // namespace

std::unique_ptr<DialectParser> MakeChatMlParser(DialectOptions options) {
  return std::make_unique<ChatMlParser>(std::move(options));
}

}  // namespace mference
