#include "constrain/constraint_testing.h"

#include <gtest/gtest.h>

#include <bit>

namespace mference::testing_support {

Tokenizer TestTokenizer(const std::string& name) {
  return Tokenizer::Load(
      std::filesystem::path(MFERENCE_TEST_DATA) / "tokenizers" / name / "tokenizer.json",
      IdConflicts::kFollowReference);
}

std::vector<std::string> MixedVocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 0xF5; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* token :
       {"{\"",        "\":",   "\": \"",   "\",",      "\",\"",      "\"}",      "\"]",
        "}}",         "],",    "[[",       "{}",       "[]",         "true",     "false",
        "null",       "tru",   "\n  ",     "\n    ",   "  ",         " \"",      ", \"",
        "},{\"",      ":{\"",  ":[",       "name",     "value",      "\"name",   "id\":",
        "12",         "00",    "3.5",      "-1",       "e5",         "the ",     "hello",
        "ü",          "Größe", "日本",     "\xE6\x97", "\xA5x",      "\xF0\x9F", "\x98\x80",
        "\\n",        "\\\"",  "\\u00",    "\\u",      "41",         "D83D",     "\\\\",
        "\"a\":1,\"", "a\":",  "1,\"a\":", "\"b",      "ab",         "abc",      "xyz ",
        "\":\"\",\"", "2024",  "null,",    "</",       "parameter>", "\n</",     "\n</parameter>",
        ">\n",        "call:", "thought",  "0,",       "1]",         "9}",       "\t",
        "\n\t"}) {
    tokens.emplace_back(token);
  }
  // Some tokens have equal bytes, as with byte fallback.
  tokens.emplace_back("a");
  tokens.emplace_back("name");
  return tokens;
}

bool Accepts(const Grammar& grammar, std::string_view text) {
  Matcher matcher(grammar);
  Configurations now;
  Configurations next;
  matcher.Start(&now);
  for (const char byte : text) {
    matcher.Step(now, static_cast<uint8_t>(byte), &next);
    std::swap(now, next);
  }
  return matcher.MayEnd(now);
}

std::shared_ptr<const Grammar> SchemaGrammar(const OrderedJson& schema) {
  ReplyGrammarOptions options;
  options.schema = schema;
  return CompileReplyGrammar(options);
}

Outcome RandomReply(GrammarConstraint* constraint, const TokenTrie& trie, TokenId end_id,
                    int64_t max_tokens, Dice* dice) {
  Outcome outcome;
  for (int64_t remaining = max_tokens; remaining > 0; --remaining) {
    const std::span<const uint64_t> mask = constraint->Allowed(remaining);
    size_t count = 0;
    for (const uint64_t word : mask) count += static_cast<size_t>(std::popcount(word));
    if (count == 0) {
      ADD_FAILURE() << "no token is allowed after " << outcome.text;
      return outcome;
    }
    size_t choice = dice->Below(count);
    TokenId id = 0;
    for (size_t w = 0; w < mask.size(); ++w) {
      const auto here = static_cast<size_t>(std::popcount(mask[w]));
      if (choice >= here) {
        choice -= here;
        continue;
      }
      uint64_t word = mask[w];
      for (; choice > 0; --choice) word &= word - 1;
      id = static_cast<TokenId>(w * 64 + static_cast<size_t>(std::countr_zero(word)));
      break;
    }
    if (id == end_id) {
      EXPECT_TRUE(constraint->may_end());
      outcome.finished = true;
      return outcome;
    }
    outcome.tokens.push_back(id);
    outcome.text += trie.TokenBytes(id);
    constraint->Accept(id);
    if (constraint->complete()) {
      outcome.finished = true;
      return outcome;
    }
  }
  return outcome;
}

}  // namespace mference::testing_support
