#include "text/framing/deepseek_encoder.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "text/template/operators.h"
#include "text/template/python_text.h"

namespace mference {
namespace {

#include "text/framing/deepseek_wording.inc"

using jinja::Dict;
using jinja::List;
using jinja::Origin;
using jinja::TracedString;
using jinja::Value;

// Internal classification tasks: a user turn that carries one is followed by its token.
constexpr std::array<std::string_view, 6> kTasks = {"action", "query", "authority",
                                                    "domain", "title", "read_url"};

// One part of a user turn.
struct Block {
  TracedString text;
  bool is_result = false;
  std::string call_id;
};

struct Turn {
  std::string role;
  const Dict* message = nullptr;  // null for user turns made of tool results alone
  std::vector<Block> blocks;      // of user turns
  bool tools_from_request = false;
};

void Append(TracedString& out, std::string_view marker) { out.Append(marker, Origin::kTemplate); }

const Value* Member(const Dict& message, std::string_view name) {
  const Value* member = message.Find(name);
  return member == nullptr || member->IsNone() ? nullptr : member;
}

// Text of a member: absent is empty, a list of parts is its texts, joined as the encoder joins
// them.
TracedString Text(const Dict& message, std::string_view name) {
  const Value* member = Member(message, name);
  if (member == nullptr) return {};
  if (member->IsString()) return member->string().traced;
  if (!member->IsList()) return jinja::Str(*member);
  TracedString joined;
  bool first = true;
  for (const Value& part : member->items()) {
    if (!std::exchange(first, false)) Append(joined, "\n\n");
    const bool text = part.IsDict() && part.dict().Find("type") != nullptr &&
                      jinja::Str(*part.dict().Find("type")).text() == "text";
    if (text) {
      joined.Append(Text(part.dict(), "text"));
    } else {
      const Value* type = part.IsDict() ? part.dict().Find("type") : nullptr;
      Append(joined, "[Unsupported ");
      if (type != nullptr) joined.Append(jinja::Str(*type));
      Append(joined, "]");
    }
  }
  return joined;
}

std::string_view RoleOf(const Dict& message) {
  const Value* role = message.Find("role");
  return role != nullptr && role->IsString() ? std::string_view(role->text()) : "";
}

std::string TaskOf(const Turn& turn) {
  const Value* task = turn.message == nullptr ? nullptr : Member(*turn.message, "task");
  return task == nullptr ? "" : jinja::Str(*task).text();
}

bool HasTools(const Dict& message) {
  const Value* tools = Member(message, "tools");
  return tools != nullptr && jinja::Truth(*tools);
}

class Encoder {
 public:
  Encoder(const Value& messages, const Value& tools, const DeepseekOptions& options)
      : tools_(tools), options_(options) {
    Merge(messages);
    PlaceTools();
    SortResults();
    const bool any_tools = std::any_of(turns_.begin(), turns_.end(), [](const Turn& turn) {
      return turn.tools_from_request || (turn.message != nullptr && HasTools(*turn.message));
    });
    dropping_ = options.drop_thinking && !any_tools;
    if (options.thinking && dropping_) DropEarlyDevelopers();
    last_user_ = LastUser();
  }

  TracedString Run() {
    Append(out_, kDeepseekBegin);
    if (options_.thinking && options_.maximum_effort) Append(out_, kMaximumEffort);
    for (size_t i = 0; i < turns_.size(); ++i) {
      RenderTurn(i);
      RenderTransition(i);
    }
    return std::move(out_);
  }

 private:
  static bool IsUserLike(const Turn& turn) {
    return turn.role == "user" || turn.role == "developer";
  }

  // Tool results become parts of user turns; adjacent users share one.
  void Merge(const Value& messages) {
    for (const Value& value : messages.items()) {
      const Dict& message = value.dict();
      const std::string role(RoleOf(message));
      const bool result = role == "tool";
      if (!result && role != "user") {
        turns_.push_back({role, &message, {}, false});
        continue;
      }
      Block block;
      block.is_result = result;
      block.text = Text(message, "content");
      if (const Value* id = Member(message, "tool_call_id")) block.call_id = jinja::Str(*id).text();
      const bool joins = !turns_.empty() && turns_.back().role == "user" &&
                         (result || TaskOf(turns_.back()).empty());
      if (!joins) turns_.push_back({"user", result ? nullptr : &message, {}, false});
      turns_.back().blocks.push_back(std::move(block));
    }
  }

  void PlaceTools() {
    if (tools_.IsNone() || !jinja::Truth(tools_)) return;
    if (turns_.empty() || turns_.front().role != "system") {
      turns_.insert(turns_.begin(), Turn{"system", nullptr, {}, false});
    }
    turns_.front().tools_from_request = true;
  }

  // Results follow the order of the calls that they answer.
  void SortResults() {
    std::map<std::string, size_t> order;
    for (Turn& turn : turns_) {
      const Value* calls = turn.role == "assistant" ? Member(*turn.message, "tool_calls") : nullptr;
      if (calls != nullptr && calls->IsList() && !calls->items().empty()) {
        order.clear();
        for (size_t i = 0; i < calls->items().size(); ++i) {
          const Value& call = calls->items()[i];
          const Value* id = call.IsDict() ? Member(call.dict(), "id") : nullptr;
          if (id != nullptr) order[jinja::Str(*id).text()] = i;
        }
      }
      if (turn.role == "user" && !order.empty()) SortResults(turn, order);
    }
  }

  static void SortResults(Turn& turn, const std::map<std::string, size_t>& order) {
    std::vector<Block> results;
    for (const Block& block : turn.blocks) {
      if (block.is_result) results.push_back(block);
    }
    const auto rank = [&](const Block& block) {
      const auto found = order.find(block.call_id);
      return found == order.end() ? 0 : found->second;
    };
    std::stable_sort(results.begin(), results.end(),
                     [&](const Block& a, const Block& b) { return rank(a) < rank(b); });
    auto next = results.begin();
    for (Block& block : turn.blocks) {
      if (block.is_result) block = std::move(*next++);
    }
  }

  std::optional<size_t> LastUser() const {
    for (size_t i = turns_.size(); i-- > 0;) {
      if (IsUserLike(turns_[i])) return i;
    }
    return std::nullopt;
  }

  void DropEarlyDevelopers() {
    const size_t last = LastUser().value_or(0);
    size_t index = 0;
    std::erase_if(turns_,
                  [&](const Turn& turn) { return index++ < last && turn.role == "developer"; });
  }

  // Whether reasoning belongs to the turn at `i` (of the model, or opened after a user).
  bool ThinksAfter(size_t i) const {
    return options_.thinking && (!dropping_ || !last_user_ || i >= *last_user_);
  }

  void RenderTurn(size_t i) {
    const Turn& turn = turns_[i];
    if (turn.role == "system") {
      RenderGuidance(turn);
    } else if (turn.role == "developer") {
      Append(out_, kDeepseekUser);
      RenderGuidance(turn);
    } else if (turn.role == "user") {
      RenderUser(turn);
    } else if (turn.role == "latest_reminder") {
      Append(out_, "<｜latest_reminder｜>");
      out_.Append(Text(*turn.message, "content"));
    } else if (turn.role == "assistant") {
      RenderAssistant(i);
    } else {
      throw DeepseekEncodingError("NotImplementedError", "Unknown role: " + turn.role);
    }
  }

  void RenderGuidance(const Turn& turn) {
    if (turn.message != nullptr) out_.Append(Text(*turn.message, "content"));
    if (turn.tools_from_request) {
      RenderTools(tools_);
    } else if (turn.message != nullptr && HasTools(*turn.message)) {
      RenderTools(*turn.message->Find("tools"));
    }
    const Value* format =
        turn.message == nullptr ? nullptr : Member(*turn.message, "response_format");
    if (format != nullptr && jinja::Truth(*format)) {
      Append(out_,
             "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to "
             "reply:\n");
      out_.Append(jinja::ToJson(*format, {}));
    }
  }

  void RenderTools(const Value& tools) {
    TracedString schemas;
    for (const Value& tool : jinja::ToList(tools)) {
      const Value* function = tool.IsDict() ? Member(tool.dict(), "function") : nullptr;
      if (!schemas.empty()) Append(schemas, "\n");
      schemas.Append(jinja::ToJson(function != nullptr ? *function : tool, {}));
    }
    Append(out_, "\n\n");
    std::string_view rest = kToolsTemplate;
    while (!rest.empty()) {
      const size_t open = std::min(rest.find('{'), rest.size());
      Append(out_, rest.substr(0, open));
      if (open == rest.size()) break;
      const size_t close = rest.find('}', open);
      const std::string_view name = rest.substr(open + 1, close - open - 1);
      if (name == "dsml_token") {
        Append(out_, kDeepseekDsml);
      } else if (name == "thinking_start_token") {
        Append(out_, kThinkOpen);
      } else if (name == "thinking_end_token") {
        Append(out_, kThinkClose);
      } else {
        out_.Append(schemas);
      }
      rest.remove_prefix(close + 1);
    }
  }

  void RenderUser(const Turn& turn) {
    Append(out_, kDeepseekUser);
    bool first = true;
    for (const Block& block : turn.blocks) {
      if (!std::exchange(first, false)) Append(out_, "\n\n");
      if (block.is_result) Append(out_, "<tool_result>");
      out_.Append(block.text);
      if (block.is_result) Append(out_, "</tool_result>");
    }
  }

  void RenderAssistant(size_t i) {
    const Dict& message = *turns_[i].message;
    const bool after_task = i > 0 && !TaskOf(turns_[i - 1]).empty();
    if (ThinksAfter(i) && !after_task) {
      out_.Append(Text(message, "reasoning_content"));
      Append(out_, kThinkClose);
    }
    out_.Append(Text(message, "content"));
    const Value* calls = Member(message, "tool_calls");
    if (calls != nullptr && calls->IsList() && !calls->items().empty()) RenderCalls(calls->items());
    const Value* open = Member(message, "wo_eos");
    if (open == nullptr || !jinja::Truth(*open)) Append(out_, kDeepseekEnd);
  }

  void Tag(std::string_view begin, std::string_view element) {
    Append(out_, begin);
    Append(out_, kDeepseekDsml);
    Append(out_, element);
  }

  void RenderCalls(const List& calls) {
    Tag("\n\n<", "tool_calls>\n");
    bool first = true;
    for (const Value& call : calls) {
      if (!std::exchange(first, false)) Append(out_, "\n");
      RenderCall(call.IsDict() ? call.dict() : Dict());
    }
    Tag("\n</", "tool_calls>");
  }

  void RenderCall(const Dict& call) {
    const Value* function = Member(call, "function");
    const Dict& described = function != nullptr && function->IsDict() ? function->dict() : call;
    Tag("<", "invoke name=\"");
    out_.Append(Text(described, "name"));
    Append(out_, "\">\n");
    const Value arguments = Arguments(described.Find("arguments"));
    bool first = true;
    for (const auto& [key, value] : arguments.dict().entries()) {
      if (!std::exchange(first, false)) Append(out_, "\n");
      Tag("<", "parameter name=\"");
      out_.Append(jinja::Str(key));
      Append(out_, value.IsString() ? "\" string=\"true\">" : "\" string=\"false\">");
      out_.Append(value.IsString() ? value.string().traced : jinja::ToJson(value, {}));
      Tag("</", "parameter>");
    }
    Tag("\n</", "invoke>");
  }

  // JSON text is parsed; what is no object is carried as one parameter.
  static Value Arguments(const Value* given) {
    if (given != nullptr && given->IsDict()) return *given;
    Value parsed = given != nullptr ? *given : Value::MakeDict({});
    if (parsed.IsString()) {
      try {
        parsed = jinja::ParseJsonValue(parsed.text(), "arguments", ErrorCode::kMessagesInvalid,
                                       jinja::NumberStyle::kPython, Origin::kData);
      } catch (const Error&) {
        // Not JSON: passed on as the text that it is.
      }
    }
    if (parsed.IsDict()) return parsed;
    Dict single;
    single.Set(Value::Str("arguments", Origin::kTemplate), parsed);
    return Value::MakeDict(std::move(single));
  }

  void RenderTransition(size_t i) {
    const bool last = i + 1 == turns_.size();
    if (!last && turns_[i + 1].role != "assistant" && turns_[i + 1].role != "latest_reminder") {
      return;
    }
    if (last && !options_.generation_prompt) return;
    const std::string task = TaskOf(turns_[i]);
    const bool thinks = options_.thinking;
    if (!task.empty()) {
      if (std::find(kTasks.begin(), kTasks.end(), task) == kTasks.end()) {
        throw DeepseekEncodingError("AssertionError", fmt::format("Invalid task: '{}'", task));
      }
      if (task == "action") {
        Append(out_, kDeepseekAssistant);
        Append(out_, thinks ? kThinkOpen : kThinkClose);
      }
      Append(out_, fmt::format("<｜{}｜>", task));
    } else if (IsUserLike(turns_[i])) {
      Append(out_, kDeepseekAssistant);
      Append(out_, ThinksAfter(i) ? kThinkOpen : kThinkClose);
    }
  }

  const Value& tools_;
  const DeepseekOptions& options_;
  std::vector<Turn> turns_;
  bool dropping_ = false;
  std::optional<size_t> last_user_;
  TracedString out_;
};

}  // namespace

TracedString EncodeDeepseek(const Value& messages, const Value& tools,
                            const DeepseekOptions& options) {
  if (!messages.IsList()) {
    throw MessagesError("invalid_message", "messages", "messages must be an array");
  }
  for (const Value& message : messages.items()) {
    if (!message.IsDict()) {
      throw MessagesError("invalid_message", "messages", "every message must be an object");
    }
  }
  return Encoder(messages, tools, options).Run();
}

}  // namespace mference
