// A grammar as the generation loop's constraint: tokens in, masks out.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "constrain/grammar.h"
#include "constrain/matcher.h"
#include "constrain/token_constraint.h"
#include "constrain/token_trie.h"

namespace mference {

// One reply. Not thread-safe.
//
// A mask costs a copy where the state has been seen, a walk over the few tokens that leave a text
// where the text has been seen, and a walk over the vocabulary otherwise (docs/constrained-
// decoding.md has the figures). At most kMaxMasks masks and the texts of the grammar's own patterns
// are kept per reply.
class GrammarConstraint final : public TokenConstraint {
 public:
  static constexpr size_t kMaxMasks = 32;
  static constexpr size_t kMaxTextMasks = 128;

  // `end_ids` end a reply where the grammar lets it end. Throws kTokenizerInvalid when the
  // tokenizer lacks a byte or a control token that the grammar needs.
  GrammarConstraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
                    std::vector<TokenId> end_ids);

  std::span<const uint64_t> Allowed(int64_t remaining_tokens) override;
  void Accept(int32_t id) override;
  bool may_end() const override { return matcher_.MayEnd(now_); }
  bool complete() const override { return now_.size() == 1 && may_end(); }

  // Tokens that surely suffice to end from here.
  int64_t shortest_tokens() const { return matcher_.Shortest(now_); }
  // How the masks so far came about.
  struct Counters {
    int64_t cached = 0;
    int64_t computed = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  struct Mask {
    Configurations set;
    std::vector<uint64_t> words;
    uint32_t need = 0;  // the most bytes any of its tokens leaves to write
    uint64_t last_use = 0;
  };

  Mask& Find(uint32_t limit, bool* valid);
  void Compute(uint32_t limit, Mask* mask);
  bool IsWideText(const Configuration& at) const;
  void AddText(const Configuration& at, uint32_t limit, Mask* mask);
  void AddInside(const TextMask& text, uint32_t rounds, Mask* mask);
  static void AddAll(const std::vector<uint64_t>& words, Mask* mask);
  void AddExits(const TextMask& text, const Configuration& at, uint32_t limit, Mask* mask);
  void Walk(const Configurations& set, TokenTrie::Node begin, TokenTrie::Node end, size_t depth,
            uint32_t limit, Mask* mask);
  void AddTokens(TokenTrie::Node node, const Configurations& after, uint32_t limit,
                 Mask* mask) const;
  TextMaskCache& CacheFor(const Dfa& automaton);

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<TokenId> end_ids_;
  Matcher matcher_;
  Configurations now_;
  Configurations next_;
  std::vector<Mask> masks_;
  uint64_t uses_ = 0;
  std::unique_ptr<TextMaskCache> text_masks_;  // of the grammar's own automata
  Counters counters_;

  // Scratch.
  Configurations plain_;
  Configurations left_;
  std::vector<uint64_t> words_;
  std::deque<Configurations> levels_;  // by depth of the walk
};

}  // namespace mference
