// A conversation in a terminal: its messages, and the tokens that the model already holds of it.
//
// A turn continues from the very ids the model has seen and sampled, followed by the family's
// bridge to the next user message: rendering the history again does not reproduce them (templates
// drop reasoning, text splits into tokens differently), and then nothing of it could be kept. The
// history is rendered afresh where the last turn ended in another way than at its turn token or by
// length, and after messages were dropped or changed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text_layer.h"

namespace mference::cli {

// A turn that is ready to be generated.
struct PreparedTurn {
  std::vector<TokenId> prompt;
  std::string rendered;      // what was rendered for it: the whole prompt, or the bridge
  int dropped_messages = 0;  // forgotten to make room
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
  void SetSystem(std::string_view system);

  // The system message first, where there is one.
  std::vector<ChatMessage> Messages() const;
  bool empty() const { return now_.history.empty(); }

 private:
  struct State {
    std::vector<ChatMessage> history;  // without the system message
    std::vector<TokenId> held;         // prompt and reply of the last turn, without its end token
    bool continuable = false;          // a bridge may follow `held`
  };

  bool Bridge(std::string_view message, const PromptOptions& options, PreparedTurn& turn) const;
  std::vector<ChatMessage> WithSystem(std::vector<ChatMessage> history) const;

  const TextLayer& text_;
  const int64_t context_;
  std::string system_;
  State now_;
  std::vector<State> before_;  // the states before the last turns, for `Undo`
};

}  // namespace mference::cli
