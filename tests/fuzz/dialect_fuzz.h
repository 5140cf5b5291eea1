// What every dialect's fuzz target does with its bytes, and what must hold for any reply.
//
// Byte 0 chooses the request (bit 0: tools, bit 1: streamed arguments, bits 2-3: start, bits 4-5:
// end), byte 1 the size of the pieces. Of the rest, 0xF8 to 0xFF are the dialect's markers, in the
// order of `DialectMarkers`, then one without a role; all else is text.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "text/dialects/dialect_test_support.h"
#include "text/dialects/utf8_repair.h"

namespace mference {

inline void Require(bool holds) {
  if (!holds) std::abort();
}

inline DialectOptions FuzzOptions(TextFamily family, uint8_t choice) {
  DialectOptions options;
  options.family = family;
  options.start = static_cast<ReplyStart>((choice >> 2 & 3) % 3);
  options.stream_arguments = (choice & 2) != 0;
  if ((choice & 1) != 0) {
    const Json schema = Json::parse(
        R"({"properties": {"s": {"type": "string"}, "i": {"type": "integer"},
            "u": {"anyOf": [{"type": "string"}, {"type": "object"}]}}})");
    options.tools = {{.name = "f", .parameters = schema}, {.name = "get", .parameters = schema}};
  }
  options.limits.call_bytes = 512;  // small, so that inputs reach it
  return options;
}

inline std::vector<RenderedSpan> FuzzSpans(TextFamily family, std::string_view bytes) {
  constexpr uint8_t kFirstMarker = 0xF8;
  const auto markers = DialectMarkers(family);
  std::vector<RenderedSpan> spans;
  for (const char byte : bytes) {
    const auto value = static_cast<uint8_t>(byte);
    if (value >= kFirstMarker) {
      const size_t index = value - kFirstMarker;
      spans.push_back(index < markers.size() ? Mark(family, markers[index].marker)
                                             : Mark(family, Marker::kOther));
      continue;
    }
    if (spans.empty() || spans.back().marker != Marker::kText) spans.push_back(Text(""));
    spans.back().text += byte;
  }
  return spans;
}

inline void FuzzDialect(TextFamily family, const uint8_t* data, size_t size) {
  if (size < 2) return;
  const DialectOptions options = FuzzOptions(family, data[0]);
  const auto end = static_cast<ReplyEnd>((data[0] >> 4 & 3) % 3);
  const auto spans = FuzzSpans(family, {reinterpret_cast<const char*>(data) + 2, size - 2});

  const ParsedReply whole = ParseSpans(options, spans, end);
  const ParsedReply cut = ParseSpans(options, spans, end, 1 + data[1] % 8);
  Require(Joined(cut.events) == Joined(whole.events));
  Require(cut.failure.has_value() == whole.failure.has_value());
  if (whole.failure) {
    Require(cut.failure->ClassName() == whole.failure->ClassName());
    Require(whole.failure->excerpt.size() <= 160);
  }
  for (const DialectEvent& event : whole.events) {
    Utf8Repair repair;
    Require(repair.Push(event.text) == event.text);
    if (event.kind == DialectEvent::Kind::kCallStarted) {
      Require(event.text == "f" || event.text == "get");
    }
    if (event.kind == DialectEvent::Kind::kCallCompleted) {
      Require(ParseJson(event.text, "arguments", ErrorCode::kInternal).is_object());
    }
  }
  Require(!options.tools.empty() || whole.reply.calls.empty());
}

}  // namespace mference
