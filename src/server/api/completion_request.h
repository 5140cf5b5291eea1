// POST /v1/completions: the body, checked.
#pragma once

#include <string>
#include <vector>

#include "server/api/generation_fields.h"
#include "text/tokenizer/tokenizer.h"

namespace mference::server {

struct CompletionRequest {
  GenerationFields generation;
  std::string prompt;           // text, or
  std::vector<TokenId> tokens;  // ids
  bool given_as_tokens = false;
};

// Throws ApiError for the first thing that is wrong.
CompletionRequest ParseCompletionRequest(const jinja::Value& body, const ServedModel& model);

}  // namespace mference::server
