// Token masks for the inside of texts: strings take most of a reply's tokens and allow most of the
// vocabulary, so what stays inside one is found once per state of its automaton and kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "constrain/dfa.h"

namespace mference {

class TokenTrie;

// For one state of one automaton.
struct TextMask {
  std::vector<uint64_t> inside;  // tokens all of whose bytes the automaton takes

  // Where the vocabulary leaves the text after one byte or more: the node whose byte is the exit,
  // the state in front of it, and the bytes and rounds up to there.
  struct Exit {
    uint32_t node = 0;
    Dfa::State state = 0;
    uint32_t rounds = 0;
    uint32_t prefix_begin = 0;
    uint32_t prefix_size = 0;
  };
  std::vector<Exit> exits;
  std::string prefixes;

  // The tokens of `inside` by rounds begun, most first; those of at most r rounds begin at
  // at_most[r]. Empty unless rounds are counted.
  std::vector<int32_t> by_rounds;
  std::vector<uint32_t> at_most;

  size_t memory_bytes() const;
};

// Thread-safe. The masks it gives out live as long as the cache.
class TextMaskCache {
 public:
  // `exit`: a byte, or GrammarState::kNoExit.
  const TextMask& Get(const TokenTrie& trie, const Dfa& automaton, Dfa::State state, uint16_t exit,
                      bool counted);
  // The tokens that stay inside a text and are followed by at most `slack` more bytes to its end:
  // near the end of a reply, where every slack comes once.
  const std::vector<uint64_t>& Within(const TokenTrie& trie, const Dfa& automaton, Dfa::State state,
                                      uint32_t slack);
  size_t memory_bytes() const;
  size_t size() const;

 private:
  using Key = std::tuple<const Dfa*, Dfa::State, uint16_t, bool>;
  using WithinKey = std::tuple<const Dfa*, Dfa::State, uint32_t>;
  mutable std::mutex mutex_;
  std::map<Key, std::unique_ptr<const TextMask>> masks_;
  std::map<WithinKey, std::vector<uint64_t>> within_;
};

// The tokens that stay inside a text and are followed by at most `limit` more bytes to its end:
// the distance of the automaton's state, and one byte for each round of `missing` not yet begun. At
// most `rounds` rounds may begin. Sets their bits in `words`.
void AddTokensWithin(const TokenTrie& trie, const Dfa& automaton, Dfa::State state,
                     uint32_t missing, uint32_t rounds, uint32_t limit, uint64_t* words);

}  // namespace mference
