#include "engine/turn_history.h"

#include <algorithm>
#include <cmath>

#include "base/sha256.h"
#include "text/template/python_text.h"

namespace mference {
namespace {

// Numbers are one if they mean the same double; integers of any size stay exact.
void AppendCanonical(const jinja::Value& value, std::string& out) {
  if (value.IsDict()) {
    std::vector<const jinja::Dict::Entry*> entries;
    for (const jinja::Dict::Entry& entry : value.dict().entries()) entries.push_back(&entry);
    std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
      return jinja::Str(a->key).text() < jinja::Str(b->key).text();
    });
    out += '{';
    for (const jinja::Dict::Entry* entry : entries) {
      AppendCanonical(entry->key, out);
      AppendCanonical(entry->value, out);
    }
    out += '}';
  } else if (value.IsList() || value.IsTuple()) {
    out += '[';
    for (const jinja::Value& item : value.items()) AppendCanonical(item, out);
    out += ']';
  } else if (value.IsFloat()) {
    constexpr double kExactIntegers = 9007199254740992.0;  // 2^53
    const double number = value.number().number;
    if (number == std::trunc(number) && std::abs(number) < kExactIntegers) {
      out += fmt::format("n{:.0f};", number == 0 ? 0.0 : number);
    } else {
      out += fmt::format("n{};", number);
    }
  } else if (value.IsInt()) {
    out += fmt::format("n{};", jinja::Str(value).text());
  } else {
    const std::string text = jinja::Str(value).text();
    out += fmt::format("{}{}:{}", value.IsString() ? 's' : 'c', text.size(), text);
  }
}

void AppendField(std::string_view text, std::string& out) {
  out += fmt::format("{}:", text.size());
  out += text;
}

std::string_view WithoutTrailingSpace(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  return text.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

// What counts of a message when histories are compared.
std::string Canonical(const ChatMessage& message) {
  const bool assistant = message.role == ChatRole::kAssistant;
  std::string out;
  AppendField(ChatRoleName(message.role), out);
  AppendField(assistant ? WithoutTrailingSpace(message.content) : std::string_view(message.content),
              out);
  AppendField(message.name, out);
  AppendField(message.tool_call_id, out);
  for (const ChatToolCall& call : message.tool_calls) {
    AppendField(call.id, out);
    AppendField(call.name, out);
    AppendCanonical(call.arguments, out);
  }
  return out;
}

// What must be equal besides the messages.
std::string Domain(const std::vector<ToolDeclaration>& tools, const PromptOptions& options) {
  std::string out;
  for (const ToolDeclaration& tool : tools) {
    AppendField(tool.name, out);
    AppendField(tool.description.value_or(""), out);
    AppendField(jinja::ToJson(tool.parameters, {}).text(), out);
  }
  out += '|';
  for (const auto& [name, value] : options.extra) {
    AppendField(name, out);
    AppendField(jinja::ToJson(value, {}).text(), out);
  }
  return out;
}

// Element i stands for the domain and the messages up to and including number i: each digest takes
// in the one before.
std::vector<std::string> KeysOf(const std::vector<ChatMessage>& messages,
                                const std::vector<ToolDeclaration>& tools,
                                const PromptOptions& options) {
  std::vector<std::string> keys;
  keys.reserve(messages.size());
  std::string previous = Sha256Hex(Domain(tools, options));
  for (const ChatMessage& message : messages) {
    previous = Sha256Hex(previous + Canonical(message));
    keys.push_back(previous);
  }
  return keys;
}

// Where the place lies up to which `ids` and a remembered turn say the same: the end-of-turn token
// of the turn, or what follows its last call. `turn_ids` is the rendering up to that turn. Every
// earlier turn or call has its token in both renderings, so they are counted; text is never
// searched, which repeated turns would make ambiguous. Null if the renderings do not end there.
std::optional<size_t> BridgeBegin(const TextLayer& text, const std::vector<TokenId>& turn_ids,
                                  const std::vector<TokenId>& ids, bool asks_tools) {
  const std::vector<int32_t>& ends = text.stops().end_of_turn;
  const auto is_border = [&](TokenId id) {
    if (asks_tools) return text.MarkerOf(id) == Marker::kCallClose;
    return std::find(ends.begin(), ends.end(), id) != ends.end();
  };
  const auto last = std::find_if(turn_ids.rbegin(), turn_ids.rend(), is_border);
  // After the border at most a line break, or the token that asks for results.
  if (last == turn_ids.rend() || last - turn_ids.rbegin() > 2) return std::nullopt;
  auto count = std::count_if(turn_ids.begin(), turn_ids.end(), is_border);
  const auto border = std::find_if(ids.begin(), ids.end(),
                                   [&](TokenId id) { return is_border(id) && --count == 0; });
  if (border == ids.end()) return std::nullopt;
  const auto begin = static_cast<size_t>(border - ids.begin()) + (asks_tools ? 1 : 0);
  if (begin >= ids.size()) return std::nullopt;
  const std::vector<int32_t>& responses = text.stops().tool_response;
  if (asks_tools && std::find(responses.begin(), responses.end(), ids[begin]) == responses.end()) {
    return std::nullopt;
  }
  return begin;
}

}  // namespace

EffectivePrompt TurnHistory::Prepare(const TextLayer& text,
                                     const std::vector<ChatMessage>& messages,
                                     const std::vector<ToolDeclaration>& tools,
                                     const PromptOptions& options) {
  EffectivePrompt prompt;
  prompt.rendered = text.renderer().Render(messages, tools, options);
  prompt.rendered_ids = text.EncodePrompt(prompt.rendered);
  prompt.ids = prompt.rendered_ids;
  size_t position = 0;
  const std::optional<Turn> turn = Find(KeysOf(messages, tools, options), &position);
  if (!turn) return prompt;
  const auto remembered = static_cast<int64_t>(turn->ids.size());
  if (prompt.ids.size() > turn->ids.size() &&
      std::equal(turn->ids.begin(), turn->ids.end(), prompt.ids.begin())) {
    prompt.remembered_tokens = remembered;
    return prompt;
  }
  PromptOptions history = options;
  history.add_generation_prompt = false;
  const std::vector<ChatMessage> until_turn(
      messages.begin(), messages.begin() + static_cast<ptrdiff_t>(position) + 1);
  std::vector<TokenId> turn_ids;
  try {
    turn_ids = text.EncodePrompt(text.renderer().Render(until_turn, tools, history));
  } catch (const Error& error) {
    // A template may refuse a history that ends there; then there is no bridge.
    if (error.code() != ErrorCode::kMessagesInvalid) throw;
    return prompt;
  }
  const std::optional<size_t> begin =
      BridgeBegin(text, turn_ids, prompt.rendered_ids, turn->asks_tools);
  if (!begin) return prompt;
  prompt.ids = turn->ids;
  prompt.ids.insert(prompt.ids.end(), prompt.rendered_ids.begin() + static_cast<ptrdiff_t>(*begin),
                    prompt.rendered_ids.end());
  prompt.remembered_tokens = remembered;
  return prompt;
}

std::optional<TurnHistory::Turn> TurnHistory::Find(const std::vector<std::string>& keys,
                                                   size_t* position) {
  const std::lock_guard lock(mutex_);
  // A turn is followed by something new: the last message is none.
  for (size_t i = keys.size(); i-- > 1;) {
    const auto found = by_key_.find(keys[i - 1]);
    if (found == by_key_.end()) continue;
    turns_.splice(turns_.begin(), turns_, found->second);
    *position = i - 1;
    return *found->second;
  }
  return std::nullopt;
}

void TurnHistory::Remember(const TextLayer& text, const std::vector<ChatMessage>& messages,
                           const std::vector<ToolDeclaration>& tools, const PromptOptions& options,
                           std::span<const TokenId> prompt, const GenerationResult& result,
                           const ChatMessage& reply) {
  const bool said_something = !reply.content.empty() || !reply.tool_calls.empty();
  if (result.tokens.empty() || !said_something) return;
  if (result.reason == StopReason::kStopString || result.reason == StopReason::kEos) return;
  Turn turn;
  // A reply that was ended right after a call is continued as if it had asked for the results.
  const bool ends_in_call = !reply.tool_calls.empty() && !text.stops().tool_response.empty() &&
                            text.MarkerOf(result.tokens.back()) == Marker::kCallClose;
  turn.asks_tools = result.reason == StopReason::kToolCalls || ends_in_call;
  turn.ids.assign(prompt.begin(), prompt.end());
  turn.ids.insert(turn.ids.end(), result.tokens.begin(), result.tokens.end());
  // The bridge begins with what ended the turn.
  if (text.stops().Find(result.tokens.back())) turn.ids.pop_back();
  std::vector<ChatMessage> all = messages;
  all.push_back(reply);
  turn.key = KeysOf(all, tools, options).back();

  const std::lock_guard lock(mutex_);
  if (const auto known = by_key_.find(turn.key); known != by_key_.end()) {
    tokens_ -= known->second->ids.size();
    turns_.erase(known->second);
    by_key_.erase(known);
  }
  tokens_ += turn.ids.size();
  turns_.push_front(std::move(turn));
  by_key_[turns_.front().key] = turns_.begin();
  while (turns_.size() > 1 && (turns_.size() > kMaxTurns || tokens_ > kMaxTokens)) {
    tokens_ -= turns_.back().ids.size();
    by_key_.erase(turns_.back().key);
    turns_.pop_back();
  }
}

void TurnHistory::Clear() {
  const std::lock_guard lock(mutex_);
  turns_.clear();
  by_key_.clear();
  tokens_ = 0;
}

size_t TurnHistory::size() const {
  const std::lock_guard lock(mutex_);
  return turns_.size();
}

}  // namespace mference
