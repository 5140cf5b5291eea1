// What the parsers of all dialects have in common: input of whole scalars, positions, failures,
// the text of the open call and its bounds, and how a call that holds is reported.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/dialects/dialect.h"
#include "text/dialects/reply_writer.h"
#include "text/dialects/utf8_repair.h"

namespace mference {

// [A-Za-z0-9_.-]{1,64}: the form of every tool's name.
bool IsToolName(std::string_view name);

bool IsAsciiSpace(char c);
std::string_view TrimAsciiSpace(std::string_view text);

// A failure inside the text of a call, before it is given its place in the reply.
struct CallProblem {
  CallFailure::Class failure_class = CallFailure::Class::kBadSyntax;
  size_t offset = 0;  // in the text of the call
  std::string note;
  std::string tool = {};
};

// A call as far as its syntax goes.
struct ParsedCall {
  std::string name;
  std::string streamed;   // the arguments as `StreamArguments` saw them grow
  std::string arguments;  // the same with repeated keys resolved
};

class ReplyParser : public DialectParser {
 public:
  bool Push(Marker marker, std::string_view text, std::vector<DialectEvent>* events) final;
  bool Finish(ReplyEnd end, std::vector<DialectEvent>* events) final;
  const std::optional<CallFailure>& failure() const final { return failure_; }
  FinishReason finish_reason() const final { return finish_reason_; }
  bool dropped_open_call() const final { return dropped_; }
  size_t completed_calls() const final { return calls_; }

 protected:
  explicit ReplyParser(DialectOptions options);

  // The dialect. Nothing is called after a failure. `text` is never empty.
  virtual void OnText(std::string_view text) = 0;
  virtual void OnMarker(Marker marker, std::string_view spelling) = 0;
  // Judges what is open. The base then releases or trims held white space.
  virtual void OnFinish(ReplyEnd end) = 0;

  const DialectOptions& options() const { return options_; }
  bool has_tools() const { return !options_.tools.empty(); }
  const DialectTool* FindTool(std::string_view name) const;
  bool failed() const { return failure_.has_value(); }
  ReplyWriter& writer() { return writer_; }
  // Byte of the reply where the current text or marker begins.
  size_t position() const { return position_; }

  // The open call's text. `Open` begins it after `position`; `Append` takes no more than the limit
  // and `slack` bytes, and says whether that was everything: if not, the call is oversized, and
  // the caller fails it after having looked at what did fit (so that the outcome does not depend
  // on the pieces).
  void OpenCall(size_t position);
  bool AppendToCall(std::string_view text, size_t slack = 0);
  std::string_view call_text() const { return call_text_; }
  void CloseCall() { call_text_.clear(); }

  // The name of the open call is known: announces it if arguments are streamed and it is declared.
  void Announce(std::string_view name);
  // The announced call's arguments have grown to `so_far`.
  void StreamArguments(std::string_view so_far);
  // Judges the name of a call whose syntax holds.
  std::optional<CallProblem> CheckName(std::string_view name, size_t offset) const;
  // Reports a call that holds.
  void CompleteCall(const ParsedCall& call);
  // `call`, if its name holds too; else the failure.
  void JudgeCall(const ParsedCall& call);

  // In the open call, or at the current token where none is open.
  void FailInCall(const CallProblem& problem);
  void FailOversized();
  void FailAtToken(std::string_view token_text, std::string note);
  // The reply ended inside a call.
  void EndInsideCall(ReplyEnd end);

 private:
  DialectOptions options_;
  std::unordered_map<std::string_view, const DialectTool*> tools_;  // keys in options_
  ReplyWriter writer_;
  Utf8Repair repair_;
  size_t position_ = 0;

  std::string call_text_;
  size_t call_position_ = 0;
  std::string announced_;          // the name, while the open call is announced
  size_t streamed_arguments_ = 0;  // bytes of them already sent

  std::optional<CallFailure> failure_;
  FinishReason finish_reason_ = FinishReason::kStop;
  bool dropped_ = false;
  size_t calls_ = 0;
};

}  // namespace mference
