// A conversation in a terminal: its messages, and how to take steps back.
//
// A turn continues from the tokens that the model has seen and sampled where it can (see
// engine/turn_history.h); the history is rendered afresh where the last turn ended in another way
// than at its turn token or by length, and after messages were dropped or changed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text_layer.h"
#include "engine/turn_history.h"

namespace mference::cli {

// A turn that is ready to be generated.
struct PreparedTurn {
  std::vector<TokenId> prompt;
  std::string rendered;      // the whole history; `prompt` may begin with other tokens
  int dropped_messages = 0;  // forgotten to make room
  std::vector<ChatMessage> messages;
  PromptOptions options;
};

class Conversation {
 public:
  // `text` must outlive it. `context`: a prompt must have fewer tokens.
  Conversation(const TextLayer& text, int64_t context) : text_(text), context_(context) {}

  // The prompt for `message` as the next thing the user says; `options` as for rendering. Forgets
  // the oldest messages where they no longer fit, never the system message. Throws kContextFull,
  // with the conversation unchanged, when even the message alone does not fit.
  PreparedTurn Begin(std::string_view message, const PromptOptions& options);
  // What came of the turn begun last: the sampled ids, why they ended, and the visible reply.
  void Finish(const PreparedTurn& turn, const GenerationResult& result, std::string_view reply);
  // The turn begun last never happened.
  void Abandon() { Undo(); }

  // Takes back the last turn; false when there is none.
  bool Undo();
  // What the user said last; empty: nothing.
  std::string LastUserMessage() const;

  // Forgets everything but the system message.
  void Clear();
  // Replaces the system message; empty removes it. The history is kept.
  void SetSystem(std::string_view system) { system_ = system; }

  // The system message first, where there is one.
  std::vector<ChatMessage> Messages() const { return WithSystem(history_); }
  bool empty() const { return history_.empty(); }

 private:
  // Puts what fits of the rendering or the continuation into `turn`; false when neither does.
  bool Prepare(std::vector<ChatMessage> messages, PreparedTurn& turn);
  std::vector<ChatMessage> WithSystem(std::vector<ChatMessage> history) const;

  const TextLayer& text_;
  const int64_t context_;
  TurnHistory turns_;
  std::string system_;
  std::vector<ChatMessage> history_;              // without the system message
  std::vector<std::vector<ChatMessage>> before_;  // the histories before the last turns
};

}  // namespace mference::cli
