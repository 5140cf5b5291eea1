// From what a request demands of its reply's form to the constraint that enforces it.
#pragma once

#include <memory>

#include "constrain/token_constraint.h"
#include "constrain/token_trie.h"
#include "engine/text_layer.h"
#include "server/api/chat_request.h"

namespace mference::server {

// For one model. Not thread-safe; the text layer must outlive it.
class ConstraintMaker {
 public:
  explicit ConstraintMaker(const TextLayer& text) : text_(text) {}

  // Null where the request demands nothing: no response_format, no tool_choice that forces a call.
  // Throws ApiError for schemas that cannot be enforced. The first call with a demand takes the
  // time to arrange the vocabulary.
  std::unique_ptr<TokenConstraint> Make(const ChatRequest& request, ReplyStart start);

 private:
  const TextLayer& text_;
  std::shared_ptr<const TokenTrie> trie_;
};

}  // namespace mference::server
