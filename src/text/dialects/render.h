// Assistant turns written back in a family's native syntax: the inverse of the dialect parsers.
//
// Used where no chat template does it (forced call prefixes) and to prove the parsers by round
// trip. The result is a list of spans, so that a caller encodes markers as special tokens and
// everything else, model text and user data included, as plain text.
//
// What a dialect cannot represent is refused, never written differently:
//   all      a tool's name that is not one; arguments that are not a JSON object
//   Qwen     keys that are empty or hold a newline, '<' or '>'; values that hold "</parameter>" or
//            "</function>"; content of which a line begins with "<function="
//   DSML     (no escapes) content, names, keys or values that hold "DSML｜"; keys with '"' or a
//            newline
// White space at the end of content before a call, and for Qwen and Maple newlines at its beginning
// after reasoning, are lost when read back. Types are not refused: Qwen's values carry none, so a
// string that looks like JSON needs a declared type to come back as a string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/dialects/dialect.h"

namespace mference {

struct RenderedSpan {
  Marker marker = Marker::kText;
  std::string text;  // a marker's spelling, or ordinary text

  bool operator==(const RenderedSpan&) const = default;
};

// The reply as the model would have written it from `start`, end token left out. `reply.calls`
// hold JSON object texts, numbers of any length; their key order is kept. Throws
// `Error(kMessagesInvalid)`, naming what cannot be represented.
std::vector<RenderedSpan> RenderReply(TextFamily family, const Reply& reply,
                                      ReplyStart start = ReplyStart::kContent);

// The DSML block of `calls` (at least one), without the blank line that precedes it.
std::string RenderDsmlBlock(const std::vector<ToolCall>& calls);

// The opening of a call as a forced prefix: for an empty `name` as far as any call has it, else up
// to the place where the arguments begin.
std::vector<RenderedSpan> RenderCallPrefix(TextFamily family, std::string_view name);

}  // namespace mference
