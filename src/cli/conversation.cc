#include "cli/conversation.h"

#include <algorithm>

#include "base/error.h"

namespace mference::cli {
namespace {

// How far back `Undo` goes.
constexpr size_t kUndoSteps = 16;

ChatMessage MakeMessage(ChatRole role, std::string_view content) {
  ChatMessage message;
  message.role = role;
  message.content = content;
  return message;
}

}  // namespace

PreparedTurn Conversation::Begin(std::string_view message, const PromptOptions& options) {
  PreparedTurn turn;
  turn.options = options;
  std::vector<ChatMessage> history = history_;
  history.push_back(MakeMessage(ChatRole::kUser, message));
  while (!Prepare(WithSystem(history), turn)) {
    if (history.size() == 1) {
      Fail(ErrorCode::kContextFull,
           "the message makes a prompt of {} tokens, but the context holds {}; shorten it or "
           "raise --context",
           turn.prompt.size(), context_);
    }
    // A conversation begins with something the user said.
    do {
      history.erase(history.begin());
      ++turn.dropped_messages;
    } while (history.size() > 1 && history.front().role == ChatRole::kAssistant);
  }
  before_.push_back(std::move(history_));
  if (before_.size() > kUndoSteps) before_.erase(before_.begin());
  history_ = std::move(history);
  return turn;
}

bool Conversation::Prepare(std::vector<ChatMessage> messages, PreparedTurn& turn) {
  const auto fits = [this](const std::vector<TokenId>& ids) {
    return static_cast<int64_t>(ids.size()) < context_;
  };
  EffectivePrompt effective = turns_.Prepare(text_, messages, {}, turn.options);
  turn.messages = std::move(messages);
  turn.rendered = std::move(effective.rendered.text);
  // Tokens that rendering leaves out, such as reasoning, may be what does not fit.
  turn.prompt = std::move(fits(effective.ids) ? effective.ids : effective.rendered_ids);
  return fits(turn.prompt);
}

void Conversation::Finish(const PreparedTurn& turn, const GenerationResult& result,
                          std::string_view reply) {
  if (reply.empty()) return;
  const ChatMessage message = MakeMessage(ChatRole::kAssistant, reply);
  turns_.Remember(text_, turn.messages, {}, turn.options, turn.prompt, result, message);
  history_.push_back(message);
}

bool Conversation::Undo() {
  if (before_.empty()) return false;
  history_ = std::move(before_.back());
  before_.pop_back();
  return true;
}

std::string Conversation::LastUserMessage() const {
  const auto last = std::find_if(history_.rbegin(), history_.rend(),
                                 [](const ChatMessage& m) { return m.role == ChatRole::kUser; });
  return last == history_.rend() ? std::string() : last->content;
}

void Conversation::Clear() {
  history_.clear();
  before_.clear();
}

std::vector<ChatMessage> Conversation::WithSystem(std::vector<ChatMessage> history) const {
  if (!system_.empty()) {
    history.insert(history.begin(), MakeMessage(ChatRole::kSystem, system_));
  }
  return history;
}

}  // namespace mference::cli
