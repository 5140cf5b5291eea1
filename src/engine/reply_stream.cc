#include "engine/reply_stream.h"

namespace mference {
namespace {

ReplyEnd EndOf(StopReason reason) {
  switch (reason) {
    case StopReason::kToolCalls:
      return ReplyEnd::kToolResponse;
    case StopReason::kMaxTokens:
    case StopReason::kContextFull:
    case StopReason::kCancelled:
      return ReplyEnd::kLength;
    case StopReason::kEos:
    case StopReason::kEndOfTurn:
    case StopReason::kStopString:
    case StopReason::kConstraintMet:
      return ReplyEnd::kEndOfTurn;
  }
  return ReplyEnd::kEndOfTurn;
}

const std::optional<CallFailure> kNoFailure;

}  // namespace

ReplyStream::ReplyStream(const TextLayer& text, ReplyStreamOptions options)
    : text_(text),
      detokenizer_(text.tokenizer(), /*skip_special=*/true),
      matcher_(std::move(options.stops)) {
  if (options.raw) return;
  parser_ = MakeDialectParser({.family = text.family(),
                               .start = options.start,
                               .tools = std::move(options.tools),
                               .stream_arguments = options.stream_arguments,
                               .limits = {}});
}

bool ReplyStream::Push(TokenId id, std::vector<DialectEvent>* events) {
  if (stopped() || failure()) return false;
  if (parser_ == nullptr) {
    ReleaseText(detokenizer_.Push(id), events);
    return !stopped();
  }
  const Marker marker = text_.MarkerOf(id);
  // A special token without a part in the dialect shows nothing, as everywhere; inside a call it is
  // for the dialect to refuse.
  if (marker == Marker::kOther && !parser_->in_call()) return true;
  token_text_.clear();
  text_.tokenizer().AppendTokenBytes(id, &token_text_);
  std::vector<DialectEvent> parsed;
  const bool well_formed = parser_->Push(marker, token_text_, &parsed);
  Release(std::move(parsed), events);
  return well_formed && !stopped();
}

bool ReplyStream::Finish(StopReason reason, std::vector<DialectEvent>* events) {
  if (failure()) return false;
  const ReplyEnd end = EndOf(stopped() ? StopReason::kStopString : reason);
  if (parser_ == nullptr) {
    ReleaseText(detokenizer_.Flush(), events);
    finish_reason_ = end == ReplyEnd::kLength ? FinishReason::kLength : FinishReason::kStop;
  } else {
    std::vector<DialectEvent> parsed;
    const bool well_formed = parser_->Finish(end, &parsed);
    Release(std::move(parsed), events);
    if (!well_formed) return false;
    finish_reason_ = parser_->finish_reason();
  }
  if (std::string rest = matcher_.Finish(); !rest.empty()) {
    events->push_back({DialectEvent::Kind::kContent, 0, std::move(rest)});
  }
  return true;
}

const std::optional<CallFailure>& ReplyStream::failure() const {
  return parser_ == nullptr ? kNoFailure : parser_->failure();
}

void ReplyStream::Release(std::vector<DialectEvent> parsed, std::vector<DialectEvent>* events) {
  for (DialectEvent& event : parsed) {
    if (stopped()) return;
    if (event.kind == DialectEvent::Kind::kContent) {
      ReleaseText(event.text, events);
      continue;
    }
    // Held text comes before what follows it.
    if (std::string held = matcher_.Finish(); !held.empty()) {
      events->push_back({DialectEvent::Kind::kContent, 0, std::move(held)});
    }
    events->push_back(std::move(event));
  }
}

void ReplyStream::ReleaseText(std::string_view text, std::vector<DialectEvent>* events) {
  if (std::string shown = matcher_.Push(text); !shown.empty()) {
    events->push_back({DialectEvent::Kind::kContent, 0, std::move(shown)});
  }
}

}  // namespace mference
