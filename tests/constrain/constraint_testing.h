// A model that knows nothing, and vocabularies to try it with.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "constrain/grammar_constraint.h"
#include "constrain/reply_grammar.h"
#include "constrain/schema_corpus.h"
#include "text/tokenizer/tokenizer.h"

namespace mference::testing_support {

// tests/data/tokenizers/NAME.
Tokenizer TestTokenizer(const std::string& name);

// Every byte, and a few hundred longer tokens of the kind that real vocabularies hold: pieces of
// JSON, words, digits, white space, whole and cut characters.
std::vector<std::string> MixedVocabulary();

// Whether the grammar takes the whole text.
bool Accepts(const Grammar& grammar, std::string_view text);

std::shared_ptr<const Grammar> SchemaGrammar(const OrderedJson& schema);

struct Outcome {
  bool finished = false;
  std::string text;  // bytes of the tokens; markers as their marker bytes
  std::vector<TokenId> tokens;
};
// Draws allowed tokens, each as likely as any other, at most `max_tokens`; `end_id` ends the reply.
// Every token must be in the mask, every mask must hold something.
Outcome RandomReply(GrammarConstraint* constraint, const TokenTrie& trie, TokenId end_id,
                    int64_t max_tokens, Dice* dice);

}  // namespace mference::testing_support
