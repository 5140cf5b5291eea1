// From a checked request to the tokens, options and limits of its generation.
#pragma once

#include "engine/text_layer.h"
#include "server/api/chat_request.h"
#include "server/api/completion_request.h"
#include "server/generation/job.h"

namespace mference::server {

// Renders and tokenises. Throws ApiError: `context_length_exceeded`, or what the chat template
// refuses. Safe on any thread.
// `history` supplies what the model really said in earlier turns.
PreparedGeneration PrepareChat(const ChatRequest& request, const TextLayer& text,
                               const ServedModel& model, TurnHistory& history);
PreparedGeneration PrepareCompletion(const CompletionRequest& request, const TextLayer& text,
                                     const ServedModel& model);

}  // namespace mference::server
