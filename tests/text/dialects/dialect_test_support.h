// Feeding a parser by hand, for the tests and fuzz targets of the dialects.
#pragma once

#include <string>
#include <vector>

#include "text/dialects/dialect.h"
#include "text/dialects/render.h"

namespace mference {

// Shorthand for the spans of a reply.
inline RenderedSpan Text(std::string text) {
  return {.marker = Marker::kText, .text = std::move(text)};
}

inline RenderedSpan Mark(TextFamily family, Marker marker) {
  for (const MarkerSpelling& known : DialectMarkers(family)) {
    if (known.marker == marker) {
      return {.marker = marker, .text = std::string(known.spelling)};
    }
  }
  return {.marker = Marker::kOther, .text = "<|none|>"};
}

struct ParsedReply {
  Reply reply;
  std::optional<CallFailure> failure;
  FinishReason finish_reason = FinishReason::kStop;
  std::vector<DialectEvent> events;
};

// Pushes `spans`, text in pieces of `piece_bytes` (0: whole), and ends the reply.
inline ParsedReply ParseSpans(const DialectOptions& options, const std::vector<RenderedSpan>& spans,
                              ReplyEnd end = ReplyEnd::kEndOfTurn, size_t piece_bytes = 0) {
  const auto parser = MakeDialectParser(options);
  ParsedReply parsed;
  for (const RenderedSpan& span : spans) {
    if (span.marker != Marker::kText || piece_bytes == 0) {
      parser->Push(span.marker, span.text, &parsed.events);
      continue;
    }
    for (size_t at = 0; at < span.text.size(); at += piece_bytes) {
      const std::string piece = span.text.substr(at, piece_bytes);
      parser->Push(Marker::kText, piece, &parsed.events);
    }
  }
  parser->Finish(end, &parsed.events);
  AppendEvents(parsed.events, &parsed.reply);
  parsed.reply.calls.resize(parser->completed_calls());
  parsed.failure = parser->failure();
  parsed.finish_reason = parser->finish_reason();
  return parsed;
}

// The events with neighbouring deltas of one kind joined.
inline std::vector<DialectEvent> Joined(const std::vector<DialectEvent>& events) {
  std::vector<DialectEvent> joined;
  for (const DialectEvent& event : events) {
    const bool delta = event.kind == DialectEvent::Kind::kReasoning ||
                       event.kind == DialectEvent::Kind::kContent ||
                       event.kind == DialectEvent::Kind::kCallArguments;
    if (delta && !joined.empty() && joined.back().kind == event.kind &&
        joined.back().call == event.call) {
      joined.back().text += event.text;
    } else {
      joined.push_back(event);
    }
  }
  return joined;
}

}  // namespace mference
