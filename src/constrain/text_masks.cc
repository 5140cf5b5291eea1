#include "constrain/text_masks.h"

#include <algorithm>
#include <utility>

#include "constrain/token_trie.h"

namespace mference {
namespace {

void SetBits(std::span<const TokenId> ids, uint64_t* words) {
  for (const TokenId id : ids) words[id / 64] |= uint64_t{1} << id % 64;
}

class TextMaskBuilder {
 public:
  TextMaskBuilder(const TokenTrie& trie, const Dfa& automaton, uint16_t exit, bool counted)
      : trie_(trie), automaton_(automaton), exit_(exit), counted_(counted) {
    mask_->inside.resize(trie.mask_words());
  }

  std::unique_ptr<const TextMask> Build(Dfa::State state) {
    Walk(0, trie_.size(), state, 0);
    SortByRounds();
    return std::move(mask_);
  }

 private:
  void Walk(TokenTrie::Node begin, TokenTrie::Node end, Dfa::State state, uint32_t rounds) {
    const bool boundary = automaton_.accepting(state);
    for (TokenTrie::Node node = begin; node < end; node = trie_.end(node)) {
      const uint8_t byte = trie_.byte(node);
      if (boundary && byte == exit_ && !prefix_.empty()) AddExit(node, state, rounds);
      const Dfa::State next = automaton_.Next(state, byte);
      if (next == Dfa::kDead) continue;
      const uint32_t begun = rounds + (boundary ? 1 : 0);
      const std::span<const TokenId> tokens = trie_.tokens(node);
      SetBits(tokens, mask_->inside.data());
      if (counted_) {
        for (const TokenId id : tokens) by_rounds_.emplace_back(begun, id);
      }
      prefix_ += static_cast<char>(byte);
      Walk(node + 1, trie_.end(node), next, begun);
      prefix_.pop_back();
    }
  }

  void AddExit(TokenTrie::Node node, Dfa::State state, uint32_t rounds) {
    mask_->exits.push_back({.node = node,
                            .state = state,
                            .rounds = rounds,
                            .prefix_begin = static_cast<uint32_t>(mask_->prefixes.size()),
                            .prefix_size = static_cast<uint32_t>(prefix_.size())});
    mask_->prefixes += prefix_;
  }

  void SortByRounds() {
    if (by_rounds_.empty()) return;
    std::stable_sort(by_rounds_.begin(), by_rounds_.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    mask_->at_most.assign(by_rounds_.front().first + 1, 0);
    for (const auto& [rounds, id] : by_rounds_) mask_->by_rounds.push_back(id);
    // Those of at most r rounds begin after all that have more.
    size_t at = 0;
    for (size_t r = mask_->at_most.size(); r-- > 0;) {
      while (at < by_rounds_.size() && by_rounds_[at].first > r) ++at;
      mask_->at_most[r] = static_cast<uint32_t>(at);
    }
  }

  const TokenTrie& trie_;
  const Dfa& automaton_;
  const uint16_t exit_;
  const bool counted_;
  std::unique_ptr<TextMask> mask_ = std::make_unique<TextMask>();
  std::string prefix_;
  std::vector<std::pair<uint32_t, TokenId>> by_rounds_;
};

}  // namespace

namespace {

struct Within {
  const TokenTrie& trie;
  const Dfa& automaton;
  uint32_t limit;
  uint64_t* words;

  void Walk(TokenTrie::Node begin, TokenTrie::Node end, Dfa::State state, uint32_t missing,
            uint32_t rounds) const {
    const bool boundary = automaton.accepting(state);
    if (boundary && rounds == 0) return;
    for (TokenTrie::Node node = begin; node < end; node = trie.end(node)) {
      const Dfa::State next = automaton.Next(state, trie.byte(node));
      if (next == Dfa::kDead) continue;
      const uint32_t still_missing = missing - (boundary && missing > 0 ? 1 : 0);
      if (automaton.distance(next) + still_missing <= limit) SetBits(trie.tokens(node), words);
      Walk(node + 1, trie.end(node), next, still_missing, rounds - (boundary ? 1 : 0));
    }
  }
};

}  // namespace

void AddTokensWithin(const TokenTrie& trie, const Dfa& automaton, Dfa::State state,
                     uint32_t missing, uint32_t rounds, uint32_t limit, uint64_t* words) {
  Within{.trie = trie, .automaton = automaton, .limit = limit, .words = words}.Walk(
      0, trie.size(), state, missing, rounds);
}

size_t TextMask::memory_bytes() const {
  return sizeof(*this) + inside.size() * sizeof(uint64_t) + exits.size() * sizeof(Exit) +
         prefixes.size() + (by_rounds.size() + at_most.size()) * sizeof(uint32_t);
}

const TextMask& TextMaskCache::Get(const TokenTrie& trie, const Dfa& automaton, Dfa::State state,
                                   uint16_t exit, bool counted) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const TextMask>& mask = masks_[{&automaton, state, exit, counted}];
  if (mask == nullptr) mask = TextMaskBuilder(trie, automaton, exit, counted).Build(state);
  return *mask;
}

const std::vector<uint64_t>& TextMaskCache::Within(const TokenTrie& trie, const Dfa& automaton,
                                                   Dfa::State state, uint32_t slack) {
  const std::lock_guard lock(mutex_);
  std::vector<uint64_t>& words = within_[{&automaton, state, slack}];
  if (words.empty()) {
    words.resize(trie.mask_words());
    AddTokensWithin(trie, automaton, state, /*missing=*/0, Regex::kUnbounded, slack, words.data());
  }
  return words;
}

size_t TextMaskCache::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& [key, words] : within_) bytes += words.size() * sizeof(uint64_t);
  for (const auto& [key, mask] : masks_) bytes += mask->memory_bytes();
  return bytes;
}

size_t TextMaskCache::size() const {
  const std::lock_guard lock(mutex_);
  return masks_.size() + within_.size();
}

}  // namespace mference
