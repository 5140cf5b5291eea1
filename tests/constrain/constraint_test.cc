// Token masks and whole replies: exact, always closed in time, valid whatever the model does.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "base/utf8.h"
#include "constrain/constraint_testing.h"
#include "constrain/schema_corpus.h"
#include "constrain/schema_validator.h"

namespace mference {
namespace {

using testing_support::Dice;
using testing_support::HasRepeatedKeys;
using testing_support::IsValid;
using testing_support::MixedVocabulary;
using testing_support::Outcome;
using testing_support::RandomReply;
using testing_support::SchemaCorpus;
using testing_support::SchemaGrammar;
using testing_support::TestTokenizer;

OrderedJson Parse(const char* text) { return OrderedJson::parse(text); }

TokenId EndId() { return static_cast<TokenId>(MixedVocabulary().size()); }

// The mixed vocabulary with one more token, without bytes, that ends replies.
std::shared_ptr<const TokenTrie> MixedTrieWithEnd() {
  static const auto trie = [] {
    std::vector<std::string> tokens = MixedVocabulary();
    tokens.emplace_back();
    return std::make_shared<const TokenTrie>(tokens);
  }();
  return trie;
}

struct Expected {
  std::vector<uint64_t> most;   // tokens that lead to an end in time
  std::vector<uint64_t> least;  // without those that would have to close a free key at once: it may
                                // turn out to be taken, so the mask leaves a byte for another one
};

// Which tokens are allowed, found by trying each one.
Expected BruteForce(const Grammar& grammar, const TokenTrie& trie,
                    const std::vector<TokenId>& so_far, int64_t remaining, TokenId end_id) {
  Matcher matcher(grammar);
  Configurations now;
  Configurations next;
  matcher.Start(&now);
  const auto feed = [&](std::string_view bytes) {
    for (const char byte : bytes) {
      matcher.Step(now, static_cast<uint8_t>(byte), &next);
      std::swap(now, next);
    }
  };
  for (const TokenId id : so_far) feed(trie.TokenBytes(id));
  const Configurations before = now;
  const auto limit = static_cast<uint32_t>(
      std::max<int64_t>(remaining - 1, int64_t{matcher.Shortest(before)} - 1));
  Expected expected;
  expected.most.resize(trie.mask_words());
  expected.least.resize(trie.mask_words());
  const auto set = [](TokenId id, std::vector<uint64_t>* mask) {
    (*mask)[id / 64] |= uint64_t{1} << id % 64;
  };
  for (TokenId id = 0; id < trie.id_limit(); ++id) {
    if (id == end_id && matcher.MayEnd(before)) {
      set(id, &expected.most);
      set(id, &expected.least);
    }
    if (trie.TokenBytes(id).empty()) continue;
    now = before;
    feed(trie.TokenBytes(id));
    if (now.empty() || matcher.Shortest(now) > limit) continue;
    set(id, &expected.most);
    const bool in_key = std::any_of(now.begin(), now.end(), [&](const Configuration& at) {
      return grammar.state(at.state).kind == GrammarState::Kind::kKey;
    });
    const bool sure = matcher.Shortest(now) + (in_key ? 1 : 0) <= limit;
    if (sure) set(id, &expected.least);
  }
  return expected;
}

TEST(TokenTrie, HoldsEveryTokenOnce) {
  const auto trie = MixedTrieWithEnd();
  std::vector<int> seen(static_cast<size_t>(trie->id_limit()));
  for (TokenTrie::Node node = 0; node < trie->size(); ++node) {
    EXPECT_GT(trie->end(node), node);
    for (const TokenId id : trie->tokens(node)) {
      ++seen[static_cast<size_t>(id)];
      EXPECT_EQ(static_cast<uint8_t>(trie->TokenBytes(id).back()), trie->byte(node));
    }
  }
  for (TokenId id = 0; id < trie->id_limit(); ++id) {
    EXPECT_EQ(seen[static_cast<size_t>(id)], trie->TokenBytes(id).empty() ? 0 : 1);
  }
}

TEST(TokenTrie, TakesBytesFromEveryKindOfTokenizer) {
  for (const char* name : {"tiny-gemma", "tiny-qwen36", "tiny-deepseek", "tiny-o200k"}) {
    const Tokenizer tokenizer = TestTokenizer(name);
    const TokenTrie trie(tokenizer, TextFamily::kGemma4);
    for (TokenId id = 0; id < tokenizer.id_limit(); ++id) {
      if (tokenizer.IsAdded(id)) continue;
      std::string bytes;
      tokenizer.AppendTokenBytes(id, &bytes);
      const bool utf8_byte = bytes.size() != 1 || (static_cast<uint8_t>(bytes[0]) < 0xF5 &&
                                                   bytes[0] != '\xC0' && bytes[0] != '\xC1');
      if (utf8_byte) {
        EXPECT_EQ(trie.TokenBytes(id), bytes) << name << " " << id;
      }
    }
    for (unsigned byte = 0; byte < 0xF5; ++byte) {
      if (byte != 0xC0 && byte != 0xC1) {
        EXPECT_TRUE(trie.HasByte(static_cast<uint8_t>(byte))) << name << " " << byte;
      }
    }
  }
}

TEST(GrammarConstraint, MasksEqualBruteForceAtEveryStep) {
  const auto trie = MixedTrieWithEnd();
  uint64_t seed = 0;
  for (const OrderedJson& schema : SchemaCorpus()) {
    ++seed;
    if (seed > 32 && seed % 24 != 0) continue;
    const auto grammar = SchemaGrammar(schema);
    GrammarConstraint constraint(grammar, trie, {EndId()});
    Dice dice(seed);
    std::vector<TokenId> so_far;
    // Budgets from ample to none left.
    for (int64_t remaining = 18; remaining > 0 && !constraint.complete(); --remaining) {
      const std::span<const uint64_t> mask = constraint.Allowed(remaining);
      const Expected expected = BruteForce(*grammar, *trie, so_far, remaining, EndId());
      std::vector<TokenId> allowed;
      for (TokenId id = 0; id < trie->id_limit(); ++id) {
        const auto in = [id](std::span<const uint64_t> bits) {
          return (bits[id / 64] >> id % 64 & 1) != 0;
        };
        ASSERT_TRUE(in(mask) ? in(expected.most) : !in(expected.least))
            << "schema " << schema.dump() << ", " << remaining << " tokens remain, token "
            << testing::PrintToString(std::string(trie->TokenBytes(id))) << " is "
            << (in(mask) ? "" : "not ") << "allowed";
        if (in(mask) && id != EndId()) allowed.push_back(id);
      }
      if (allowed.empty()) break;
      so_far.push_back(allowed[dice.Below(allowed.size())]);
      constraint.Accept(so_far.back());
    }
  }
}

struct Tally {
  size_t finished = 0;
  size_t replies = 0;
};

// Lets a model that knows nothing answer every schema.
Tally AnswerAll(const std::shared_ptr<const TokenTrie>& trie, TokenId end_id, int64_t max_tokens) {
  Tally tally;
  uint64_t seed = 100;
  for (const OrderedJson& schema : SchemaCorpus()) {
    GrammarConstraint constraint(SchemaGrammar(schema), trie, {end_id});
    Dice dice(++seed);
    const Outcome outcome = RandomReply(&constraint, *trie, end_id, max_tokens, &dice);
    ++tally.replies;
    if (!outcome.finished) continue;
    ++tally.finished;
    EXPECT_TRUE(IsValidUtf8(outcome.text));
    OrderedJson value;
    try {
      value = OrderedJson::parse(outcome.text);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << "\n" << schema.dump() << "\n" << outcome.text;
      continue;
    }
    EXPECT_TRUE(IsValid(value, schema, schema)) << schema.dump() << "\n" << outcome.text;
    EXPECT_FALSE(HasRepeatedKeys(outcome.text)) << outcome.text;
  }
  return tally;
}

TEST(GrammarConstraint, EveryReplyOfAModelThatKnowsNothingValidates) {
  const Tally tally = AnswerAll(MixedTrieWithEnd(), EndId(), 200);
  EXPECT_EQ(tally.replies, 200u);
  EXPECT_EQ(tally.finished, tally.replies);  // all: the closure is forced
}

TEST(GrammarConstraint, WithRealKindsOfTokenizersToo) {
  const std::tuple<const char*, TextFamily> cases[] = {{"tiny-gemma", TextFamily::kGemma4},
                                                       {"tiny-qwen36", TextFamily::kQwen36},
                                                       {"tiny-o200k", TextFamily::kInkling}};
  for (const auto& [name, family] : cases) {
    const Tokenizer tokenizer = TestTokenizer(name);
    const auto trie = std::make_shared<const TokenTrie>(tokenizer, family);
    TokenId end_id = 0;
    for (const AddedToken& token : tokenizer.added_tokens()) {
      if (token.special && trie->TokenBytes(token.id).empty()) end_id = token.id;
    }
    ASSERT_TRUE(trie->TokenBytes(end_id).empty());
    const Tally tally = AnswerAll(trie, end_id, 120);
    EXPECT_EQ(tally.finished, tally.replies) << name;
  }
}

TEST(GrammarConstraint, ClosesInExactlyTheTokensThereAre) {
  const auto trie = MixedTrieWithEnd();
  const OrderedJson schema = Parse(R"({"type":"object","properties":{
      "s":{"type":"string","minLength":5},"n":{"type":"integer","minimum":1000},
      "a":{"type":"array","items":{"type":"boolean"},"minItems":2}},"required":["s","n","a"]})");
  const auto grammar = SchemaGrammar(schema);
  const int64_t shortest = GrammarConstraint(grammar, trie, {EndId()}).shortest_tokens();
  EXPECT_EQ(shortest,
            static_cast<int64_t>(
                std::string_view(R"({"s":"aaaaa","n":1000,"a":[true,true]})").size() + 1));
  for (int64_t tokens = shortest - 1; tokens < shortest + 40; ++tokens) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      GrammarConstraint constraint(grammar, trie, {EndId()});
      Dice dice(seed);
      const Outcome outcome = RandomReply(&constraint, *trie, EndId(), tokens, &dice);
      ASSERT_TRUE(outcome.finished) << tokens << " tokens: " << outcome.text;
      EXPECT_TRUE(IsValid(OrderedJson::parse(outcome.text), schema, schema));
    }
  }
}

TEST(GrammarConstraint, WithTooFewTokensGoesForTheNearestEnd) {
  GrammarConstraint constraint(
      SchemaGrammar(
          Parse(R"({"type":"object","properties":{"abc":{"type":"string"}},"required":["abc"]})")),
      MixedTrieWithEnd(), {EndId()});
  Dice dice(1);
  const Outcome outcome = RandomReply(&constraint, *MixedTrieWithEnd(), EndId(), 5, &dice);
  EXPECT_FALSE(outcome.finished);
  EXPECT_TRUE(outcome.text.starts_with("{")) << outcome.text;
}

TEST(GrammarConstraint, CharactersMayBeSplitOverTokens) {
  const auto trie = MixedTrieWithEnd();
  const auto id_of = [&](std::string_view bytes) {
    for (TokenId id = 0; id < trie->id_limit(); ++id) {
      if (trie->TokenBytes(id) == bytes) return id;
    }
    return TokenId{-1};
  };
  GrammarConstraint constraint(SchemaGrammar(Parse(R"({"type":"string","maxLength":2})")), trie,
                               {EndId()});
  const auto allowed = [&](std::string_view bytes) {
    const TokenId id = id_of(bytes);
    EXPECT_GE(id, 0);
    return (constraint.Allowed(50)[id / 64] >> id % 64 & 1) != 0;
  };
  constraint.Accept(id_of("\""));
  EXPECT_TRUE(allowed("\xF0\x9F"));
  EXPECT_FALSE(allowed("\x98\x80"));
  EXPECT_FALSE(allowed("abc"));  // three
  constraint.Accept(id_of("\xF0\x9F"));
  EXPECT_TRUE(allowed("\x98\x80"));
  EXPECT_TRUE(allowed("\x98"));
  EXPECT_FALSE(allowed("\""));  // inside a character
  EXPECT_FALSE(allowed("a"));
  constraint.Accept(id_of("\x98\x80"));
  EXPECT_TRUE(allowed("\xE6\x97"));
  EXPECT_FALSE(allowed("ab"));  // one is left
  EXPECT_TRUE(allowed("\""));
  constraint.Accept(id_of("\xE6\x97"));
  EXPECT_FALSE(allowed("\xA5x"));  // the character is the last
  EXPECT_TRUE(allowed("\xA5"));
  constraint.Accept(id_of("\xA5"));
  EXPECT_FALSE(allowed("a"));
  EXPECT_TRUE(allowed("\""));
  constraint.Accept(id_of("\""));
  EXPECT_TRUE(constraint.complete());
}

TEST(GrammarConstraint, EndTokensAreAllowedWhereTheReplyMayEnd) {
  const auto trie = MixedTrieWithEnd();
  GrammarConstraint constraint(SchemaGrammar(Parse(R"({"type":"integer"})")), trie, {EndId()});
  const auto end_allowed = [&](int64_t remaining) {
    return (constraint.Allowed(remaining)[EndId() / 64] >> EndId() % 64 & 1) != 0;
  };
  EXPECT_FALSE(end_allowed(10));
  EXPECT_FALSE(constraint.may_end());
  constraint.Accept('7');
  EXPECT_TRUE(end_allowed(10));
  EXPECT_TRUE(constraint.may_end());
  EXPECT_FALSE(constraint.complete());  // more digits may follow
  // The last token ends the reply properly.
  const auto mask = constraint.Allowed(1);
  EXPECT_TRUE(end_allowed(1));
  int count = 0;
  for (const uint64_t word : mask) count += std::popcount(word);
  EXPECT_EQ(count, 1);
}

TEST(GrammarConstraint, KeepsMasksOfStatesItHasSeen) {
  const auto trie = MixedTrieWithEnd();
  GrammarConstraint constraint(SchemaGrammar(Parse(R"({"type":"string"})")), trie, {EndId()});
  constraint.Accept('"');
  for (int i = 0; i < 50; ++i) {
    constraint.Allowed(1000 - i);
    constraint.Accept('a');
  }
  EXPECT_EQ(constraint.counters().computed, 1);
  EXPECT_EQ(constraint.counters().cached, 49);
}

TEST(GrammarConstraint, RefusesAVocabularyThatCannotWriteEveryByte) {
  std::vector<std::string> tokens = MixedVocabulary();
  tokens['{'] = "";
  const auto trie = std::make_shared<const TokenTrie>(tokens);
  try {
    GrammarConstraint(SchemaGrammar(true), trie, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTokenizerInvalid);
    EXPECT_NE(std::string(error.what()).find("0x7B"), std::string::npos);
  }
}

}  // namespace
}  // namespace mference
