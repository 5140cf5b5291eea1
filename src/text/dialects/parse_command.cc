#include "text/dialects/parse_command.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace mference {
namespace {

constexpr ErrorCode kBadRequest = ErrorCode::kInvalidArgument;
constexpr size_t kMaxTextBytes = size_t{64} << 20;

struct Token {
  Marker marker = Marker::kText;
  std::string text;
};

Marker MarkerOf(TextFamily family, const std::string& spelling) {
  for (const MarkerSpelling& known : DialectMarkers(family)) {
    if (known.spelling == spelling) return known.marker;
  }
  return Marker::kOther;
}

ReplyStart ReadStart(TextFamily family, const JsonReader& request) {
  if (!request.Has("start")) return DefaultReplyStart(family, /*thinking=*/false);
  const std::string start = request.At("start").String();
  if (start == "content") return ReplyStart::kContent;
  if (start == "reasoning") return ReplyStart::kReasoning;
  if (start == "message_model") return ReplyStart::kMessageModel;
  request.At("start").FailHere("expected content, reasoning or message_model");
}

ReplyEnd ReadEnd(TextFamily family, const JsonReader& request) {
  if (!request.Has("end")) return ReplyEnd::kEndOfTurn;
  const std::string end = request.At("end").String();
  if (end == "length") return ReplyEnd::kLength;
  return MarkerOf(family, end) == Marker::kToolResponseOpen ? ReplyEnd::kToolResponse
                                                            : ReplyEnd::kEndOfTurn;
}

std::vector<DialectTool> ReadTools(const JsonReader& request) {
  std::vector<DialectTool> tools;
  if (!request.Has("tools")) return tools;
  const JsonReader list = request.At("tools");
  for (size_t i = 0; i < list.ArraySize(); ++i) {
    JsonReader tool = list.At(i);
    if (tool.Has("function")) tool = tool.At("function");
    DialectTool read{.name = tool.At("name").String(), .parameters = Json::object()};
    if (tool.Has("parameters")) {
      tool.At("parameters").RequireObject();
      read.parameters = tool.At("parameters").value();
    }
    tools.push_back(std::move(read));
  }
  return tools;
}

std::vector<Token> ReadItems(TextFamily family, const JsonReader& request) {
  std::vector<Token> tokens;
  size_t text_bytes = 0;
  const JsonReader items = request.At("items");
  for (size_t i = 0; i < items.ArraySize(); ++i) {
    const JsonReader item = items.At(i);
    Token token;
    if (item.value().is_string()) {
      token.text = item.String();
    } else if (item.Has("marker")) {
      token.text = item.At("marker").String();
      token.marker = MarkerOf(family, token.text);
    } else {
      const std::string repeated = item.At("repeat").String();
      const uint64_t times = item.At("times").Uint();
      if (!repeated.empty() && times > kMaxTextBytes / repeated.size()) {
        item.FailHere("the repeated text is longer than 64 MiB");
      }
      token.text.reserve(repeated.size() * times);
      for (uint64_t n = 0; n < times; ++n) token.text += repeated;
    }
    text_bytes += token.text.size();
    if (text_bytes > kMaxTextBytes) items.FailHere("the reply is longer than 64 MiB");
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// Byte positions in the ordinary text where it is cut, ascending.
std::vector<size_t> ReadCuts(const JsonReader& request) {
  std::vector<size_t> cuts;
  if (!request.Has("split")) return cuts;
  for (const int64_t cut : request.At("split").IntArray()) {
    if (cut < 0) request.At("split").FailHere("expected positions from 0 on");
    cuts.push_back(static_cast<size_t>(cut));
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

// The events of one token as deltas of a chat completion chunk.
void AppendDeltas(const std::vector<DialectEvent>& events, OrderedJson* deltas) {
  for (const DialectEvent& event : events) {
    OrderedJson call = {{"index", event.call}};
    switch (event.kind) {
      case DialectEvent::Kind::kReasoning:
        deltas->push_back({{"reasoning_content", event.text}});
        continue;
      case DialectEvent::Kind::kContent:
        deltas->push_back({{"content", event.text}});
        continue;
      case DialectEvent::Kind::kCallStarted:
        call["type"] = "function";
        call["function"] = {{"name", event.text}, {"arguments", ""}};
        break;
      case DialectEvent::Kind::kCallArguments:
        call["function"] = {{"arguments", event.text}};
        break;
      case DialectEvent::Kind::kCallCompleted:
        continue;  // nothing that its deltas have not said
    }
    deltas->push_back({{"tool_calls", OrderedJson::array({std::move(call)})}});
  }
}

// Feeds the tokens, cut as requested, and records the events.
class Replay {
 public:
  explicit Replay(DialectOptions options) : parser_(MakeDialectParser(std::move(options))) {}

  void Push(const Token& token, const std::vector<size_t>& cuts) {
    if (token.marker != Marker::kText) return PushPiece(token.marker, token.text);
    std::string_view rest = token.text;
    while (true) {
      while (next_cut_ < cuts.size() && cuts[next_cut_] <= text_bytes_) ++next_cut_;
      const size_t room = next_cut_ < cuts.size() ? cuts[next_cut_] - text_bytes_ : rest.size();
      const std::string_view piece = rest.substr(0, room);
      if (!piece.empty()) PushPiece(Marker::kText, piece);
      text_bytes_ += piece.size();
      rest.remove_prefix(piece.size());
      if (rest.empty()) return;
    }
  }

  void Finish(ReplyEnd end) {
    std::vector<DialectEvent> events;
    parser_->Finish(end, &events);
    Record(events);
    reply_.calls.resize(parser_->completed_calls());  // less one that was announced and dropped
  }

  OrderedJson Answer() const {
    OrderedJson answer;
    if (const auto& failure = parser_->failure()) {
      answer["error"] = {{"class", failure->ClassName()},
                         {"message", failure->Message()},
                         {"position", failure->position},
                         {"note", failure->note},
                         {"excerpt", failure->excerpt}};
    } else {
      answer["reasoning"] = reply_.reasoning;
      const bool call_only = reply_.content.empty() && !reply_.calls.empty();
      answer["content"] = call_only ? OrderedJson() : OrderedJson(reply_.content);
      answer["tool_calls"] = OrderedJson::array();
      for (const ToolCall& call : reply_.calls) {
        answer["tool_calls"].push_back({{"name", call.name}, {"arguments", call.arguments}});
      }
      answer["finish_reason"] = FinishReasonName(parser_->finish_reason());
      if (parser_->dropped_open_call()) answer["dropped"] = "unclosed";
    }
    answer["events"] = deltas_;
    return answer;
  }

 private:
  void PushPiece(Marker marker, std::string_view text) {
    std::vector<DialectEvent> events;
    parser_->Push(marker, text, &events);
    Record(events);
  }

  void Record(const std::vector<DialectEvent>& events) {
    AppendEvents(events, &reply_);
    AppendDeltas(events, &deltas_);
  }

  std::unique_ptr<DialectParser> parser_;
  size_t text_bytes_ = 0;
  size_t next_cut_ = 0;
  Reply reply_;
  OrderedJson deltas_ = OrderedJson::array();
};

}  // namespace

OrderedJson ParseRecordedReply(TextFamily family, const Json& request) {
  const JsonReader reader(request, "reply", kBadRequest);
  reader.RequireObject();
  DialectOptions options;
  options.family = family;
  options.start = ReadStart(family, reader);
  options.tools = ReadTools(reader);
  options.stream_arguments = reader.Has("stream_arguments") && reader.At("stream_arguments").Bool();
  const std::vector<size_t> cuts = ReadCuts(reader);
  Replay replay(std::move(options));
  for (const Token& token : ReadItems(family, reader)) replay.Push(token, cuts);
  replay.Finish(ReadEnd(family, reader));
  return replay.Answer();
}

}  // namespace mference
