// From sampled tokens to what a reader sees: text, reasoning and tool calls, as they arrive.
//
// Joins the three things that stand between a sampled id and a client: the family's dialect (or a
// plain detokenizer, for raw completions) and the stop strings, which look at visible text only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/session.h"
#include "engine/stop_matcher.h"
#include "engine/text_layer.h"
#include "text/dialects/dialect.h"
#include "text/tokenizer/detokenizer.h"

namespace mference {

struct ReplyStreamOptions {
  // A completion of raw text: no dialect, everything is content.
  bool raw = false;
  ReplyStart start = ReplyStart::kContent;
  std::vector<DialectTool> tools = {};
  std::vector<std::string> stops = {};
  bool stream_arguments = false;  // see DialectOptions
};

// One reply. Not thread-safe; the text layer must outlive it.
class ReplyStream {
 public:
  ReplyStream(const TextLayer& text, ReplyStreamOptions options);

  // Takes the next sampled token (not one that stops generation) and appends what it settles to
  // `events`. False when the reply is over: a stop string was completed, or the reply is malformed.
  bool Push(TokenId id, std::vector<DialectEvent>* events);
  // The end: releases what was held back. False when the reply is malformed. A stop string may be
  // completed here too.
  bool Finish(StopReason reason, std::vector<DialectEvent>* events);

  // A stop string was seen.
  bool stopped() const { return matcher_.stopped(); }
  const std::optional<CallFailure>& failure() const;
  // After a successful Finish. A raw completion has kStop or kLength.
  FinishReason finish_reason() const { return finish_reason_; }
  size_t completed_calls() const { return parser_ != nullptr ? parser_->completed_calls() : 0; }
  bool in_reasoning() const { return parser_ != nullptr && parser_->in_reasoning(); }

 private:
  // Passes `parsed` on, content through the stop matcher.
  void Release(std::vector<DialectEvent> parsed, std::vector<DialectEvent>* events);
  void ReleaseText(std::string_view text, std::vector<DialectEvent>* events);

  const TextLayer& text_;
  std::unique_ptr<DialectParser> parser_;  // null: raw
  Detokenizer detokenizer_;                // raw
  StopMatcher matcher_;
  std::string token_text_;
  FinishReason finish_reason_ = FinishReason::kStop;
};

}  // namespace mference
