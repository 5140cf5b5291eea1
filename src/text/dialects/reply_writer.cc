#include "text/dialects/reply_writer.h"

namespace mference {
namespace {

constexpr std::string_view kWhiteSpace = " \t\n\r\f\v";

}  // namespace

void ReplyWriter::Attach(std::vector<DialectEvent>* events) {
  events_ = events;
  first_event_ = events->size();
}

void ReplyWriter::Emit(DialectEvent::Kind kind, size_t call, std::string_view text) {
  if (events_->size() > first_event_) {
    DialectEvent& last = events_->back();
    const bool delta = kind == DialectEvent::Kind::kReasoning ||
                       kind == DialectEvent::Kind::kContent ||
                       kind == DialectEvent::Kind::kCallArguments;
    if (delta && last.kind == kind && last.call == call) {
      last.text += text;
      return;
    }
  }
  events_->push_back({.kind = kind, .call = call, .text = std::string(text)});
}

void ReplyWriter::Content(std::string_view text) {
  if (skip_content_newlines_ && !content_begun_) {
    const size_t first = text.find_first_not_of('\n');
    text.remove_prefix(first == std::string_view::npos ? text.size() : first);
  }
  if (text.empty()) return;
  content_begun_ = true;
  at_line_start_ = text.back() == '\n';
  if (!may_call_) return Emit(DialectEvent::Kind::kContent, 0, text);
  const size_t last = text.find_last_not_of(kWhiteSpace);
  if (last == std::string_view::npos) {
    held_space_ += text;
    return;
  }
  held_space_ += text.substr(0, last + 1);
  Emit(DialectEvent::Kind::kContent, 0, held_space_);
  held_space_ = std::string(text.substr(last + 1));
  only_space_since_call_ = false;
}

void ReplyWriter::BeginReasoning(bool trim) {
  trim_reasoning_ = trim;
  reasoning_begun_ = false;
  held_newline_ = false;
}

void ReplyWriter::Reasoning(std::string_view text) {
  if (text.empty()) return;
  if (!trim_reasoning_) return Emit(DialectEvent::Kind::kReasoning, 0, text);
  if (!reasoning_begun_) {
    reasoning_begun_ = true;
    if (text[0] == '\n') text.remove_prefix(1);
    if (text.empty()) return;
  }
  if (held_newline_) Emit(DialectEvent::Kind::kReasoning, 0, "\n");
  held_newline_ = text.back() == '\n';
  if (held_newline_) text.remove_suffix(1);
  if (!text.empty()) Emit(DialectEvent::Kind::kReasoning, 0, text);
}

void ReplyWriter::EndReasoning() { held_newline_ = false; }

void ReplyWriter::OpenCall() {
  if (only_space_since_call_) held_space_.resize(held_at_call_);
}

void ReplyWriter::CallStarted(size_t call, std::string_view name) {
  Emit(DialectEvent::Kind::kCallStarted, call, name);
}

void ReplyWriter::CallArguments(size_t call, std::string_view delta) {
  if (!delta.empty()) Emit(DialectEvent::Kind::kCallArguments, call, delta);
}

void ReplyWriter::CallCompleted(size_t call, std::string_view arguments) {
  Emit(DialectEvent::Kind::kCallCompleted, call, arguments);
  only_space_since_call_ = true;
  held_at_call_ = held_space_.size();
}

void ReplyWriter::Finish(bool trim_content) {
  // A section that the end of the reply cut off keeps its newline: no </think> follows it.
  if (held_newline_) Emit(DialectEvent::Kind::kReasoning, 0, "\n");
  held_newline_ = false;
  if (!trim_content && !held_space_.empty()) {
    Emit(DialectEvent::Kind::kContent, 0, held_space_);
  }
  held_space_.clear();
}

}  // namespace mference
