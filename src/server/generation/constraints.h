// From what a request demands of its reply's form to the constraint that enforces it.
#pragma once

#include <memory>

#include "constrain/token_constraint.h"
#include "engine/text_layer.h"
#include "server/api/chat_request.h"

namespace mference::server {

// Null where the request demands nothing: no response_format, no tool_choice that forces a call.
// Throws ApiError for schemas that cannot be enforced. The first demand on a text layer takes the
// time to arrange its vocabulary.
std::unique_ptr<TokenConstraint> MakeConstraint(const TextLayer& text, const ChatRequest& request,
                                                ReplyStart start);

}  // namespace mference::server
