// Assistant turns written back in a family's native syntax: the inverse of the dialect parsers.
//
// Used where no chat template does it (the DeepSeek encoder, forced call prefixes) and to prove
// the parsers by round trip. The result is a list of spans, so that a caller encodes markers as
// special tokens and everything else, model text and user data included, as plain text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/dialects/dialect.h"

namespace mference {

struct RenderedSpan {
  Marker marker = Marker::kText;
  std::string text;  // a marker's spelling, or ordinary text
};

// The reply as the model would have written it from `start`, end token left out. `reply.calls`
// hold JSON object texts. Throws `Error(kMessagesInvalid)` naming what cannot be represented: a
// name that is not one, arguments that are not an object, reasoning where the dialect would not
// read it back, or DSML's own delimiters in DSML (it has no escapes).
std::vector<RenderedSpan> RenderReply(TextFamily family, const Reply& reply,
                                      ReplyStart start = ReplyStart::kContent);

// The DSML block of `calls`, without the blank line that precedes it. Arguments keep their order.
std::string RenderDsmlBlock(const std::vector<ToolCall>& calls);

// The opening of a call as a forced prefix: for `name` empty as far as any call has it, else up to
// and including the name, ending where the arguments begin.
std::vector<RenderedSpan> RenderCallPrefix(TextFamily family, std::string_view name);

}  // namespace mference
