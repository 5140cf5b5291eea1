// DeepSeek V4: think tokens, and calls in DSML.
//
//   block  := <｜DSML｜tool_calls> invoke { invoke } </｜DSML｜tool_calls>
//   invoke := <｜DSML｜invoke name="NAME"> { param } </｜DSML｜invoke>
//   param  := <｜DSML｜parameter name="KEY" string="true|false"> VALUE </｜DSML｜parameter>
//
// White space may stand between the elements. A value with string="true" is the raw text, with
// string="false" JSON, and without the attribute JSON if it parses. Tolerated: a parameter left
// open at the end of its invoke, and parameters inside a parameter, which become an object.

#include "text/dialects/dsml.h"
#include "text/dialects/json_call.h"
#include "text/dialects/literal_reader.h"
#include "text/dialects/parsers.h"
#include "text/dialects/reply_parser.h"

namespace mference {
namespace {

class DsmlParser final : public ReplyParser {
 public:
  explicit DsmlParser(DialectOptions options) : ReplyParser(std::move(options)) {
    if (this->options().start == ReplyStart::kReasoning) state_ = State::kReasoning;
  }

  bool in_reasoning() const override { return state_ == State::kReasoning; }
  bool in_call() const override { return state_ == State::kBlock; }

 protected:
  void OnText(std::string_view text) override {
    switch (state_) {
      case State::kReasoning:
        return writer().Reasoning(text);
      case State::kContent:
        if (!has_tools()) return writer().Content(text);
        pending_ += text;
        return Scan(position() + text.size());
      case State::kBlock:
        pending_ += text;
        return Scan(position() + text.size());
    }
  }

  void OnMarker(Marker marker, std::string_view spelling) override {
    if (state_ == State::kReasoning) {
      if (marker == Marker::kThinkOpen) return;  // it is open already
      if (marker != Marker::kThinkClose) return writer().Reasoning(spelling);
      state_ = State::kContent;
      return;
    }
    if (state_ == State::kBlock) {
      return FailAtToken(spelling, "a control token stands inside a block of calls");
    }
    ReleasePending();
    if (marker == Marker::kThinkOpen) {
      state_ = State::kReasoning;
    } else if (marker != Marker::kThinkClose) {  // which means nothing without an opener
      writer().Content(spelling);
    }
  }

  void OnFinish(ReplyEnd end) override {
    if (state_ != State::kBlock) return ReleasePending();
    if (end == ReplyEnd::kLength && unknown_) return FailInCall(*unknown_);
    if (end == ReplyEnd::kLength && invokes_ > 0) return;  // complete invokes count, block or not
    EndInsideCall(end);
  }

 private:
  enum class State { kReasoning, kContent, kBlock };
  // What the block's text is read for at `at_`.
  enum class Place { kBetween, kInInvoke, kString, kOther, kBroken };

  void ReleasePending() {
    if (!pending_.empty()) writer().Content(pending_);
    pending_.clear();
  }

  // Consumes what `pending_` settles; `end` is the reply's length up to its end.
  void Scan(size_t end) {
    std::string_view rest = pending_;
    while (!rest.empty() && !failed()) {
      const size_t before = rest.size();
      if (state_ == State::kContent) {
        rest = ScanContent(rest, end - rest.size());
      } else {
        rest = ScanBlock(rest);
      }
      if (rest.size() == before) break;
    }
    pending_.erase(0, pending_.size() - rest.size());
  }

  // Passes content on up to a block, and returns what follows or has to wait. `position` is where
  // `text` begins in the reply.
  std::string_view ScanContent(std::string_view text, size_t position) {
    size_t at = 0;
    while ((at = text.find('<', at)) != std::string_view::npos) {
      const DsmlTag tag = ReadDsmlTag(text.substr(at));
      if (tag.status == DsmlTag::Status::kIncomplete && tag.element == DsmlTag::Element::kCalls) {
        break;
      }
      if (tag.status == DsmlTag::Status::kComplete && tag.element == DsmlTag::Element::kCalls) {
        if (at > 0) writer().Content(text.substr(0, at));
        OpenCall(position + at + tag.size);
        if (tag.closing) {
          FailInCall({.note = "a block of calls is closed that was not opened"});
          return {};
        }
        BeginBlock();
        return text.substr(at + tag.size);
      }
      ++at;
    }
    if (at == std::string_view::npos) at = text.size();
    if (at > 0) writer().Content(text.substr(0, at));
    return text.substr(at);
  }

  void BeginBlock() {
    state_ = State::kBlock;
    place_ = Place::kBetween;
    at_ = 0;
    invokes_ = 0;
    problem_.reset();
    unknown_.reset();
  }

  // Adds `text` to the block and reads on; returns what follows the block.
  std::string_view ScanBlock(std::string_view text) {
    const size_t before = call_text().size();
    const bool fits = AppendToCall(text, kDsmlMaxPlainTagBytes);
    while (state_ == State::kBlock && !failed() && Advance()) {
    }
    if (failed()) return {};
    if (state_ == State::kContent) {
      const size_t used = at_ - before;
      CloseCall();
      return text.substr(used);
    }
    if (!fits) FailOversized();
    return {};
  }

  // Reads one element, or a part of a value. False when that needs more text.
  bool Advance() {
    switch (place_) {
      case Place::kBetween:
        return AdvanceBetween();
      case Place::kInInvoke:
        return AdvanceInInvoke();
      case Place::kString:
      case Place::kOther:
        return AdvanceValue();
      case Place::kBroken:
        return AdvanceBroken();
    }
    return false;
  }

  // The next tag after white space; nothing if more text is needed or something else stands there.
  std::optional<DsmlTag> NextTag(const char* expected) {
    const std::string_view text = call_text();
    while (at_ < text.size() && IsAsciiSpace(text[at_])) ++at_;
    if (at_ == text.size()) return std::nullopt;
    DsmlTag tag = ReadDsmlTag(text.substr(at_));
    if (tag.status == DsmlTag::Status::kIncomplete) return std::nullopt;
    if (tag.status == DsmlTag::Status::kNone) Break(expected);
    if (tag.status == DsmlTag::Status::kBroken) Break(tag.note);
    if (tag.status != DsmlTag::Status::kComplete) return std::nullopt;
    return tag;
  }

  bool AdvanceBetween() {
    const auto tag = NextTag("expected an invoke tag or the end of the block");
    if (!tag) return place_ == Place::kBroken;
    if (tag->element == DsmlTag::Element::kCalls && tag->closing) {
      EndBlock(tag->size);
      return true;
    }
    if (tag->element != DsmlTag::Element::kInvoke || tag->closing) {
      return Break("expected an invoke tag or the end of the block");
    }
    if (!tag->name) return Break("an invoke tag has no name");
    name_ = *tag->name;
    name_offset_ = at_;
    arguments_ = JsonText();
    arguments_.BeginObject();
    if (!unknown_) Announce(name_);
    StreamArguments(arguments_.text());
    at_ += tag->size;
    place_ = Place::kInInvoke;
    return true;
  }

  bool AdvanceInInvoke() {
    const auto tag = NextTag("expected a parameter tag or the end of the invoke");
    if (!tag) return place_ == Place::kBroken;
    if (tag->closing && tag->element == DsmlTag::Element::kInvoke) {
      at_ += tag->size;
      return EndInvoke();
    }
    if (tag->element != DsmlTag::Element::kParameter) {
      return Break("expected a parameter tag or the end of the invoke");
    }
    if (tag->closing) {
      if (arguments_.depth() == 1) return Break("a parameter is closed that was not opened");
      arguments_.EndObject();
      StreamArguments(arguments_.text());
      at_ += tag->size;
      return true;
    }
    if (!tag->name) return Break("a parameter tag has no name");
    if (tag->string && *tag->string != "true" && *tag->string != "false") {
      return Break("the attribute string is neither true nor false");
    }
    arguments_.Key(*tag->name);
    at_ += tag->size;
    value_begin_ = at_;
    value_is_json_ = tag->string.has_value();
    may_nest_ = tag->string != "true";
    place_ = may_nest_ ? Place::kOther : Place::kString;
    if (place_ == Place::kString) arguments_.OpenString();
    return true;
  }

  // A value runs to the first closing tag of its parameter or of an element around it.
  bool AdvanceValue() {
    const std::string_view text = call_text();
    if (may_nest_) {
      if (!CheckNested()) return false;
      if (place_ != Place::kOther) return true;
    }
    while (true) {
      const size_t tag_begin = std::min(text.find('<', at_), text.size());
      if (place_ == Place::kString) {
        arguments_.StringPart(text.substr(at_, tag_begin - at_));
        StreamArguments(arguments_.text());
      }
      at_ = tag_begin;
      if (at_ == text.size()) return false;
      // Only closing tags count, and they have no attributes to wait for.
      const DsmlTag tag = text.substr(at_).starts_with("<｜") || text.substr(at_).starts_with("<D")
                              ? DsmlTag()
                              : ReadDsmlTag(text.substr(at_));
      if (tag.status == DsmlTag::Status::kIncomplete) return false;
      if (tag.status == DsmlTag::Status::kComplete && tag.closing) return EndValue(tag);
      if (place_ == Place::kString) arguments_.StringPart("<");
      ++at_;
    }
  }

  // Whether a value that is not a plain string begins with a parameter tag. False: not known yet.
  bool CheckNested() {
    const std::string_view text = call_text();
    size_t begin = at_;
    while (begin < text.size() && IsAsciiSpace(text[begin])) ++begin;
    if (begin == text.size()) return false;
    const DsmlTag tag = ReadDsmlTag(text.substr(begin));
    if (tag.status == DsmlTag::Status::kIncomplete) return false;
    may_nest_ = false;
    const bool nested = tag.status == DsmlTag::Status::kComplete && !tag.closing &&
                        tag.element == DsmlTag::Element::kParameter;
    if (!nested) return true;
    at_ = begin;
    if (arguments_.depth() >= options().limits.depth) {
      Break("parameters are nested deeper than the limit", CallFailure::Class::kTooDeep);
      return true;
    }
    arguments_.BeginObject();
    place_ = Place::kInInvoke;
    return true;
  }

  bool EndValue(const DsmlTag& tag) {
    if (tag.element == DsmlTag::Element::kCalls) {
      return Break("the block is closed inside a parameter");
    }
    const std::string_view raw = call_text().substr(value_begin_, at_ - value_begin_);
    if (place_ == Place::kString) {
      arguments_.CloseString();
    } else {
      LiteralValue value =
          ReadLiteral(raw, {.max_depth = options().limits.depth - arguments_.depth()});
      if (value.error && (value_is_json_ || value.error->too_deep)) {
        const CallProblem problem = ToProblem(*value.error, value_begin_);
        at_ = problem.offset;
        return Break(value.error->too_deep ? value.error->note
                                           : "the value is not JSON, as string=\"false\" says",
                     problem.failure_class);
      }
      if (value.error) {
        arguments_.String(raw);
      } else {
        arguments_.Literal(value.json);
      }
    }
    StreamArguments(arguments_.text());
    place_ = Place::kInInvoke;
    if (tag.element == DsmlTag::Element::kParameter) at_ += tag.size;
    return true;
  }

  bool EndInvoke() {
    while (arguments_.depth() > 0) arguments_.EndObject();  // parameters left open
    place_ = Place::kBetween;
    ++invokes_;
    if (const auto problem = CheckName(name_, name_offset_)) {
      if (problem->failure_class == CallFailure::Class::kBadSyntax) return Break(problem->note);
      // What follows may break the syntax, and syntax is judged first.
      if (!unknown_) unknown_ = problem;
    }
    if (!unknown_) {
      CompleteCall(
          {.name = name_, .streamed = arguments_.text(), .arguments = arguments_.Resolved()});
    }
    return true;
  }

  // The syntax is broken at `at_`. The block is judged where it ends, or as oversized, unclosed or
  // dropped, so the rest is only searched for its end.
  bool Break(std::string_view note,
             CallFailure::Class failure_class = CallFailure::Class::kBadSyntax) {
    problem_ =
        CallProblem{.failure_class = failure_class, .offset = at_, .note = std::string(note)};
    place_ = Place::kBroken;
    return true;
  }

  bool AdvanceBroken() {
    const std::string_view text = call_text();
    while ((at_ = std::min(text.find("</", at_), text.size())) < text.size()) {
      const DsmlTag tag = ReadDsmlTag(text.substr(at_));
      if (tag.status == DsmlTag::Status::kIncomplete) return false;
      if (tag.status == DsmlTag::Status::kComplete && tag.element == DsmlTag::Element::kCalls) {
        EndBlock(tag.size);
        return true;
      }
      ++at_;
    }
    if (text.ends_with('<')) at_ = text.size() - 1;
    return false;
  }

  // The closing tag of the block stands at `at_`.
  void EndBlock(size_t tag_size) {
    if (at_ > options().limits.call_bytes) return FailOversized();
    if (problem_) return FailInCall(*problem_);
    if (invokes_ == 0) return FailInCall({.note = "the block holds no call"});
    if (unknown_) return FailInCall(*unknown_);
    at_ += tag_size;
    state_ = State::kContent;
  }

  State state_ = State::kContent;
  std::string pending_;  // content that may begin a tag

  // The open block.
  Place place_ = Place::kBetween;
  size_t at_ = 0;  // all before it is read
  size_t invokes_ = 0;
  std::optional<CallProblem> problem_;  // what broke the syntax
  std::optional<CallProblem> unknown_;  // the first undeclared name
  std::string name_;
  size_t name_offset_ = 0;
  JsonText arguments_;
  size_t value_begin_ = 0;
  bool value_is_json_ = false;  // string="false", not merely no attribute
  bool may_nest_ = false;       // it is not known yet whether the value is nested parameters
};

}  // namespace

std::unique_ptr<DialectParser> MakeDsmlParser(DialectOptions options) {
  return std::make_unique<DsmlParser>(std::move(options));
}

}  // namespace mference
