// What a model writes, split as it arrives into reasoning, visible text and tool calls.
//
// Every family marks these parts in its own native syntax, its *dialect*. This header is all that
// the rest of the program sees of them: tokens go in, one at a time, and events come out. The
// rules common to all dialects:
//
// - A marker that is a special token is recognised by the role of its id (`Marker`), never by its
//   text: a reply that merely spells `<tool_call>` is text. DeepSeek's DSML tags are ordinary text
//   by design and are the one exception.
// - Calls count only outside reasoning, and only where the request declares tools. Without tools
//   call syntax is content, markers spelled out.
// - A call is judged when it is closed, in the order size, syntax, form of the name, name
//   declared. What does not hold fails the whole reply (`CallFailure`); nothing is repaired
//   beyond the tolerances listed in docs/dialects.md, and no partial call is ever completed.
// - The events, with neighbouring deltas of one kind joined, do not depend on how the text was cut
//   into tokens. Deltas are always whole Unicode scalars; bytes that are not UTF-8 become U+FFFD.
//
// A parser belongs to one reply and one thread. It allocates, but bounded: at most the text of one
// call (`DialectLimits::call_bytes`) is held back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/framing/family.h"

namespace mference {

// The role of a token in the dialects. `kText` is any ordinary token; `kOther` a special token
// that has no role.
enum class Marker : uint8_t {
  kText,
  kOther,
  kThinkOpen,          // <think>
  kThinkClose,         // </think>
  kCallOpen,           // <|tool_call> or <tool_call>
  kCallClose,          // <tool_call|> or </tool_call>
  kStringDelimiter,    // <|"|>
  kChannelOpen,        // <|channel>
  kChannelClose,       // <channel|>
  kToolResponseOpen,   // <|tool_response>
  kToolResponseClose,  // <tool_response|>
  kMessageModel,       // <|message_model|>
  kContentText,        // <|content_text|>
  kContentThinking,    // <|content_thinking|>
  kInvokeJson,         // <|content_invoke_tool_json|>
  kInvokeText,         // <|content_invoke_tool_text|>
  kEndMessage,         // <|end_message|>
};

struct MarkerSpelling {
  Marker marker;
  std::string_view spelling;  // the added token's content in tokenizer.json
};

// The markers with a role in the family's dialect. A caller looks their ids up once; a special
// token of the family that is not listed is `kOther`, and a spelling the tokenizer lacks has no id.
std::span<const MarkerSpelling> DialectMarkers(TextFamily family);

// The markers between which the family's models reason.
struct ReasoningMarkers {
  Marker open = Marker::kThinkOpen;
  Marker close = Marker::kThinkClose;
};
ReasoningMarkers ReasoningMarkersOf(TextFamily family);

// Where the reply begins, given how the prompt ended.
enum class ReplyStart {
  kContent,       // visible text
  kReasoning,     // inside a think block or thought channel that the prompt opened
  kMessageModel,  // Inkling: after <|message_model|>, before the kind of the first section
};

// The start that the family's ordinary generation prompt leads to.
ReplyStart DefaultReplyStart(TextFamily family, bool thinking);

enum class ReplyEnd {
  kEndOfTurn,     // an end token or a stop string
  kToolResponse,  // Gemma's <|tool_response>, the model's request for results
  kLength,        // the token limit or the end of the context
};

// A tool that the request declared.
struct DialectTool {
  std::string name;
  Json parameters;  // the JSON schema; Qwen's untyped values are read by it
};

struct DialectLimits {
  size_t call_bytes = 262144;  // text of one call (of one block for DSML)
  size_t depth = 64;           // nesting of the arguments, their object counted
};

struct DialectOptions {
  TextFamily family = TextFamily::kGemma4;
  ReplyStart start = ReplyStart::kContent;
  std::vector<DialectTool> tools;
  // Emit `kCallStarted` and `kCallArguments` while a call is still being written, where the
  // dialect allows it. A call announced this way may still fail, or be dropped at the token limit,
  // so a caller that cannot take announcements back leaves this off; then all three events of a
  // call come together once it is complete and valid.
  bool stream_arguments = false;
  DialectLimits limits;
};

struct DialectEvent {
  enum class Kind : uint8_t {
    kReasoning,      // `text` is a delta
    kContent,        // `text` is a delta
    kCallStarted,    // `text` is the name of call `call`
    kCallArguments,  // `text` is a delta of its arguments' JSON text
    kCallCompleted,  // `text` is the whole arguments: a compact JSON object, keys in the order and
                     // numbers in the digits the model wrote, repeated keys resolved. Where keys
                     // repeat, streamed deltas contain them all (a reader takes the last).
  };
  Kind kind;
  size_t call = 0;  // index of the call in the reply
  std::string text;

  bool operator==(const DialectEvent&) const = default;
};

// Why a reply was rejected. The first failure is final.
struct CallFailure {
  enum class Class : uint8_t { kUnclosed, kBadSyntax, kUnknownTool, kOversized, kTooDeep };
  Class failure_class = Class::kBadSyntax;
  std::string tool;     // the undeclared name, for kUnknownTool
  size_t position = 0;  // byte of the reply, markers counted with their spelling
  std::string note;     // what was wrong, for a person
  std::string excerpt;  // the offending text, at most 160 bytes; for the response, never for logs

  // `unclosed`, `bad_syntax`, `unknown_tool:NAME`, `oversized`, `too_deep`.
  std::string ClassName() const;
  // One sentence: class, position and note, without any model text but the tool's name.
  std::string Message() const;
};

enum class FinishReason { kStop, kLength, kToolCalls };
const char* FinishReasonName(FinishReason reason);  // `stop`, `length`, `tool_calls`

class DialectParser {
 public:
  virtual ~DialectParser() = default;

  // Takes the next token and appends what it settles to `events`. `text` is the token's text as
  // decoded so far (it may end inside a scalar) or, for a marker, its spelling. False when the
  // reply is malformed, from then on for ever; nothing is appended after a failure.
  virtual bool Push(Marker marker, std::string_view text, std::vector<DialectEvent>* events) = 0;

  // Ends the reply: releases held text, judges what is open. Call it once, after the last Push.
  virtual bool Finish(ReplyEnd end, std::vector<DialectEvent>* events) = 0;

  virtual const std::optional<CallFailure>& failure() const = 0;

  // After a successful Finish. An open call that the token limit cut off is dropped.
  virtual FinishReason finish_reason() const = 0;
  virtual bool dropped_open_call() const = 0;

  virtual size_t completed_calls() const = 0;
  // Whether the reply is inside reasoning now, for counting reasoning tokens.
  virtual bool in_reasoning() const = 0;
  // Whether a call is open now: the token limit would drop it.
  virtual bool in_call() const = 0;
};

std::unique_ptr<DialectParser> MakeDialectParser(DialectOptions options);

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON object text

  bool operator==(const ToolCall&) const = default;
};

// A whole reply: the events put together.
struct Reply {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;

  bool operator==(const Reply&) const = default;
};

// A call that was announced and then dropped stays; `completed_calls` says how many count.
void AppendEvents(std::span<const DialectEvent> events, Reply* reply);

}  // namespace mference
