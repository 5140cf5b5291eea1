// `mference parse --jsonl`: one recorded reply in, what a client would get out.
#pragma once

#include "base/json.h"
#include "text/dialects/dialect.h"

namespace mference {

// `request`: {"tools": [{"name", "parameters"}], "start": "content" | "reasoning" |
// "message_model", "items": [...], "end": "length" or the token that ended the reply,
// "split": [byte positions], "stream_arguments": bool}. An item is a string (ordinary text),
// {"marker": M} (the special token spelled M) or {"repeat": S, "times": N} (text). Cut positions
// count bytes of the ordinary text, markers left out; the text is cut there and at the items'
// borders, as a token stream would cut it. Only `items` is required.
//
// The answer is {"reasoning", "content", "tool_calls": [{"name", "arguments"}], "finish_reason",
// "events"}, with "dropped": "unclosed" where the token limit cut a call off; or, for a malformed
// reply, {"error": {"class", "message", "position", "note", "excerpt"}, "events"}. An event is a
// delta as a streaming client gets it: {"reasoning_content"}, {"content"} or {"tool_calls":
// [{"index", "type", "function": {"name", "arguments"}}]}.
//
// A request that is not of this shape, or whose text exceeds 64 MiB, throws
// `Error(kInvalidArgument)`.
OrderedJson ParseRecordedReply(TextFamily family, const Json& request);

}  // namespace mference
