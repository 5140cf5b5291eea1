#include "cli/conversation.h"

#include <algorithm>

#include "base/error.h"

namespace mference::cli {
namespace {

// How far back `Undo` goes: each step keeps a copy of the ids.
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
  State next{.history = now_.history, .held = {}, .continuable = false};
  next.history.push_back(MakeMessage(ChatRole::kUser, message));
  if (!Bridge(message, options, turn)) {
    while (true) {
      const Prompt prompt = text_.renderer().Render(WithSystem(next.history), {}, options);
      turn.prompt = text_.EncodePrompt(prompt);
      turn.rendered = prompt.text;
      if (static_cast<int64_t>(turn.prompt.size()) < context_) break;
      if (next.history.size() == 1) {
        Fail(ErrorCode::kContextFull,
             "the message makes a prompt of {} tokens, but the context holds {}; shorten it or "
             "raise --context",
             turn.prompt.size(), context_);
      }
      // A conversation begins with something the user said.
      do {
        next.history.erase(next.history.begin());
        ++turn.dropped_messages;
      } while (next.history.size() > 1 && next.history.front().role == ChatRole::kAssistant);
    }
  }
  before_.push_back(std::move(now_));
  if (before_.size() > kUndoSteps) before_.erase(before_.begin());
  now_ = std::move(next);
  return turn;
}

bool Conversation::Bridge(std::string_view message, const PromptOptions& options,
                          PreparedTurn& turn) const {
  if (!now_.continuable) return false;
  const Prompt bridge = text_.renderer().Continuation(message, options);
  const std::vector<TokenId> ids = text_.EncodePrompt(bridge);
  turn.prompt = now_.held;
  turn.prompt.insert(turn.prompt.end(), ids.begin(), ids.end());
  turn.rendered = bridge.text;
  return static_cast<int64_t>(turn.prompt.size()) < context_;
}

void Conversation::Finish(const PreparedTurn& turn, const GenerationResult& result,
                          std::string_view reply) {
  if (!reply.empty()) now_.history.push_back(MakeMessage(ChatRole::kAssistant, reply));
  now_.held = turn.prompt;
  now_.held.insert(now_.held.end(), result.tokens.begin(), result.tokens.end());
  switch (result.reason) {
    case StopReason::kEndOfTurn:
      now_.held.pop_back();  // the bridge begins with it
      now_.continuable = true;
      break;
    case StopReason::kConstraintMet:
    case StopReason::kMaxTokens:
    case StopReason::kContextFull:
    case StopReason::kCancelled:
      now_.continuable = true;
      break;
    case StopReason::kEos:
    case StopReason::kToolCalls:
    case StopReason::kStopString:
      now_.continuable = false;  // the model's text is not the history's
      break;
  }
}

bool Conversation::Undo() {
  if (before_.empty()) return false;
  now_ = std::move(before_.back());
  before_.pop_back();
  return true;
}

std::string Conversation::LastUserMessage() const {
  const auto last = std::find_if(now_.history.rbegin(), now_.history.rend(),
                                 [](const ChatMessage& m) { return m.role == ChatRole::kUser; });
  return last == now_.history.rend() ? std::string() : last->content;
}

void Conversation::Clear() {
  now_ = {};
  before_.clear();
}

void Conversation::SetSystem(std::string_view system) {
  system_ = system;
  now_.continuable = false;
  for (State& state : before_) state.continuable = false;
}

std::vector<ChatMessage> Conversation::WithSystem(std::vector<ChatMessage> history) const {
  if (!system_.empty()) {
    history.insert(history.begin(), MakeMessage(ChatRole::kSystem, system_));
  }
  return history;
}

std::vector<ChatMessage> Conversation::Messages() const { return WithSystem(now_.history); }

}  // namespace mference::cli
