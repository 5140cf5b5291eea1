// Where a parser's findings become events.
//
// Owns the rules about white space: text before calls is right-trimmed, white space that only
// separates two calls is dropped, and the newlines around </think> belong to neither side. A
// stream cannot take text back, so white space is held until it is known which it is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/dialects/dialect.h"

namespace mference {

class ReplyWriter {
 public:
  // `may_call`: calls can occur, so trailing white space of the content has to wait.
  explicit ReplyWriter(bool may_call) : may_call_(may_call) {}

  // Events go to `events` from here on; deltas are joined with those of the same Attach only.
  void Attach(std::vector<DialectEvent>* events);

  void Content(std::string_view text);
  // Drops newlines at the beginning of the content, if it has not begun.
  void SkipContentNewlines() { skip_content_newlines_ = true; }
  bool content_at_line_start() const { return at_line_start_; }

  // With `trim`, one newline at either end of the section is not part of it.
  void BeginReasoning(bool trim);
  void Reasoning(std::string_view text);
  void EndReasoning();

  void OpenCall();
  void CallStarted(size_t call, std::string_view name);
  void CallArguments(size_t call, std::string_view delta);
  void CallCompleted(size_t call, std::string_view arguments);

  // The end of the reply: white space still held is content, or trimmed away.
  void Finish(bool trim_content);

 private:
  void Emit(DialectEvent::Kind kind, size_t call, std::string_view text);

  bool may_call_;
  std::vector<DialectEvent>* events_ = nullptr;
  size_t first_event_ = 0;

  bool content_begun_ = false;
  bool skip_content_newlines_ = false;
  bool at_line_start_ = true;
  std::string held_space_;  // white space that may turn out to be trailing
  bool only_space_since_call_ = false;
  size_t held_at_call_ = 0;  // how much of it stood before the last call

  bool trim_reasoning_ = false;
  bool reasoning_begun_ = false;
  bool held_newline_ = false;
};

}  // namespace mference
