#include "text/dialects/render.h"

#include <algorithm>

#include "text/dialects/dsml.h"
#include "text/dialects/json_text.h"
#include "text/dialects/literal_reader.h"
#include "text/dialects/qwen_call.h"
#include "text/dialects/reply_parser.h"

namespace mference {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr std::string_view kDsmlBar = "DSML｜";

[[noreturn]] void Refuse(const std::string& what) {
  Fail(ErrorCode::kMessagesInvalid, "cannot write the assistant's turn in native syntax: {}", what);
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// One argument: its name, and its value as compact JSON.
struct Argument {
  std::string key;
  std::string json;

  bool is_string() const { return json.starts_with('"'); }
  std::string text() const { return DecodeJsonString(json); }
};

std::vector<Argument> ReadArguments(const ToolCall& call) {
  if (!IsToolName(call.name)) Refuse(fmt::format("'{}' is no tool name", call.name));
  LiteralReader reader({.max_depth = kMaxDepth});
  reader.Push(call.arguments);
  if (const auto error = reader.Finish()) {
    Refuse(fmt::format("the arguments of {} are not JSON (byte {}: {})", call.name, error->offset,
                       error->note));
  }
  const std::string& json = reader.json().text();
  if (!json.starts_with('{')) Refuse(fmt::format("the arguments of {} are no object", call.name));
  std::vector<Argument> arguments;
  for (const auto& member : reader.members()) {
    Argument argument{.key = member.key, .json = reader.json().Resolved(member.begin, member.end)};
    const auto earlier = std::find_if(arguments.begin(), arguments.end(),
                                      [&](const Argument& a) { return a.key == member.key; });
    if (earlier != arguments.end()) arguments.erase(earlier);
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

std::string CompactObject(const std::vector<Argument>& arguments) {
  JsonText text;
  text.BeginObject();
  for (const Argument& argument : arguments) {
    text.Key(argument.key);
    text.Literal(argument.json);
  }
  text.EndObject();
  return text.text();
}

// Builds the spans; neighbouring text is one span.
class SpanWriter {
 public:
  explicit SpanWriter(TextFamily family) : family_(family) {}

  void Text(std::string_view text) {
    if (text.empty()) return;
    if (spans_.empty() || spans_.back().marker != Marker::kText) spans_.emplace_back();
    spans_.back().text += text;
  }

  void Mark(Marker marker) {
    for (const MarkerSpelling& known : DialectMarkers(family_)) {
      if (known.marker == marker) {
        spans_.push_back({.marker = marker, .text = std::string(known.spelling)});
        return;
      }
    }
    Fail(ErrorCode::kInternal, "internal error: the dialect has no such marker");
  }

  std::vector<RenderedSpan> Take() { return std::move(spans_); }

 private:
  TextFamily family_;
  std::vector<RenderedSpan> spans_;
};

// Gemma's form of compact JSON: the same brackets and commas, but bare keys where they can be, and
// strings raw between delimiters.
void WriteGemmaValue(std::string_view json, SpanWriter* out) {
  const auto bare = [](std::string_view key) {
    return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-' || c == '.' || c == '$';
    });
  };
  size_t at = 0;
  while (at < json.size()) {
    if (json[at] != '"') {
      const size_t next = std::min(json.find('"', at), json.size());
      out->Text(json.substr(at, next - at));
      at = next;
      continue;
    }
    size_t end = at + 1;
    while (json[end] != '"') end += json[end] == '\\' ? 2 : 1;
    ++end;
    const std::string text = DecodeJsonString(json.substr(at, end - at));
    const bool key = end < json.size() && json[end] == ':';
    at = end;
    if (key && bare(text)) {
      out->Text(text);
      continue;
    }
    out->Mark(Marker::kStringDelimiter);
    out->Text(text);
    out->Mark(Marker::kStringDelimiter);
  }
}

void WriteGemma(const Reply& reply, ReplyStart start, SpanWriter* out) {
  if (!reply.reasoning.empty() || start == ReplyStart::kReasoning) {
    if (start != ReplyStart::kReasoning) {
      out->Mark(Marker::kChannelOpen);
      out->Text("thought\n");
    }
    out->Text(reply.reasoning);
    out->Mark(Marker::kChannelClose);
  }
  out->Text(reply.content);
  for (const ToolCall& call : reply.calls) {
    const std::string arguments = CompactObject(ReadArguments(call));
    out->Mark(Marker::kCallOpen);
    out->Text("call:" + call.name);
    WriteGemmaValue(arguments, out);
    out->Mark(Marker::kCallClose);
  }
}

void WriteQwenCall(const ToolCall& call, SpanWriter* out) {
  const auto arguments = ReadArguments(call);
  std::string text = fmt::format("\n{}{}>\n", kFunctionOpen, call.name);
  for (const Argument& argument : arguments) {
    if (argument.key.empty() || argument.key.find_first_of("\n<>") != std::string::npos) {
      Refuse(fmt::format("a key of {} is empty or holds a newline, '<' or '>'", call.name));
    }
    const std::string value = argument.is_string() ? argument.text() : argument.json;
    if (Contains(value, "</parameter>") || Contains(value, kFunctionClose)) {
      Refuse(fmt::format("a value of {} holds a closing tag", call.name));
    }
    text += fmt::format("<parameter={}>\n{}\n</parameter>\n", argument.key, value);
  }
  text += kFunctionClose;
  text += '\n';
  out->Mark(Marker::kCallOpen);
  out->Text(text);
  out->Mark(Marker::kCallClose);
}

void WriteMapleCall(const ToolCall& call, SpanWriter* out) {
  const std::string arguments = CompactObject(ReadArguments(call));
  out->Mark(Marker::kCallOpen);
  out->Text(fmt::format("\n{{\"name\": \"{}\", \"arguments\": {}}}\n", call.name, arguments));
  out->Mark(Marker::kCallClose);
}

void WriteChatMl(TextFamily family, const Reply& reply, ReplyStart start, SpanWriter* out) {
  const bool thinks = !reply.reasoning.empty() || start == ReplyStart::kReasoning;
  if (thinks) {
    if (start != ReplyStart::kReasoning) {
      out->Mark(Marker::kThinkOpen);
      out->Text("\n");
    } else if (reply.reasoning.starts_with('\n')) {
      out->Text("\n");  // one is not part of it
    }
    out->Text(reply.reasoning);
    out->Text("\n");
    out->Mark(Marker::kThinkClose);
    out->Text("\n\n");
  }
  if (family == TextFamily::kQwen36 &&
      (reply.content.starts_with(kFunctionOpen) ||
       Contains(reply.content, fmt::format("\n{}", kFunctionOpen)))) {
    Refuse("a line of the content begins like a call");
  }
  out->Text(reply.content);
  for (size_t i = 0; i < reply.calls.size(); ++i) {
    if (i > 0) out->Text("\n");
    if (i == 0 && !reply.content.empty()) out->Text("\n\n");
    if (family == TextFamily::kQwen36) {
      WriteQwenCall(reply.calls[i], out);
    } else {
      WriteMapleCall(reply.calls[i], out);
    }
  }
}

void WriteDeepseek(const Reply& reply, ReplyStart start, SpanWriter* out) {
  if (!reply.reasoning.empty() || start == ReplyStart::kReasoning) {
    if (start != ReplyStart::kReasoning) out->Mark(Marker::kThinkOpen);
    out->Text(reply.reasoning);
    out->Mark(Marker::kThinkClose);
  }
  if (Contains(reply.content, kDsmlBar)) Refuse("the content holds a DSML delimiter");
  out->Text(reply.content);
  if (!reply.calls.empty()) out->Text("\n\n" + RenderDsmlBlock(reply.calls));
}

void WriteInkling(const Reply& reply, ReplyStart start, SpanWriter* out) {
  bool first = start == ReplyStart::kMessageModel;
  const auto begin_section = [&] {
    if (!first) out->Mark(Marker::kMessageModel);
    first = false;
  };
  if (!reply.reasoning.empty()) {
    begin_section();
    out->Mark(Marker::kContentThinking);
    out->Text(reply.reasoning);
    out->Mark(Marker::kEndMessage);
  }
  if (!reply.content.empty() || reply.calls.empty()) {
    begin_section();
    out->Mark(Marker::kContentText);
    out->Text(reply.content);
    out->Mark(Marker::kEndMessage);
  }
  for (const ToolCall& call : reply.calls) {
    const std::string arguments = CompactObject(ReadArguments(call));
    begin_section();
    out->Text(call.name);
    out->Mark(Marker::kInvokeJson);
    out->Text(fmt::format("{{\"name\":\"{}\",\"args\":{}}}", call.name, arguments));
    out->Mark(Marker::kEndMessage);
  }
}

}  // namespace

std::vector<RenderedSpan> RenderReply(TextFamily family, const Reply& reply, ReplyStart start) {
  SpanWriter out(family);
  switch (family) {
    case TextFamily::kGemma4:
      WriteGemma(reply, start, &out);
      break;
    case TextFamily::kQwen36:
    case TextFamily::kMaple:
      WriteChatMl(family, reply, start, &out);
      break;
    case TextFamily::kDeepseekV4:
      WriteDeepseek(reply, start, &out);
      break;
    case TextFamily::kInkling:
      WriteInkling(reply, start, &out);
      break;
  }
  return out.Take();
}

std::string RenderDsmlBlock(const std::vector<ToolCall>& calls) {
  std::string text = fmt::format("{}{}>\n", kDsmlOpen, kDsmlCalls);
  for (const ToolCall& call : calls) {
    const auto arguments = ReadArguments(call);
    text += fmt::format("{}{} name=\"{}\">\n", kDsmlOpen, kDsmlInvoke, call.name);
    for (const Argument& argument : arguments) {
      const std::string value = argument.is_string() ? argument.text() : argument.json;
      if (Contains(argument.key, kDsmlBar) || Contains(value, kDsmlBar)) {
        Refuse(fmt::format("an argument of {} holds a DSML delimiter", call.name));
      }
      if (argument.key.find_first_of("\"\n") != std::string::npos) {
        Refuse(fmt::format("a key of {} holds a quote or a newline", call.name));
      }
      text += fmt::format("{}{} name=\"{}\" string=\"{}\">{}{}{}>\n", kDsmlOpen, kDsmlParameter,
                          argument.key, argument.is_string(), value, kDsmlClose, kDsmlParameter);
    }
    if (arguments.empty()) text += '\n';
    text += fmt::format("{}{}>\n", kDsmlClose, kDsmlInvoke);
  }
  return text + fmt::format("{}{}>", kDsmlClose, kDsmlCalls);
}

std::vector<RenderedSpan> RenderCallPrefix(TextFamily family, std::string_view name) {
  if (!name.empty() && !IsToolName(name)) Refuse(fmt::format("'{}' is no tool name", name));
  SpanWriter out(family);
  const bool named = !name.empty();
  switch (family) {
    case TextFamily::kGemma4:
      out.Mark(Marker::kCallOpen);
      out.Text(fmt::format("call:{}", name));
      if (named) out.Text("{");
      break;
    case TextFamily::kQwen36:
      out.Mark(Marker::kCallOpen);
      out.Text(fmt::format("\n{}{}", kFunctionOpen, name));
      if (named) out.Text(">\n");
      break;
    case TextFamily::kMaple:
      out.Mark(Marker::kCallOpen);
      out.Text(fmt::format("\n{{\"name\": \"{}", name));
      if (named) out.Text("\", \"arguments\": ");
      break;
    case TextFamily::kDeepseekV4:
      out.Text(fmt::format("\n\n{}{}>\n{}{} name=\"{}", kDsmlOpen, kDsmlCalls, kDsmlOpen,
                           kDsmlInvoke, name));
      if (named) out.Text("\">\n");
      break;
    case TextFamily::kInkling:
      // Without a name there is nothing that only a call has: the author comes first.
      if (named) {
        out.Text(name);
        out.Mark(Marker::kInvokeJson);
        out.Text(fmt::format("{{\"name\":\"{}\",\"args\":", name));
      }
      break;
  }
  return out.Take();
}

}  // namespace mference
