#include "text/dialects/dialect.h"

#include <fmt/format.h>

#include <array>

#include "text/dialects/parsers.h"

namespace mference {
namespace {

constexpr std::array kGemma4Markers = {
    MarkerSpelling{Marker::kCallOpen, "<|tool_call>"},
    MarkerSpelling{Marker::kCallClose, "<tool_call|>"},
    MarkerSpelling{Marker::kStringDelimiter, "<|\"|>"},
    MarkerSpelling{Marker::kChannelOpen, "<|channel>"},
    MarkerSpelling{Marker::kChannelClose, "<channel|>"},
    MarkerSpelling{Marker::kToolResponseOpen, "<|tool_response>"},
    MarkerSpelling{Marker::kToolResponseClose, "<tool_response|>"},
};

constexpr std::array kChatMlMarkers = {
    MarkerSpelling{Marker::kThinkOpen, "<think>"},
    MarkerSpelling{Marker::kThinkClose, "</think>"},
    MarkerSpelling{Marker::kCallOpen, "<tool_call>"},
    MarkerSpelling{Marker::kCallClose, "</tool_call>"},
};

constexpr std::array kDeepseekMarkers = {
    MarkerSpelling{Marker::kThinkOpen, "<think>"},
    MarkerSpelling{Marker::kThinkClose, "</think>"},
};

constexpr std::array kInklingMarkers = {
    MarkerSpelling{Marker::kMessageModel, "<|message_model|>"},
    MarkerSpelling{Marker::kContentText, "<|content_text|>"},
    MarkerSpelling{Marker::kContentThinking, "<|content_thinking|>"},
    MarkerSpelling{Marker::kInvokeJson, "<|content_invoke_tool_json|>"},
    MarkerSpelling{Marker::kInvokeText, "<|content_invoke_tool_text|>"},
    MarkerSpelling{Marker::kEndMessage, "<|end_message|>"},
};

}  // namespace

std::span<const MarkerSpelling> DialectMarkers(TextFamily family) {
  switch (family) {
    case TextFamily::kGemma4:
      return kGemma4Markers;
    case TextFamily::kQwen36:
    case TextFamily::kMaple:
      return kChatMlMarkers;
    case TextFamily::kDeepseekV4:
      return kDeepseekMarkers;
    case TextFamily::kInkling:
      return kInklingMarkers;
  }
  Fail(ErrorCode::kInternal, "internal error: a family without a dialect");
}

ReasoningMarkers ReasoningMarkersOf(TextFamily family) {
  switch (family) {
    case TextFamily::kGemma4:
      return {Marker::kChannelOpen, Marker::kChannelClose};
    case TextFamily::kInkling:
      return {Marker::kContentThinking, Marker::kEndMessage};
    case TextFamily::kQwen36:
    case TextFamily::kMaple:
    case TextFamily::kDeepseekV4:
      break;
  }
  return {Marker::kThinkOpen, Marker::kThinkClose};
}

ReplyStart DefaultReplyStart(TextFamily family, bool thinking) {
  switch (family) {
    case TextFamily::kInkling:
      return ReplyStart::kMessageModel;
    case TextFamily::kMaple:  // its prompt always opens a think block
      return ReplyStart::kReasoning;
    case TextFamily::kGemma4:  // the model opens its channel itself
      return ReplyStart::kContent;
    case TextFamily::kQwen36:
    case TextFamily::kDeepseekV4:
      break;
  }
  return thinking ? ReplyStart::kReasoning : ReplyStart::kContent;
}

std::unique_ptr<DialectParser> MakeDialectParser(DialectOptions options) {
  switch (options.family) {
    case TextFamily::kGemma4:
      return MakeGemmaParser(std::move(options));
    case TextFamily::kQwen36:
    case TextFamily::kMaple:
      return MakeChatMlParser(std::move(options));
    case TextFamily::kDeepseekV4:
      return MakeDsmlParser(std::move(options));
    case TextFamily::kInkling:
      return MakeInklingParser(std::move(options));
  }
  Fail(ErrorCode::kInternal, "internal error: a family without a dialect");
}

std::string CallFailure::ClassName() const {
  switch (failure_class) {
    case Class::kUnclosed:
      return "unclosed";
    case Class::kBadSyntax:
      return "bad_syntax";
    case Class::kUnknownTool:
      return "unknown_tool:" + tool;
    case Class::kOversized:
      return "oversized";
    case Class::kTooDeep:
      return "too_deep";
  }
  return "bad_syntax";
}

std::string CallFailure::Message() const {
  return fmt::format("malformed tool call ({}) at byte {} of the reply: {}", ClassName(), position,
                     note);
}

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kToolCalls:
      return "tool_calls";
  }
  return "stop";
}

void AppendEvents(std::span<const DialectEvent> events, Reply* reply) {
  for (const DialectEvent& event : events) {
    switch (event.kind) {
      case DialectEvent::Kind::kReasoning:
        reply->reasoning += event.text;
        break;
      case DialectEvent::Kind::kContent:
        reply->content += event.text;
        break;
      case DialectEvent::Kind::kCallStarted:
        reply->calls.push_back({.name = event.text, .arguments = {}});
        break;
      case DialectEvent::Kind::kCallArguments:
        reply->calls.at(event.call).arguments += event.text;
        break;
      case DialectEvent::Kind::kCallCompleted:
        reply->calls.at(event.call).arguments = event.text;
        break;
    }
  }
}

}  // namespace mference
