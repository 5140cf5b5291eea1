// The vocabulary as a trie of token bytes: which tokens a grammar allows is found by walking it.
//
// Built once per tokenizer (some 0.1 s and 9 MiB for 262,144 tokens) and shared by all replies. A
// token counts with the bytes it stands for, so byte-fallback tokens and tokens that end inside a
// character are tokens like any other. Control tokens have no bytes and are left out, but for the
// dialect's markers, each of which has its marker byte (grammar.h).
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/text_masks.h"
#include "text/framing/family.h"
#include "text/tokenizer/tokenizer.h"

namespace mference {

// Immutable but for a cache with a lock of its own; safe to use from several threads.
class TokenTrie {
 public:
  using Node = uint32_t;

  TokenTrie(const Tokenizer& tokenizer, TextFamily family);
  // For tests: token i is `tokens[i]`; empty ones cannot be generated.
  explicit TokenTrie(std::span<const std::string> tokens);

  TextFamily family() const { return family_; }
  TokenId id_limit() const { return id_limit_; }
  size_t mask_words() const { return (static_cast<size_t>(id_limit_) + 63) / 64; }

  // Nodes are numbered depth first, each one for a byte after its parent's. The children of a node
  // are node + 1, the end of that one, and so on up to the node's own end; those of the root begin
  // at 0 and end at `size`.
  Node size() const { return static_cast<Node>(bytes_.size()); }
  uint8_t byte(Node node) const { return bytes_[node]; }
  Node end(Node node) const { return ends_[node]; }
  // The tokens whose bytes end at the node.
  std::span<const TokenId> tokens(Node node) const {
    return std::span(tokens_).subspan(first_token_[node],
                                      first_token_[node + 1] - first_token_[node]);
  }
  // Empty for tokens that cannot be generated.
  std::string_view TokenBytes(TokenId id) const {
    if (id < 0 || id >= id_limit_) return {};
    const size_t begin = text_begin_[static_cast<size_t>(id)];
    return std::string_view(text_).substr(begin, text_begin_[static_cast<size_t>(id) + 1] - begin);
  }
  // Whether a token of this one byte exists. A grammar's shortest endings count on it.
  bool HasByte(uint8_t byte) const { return single_bytes_[byte]; }

  // Masks for the texts that every grammar shares.
  TextMaskCache& shared_masks() const { return *shared_masks_; }

  size_t memory_bytes() const;

 private:
  void Build();

  TextFamily family_ = TextFamily::kGemma4;
  TokenId id_limit_ = 0;
  std::string text_;
  std::vector<uint32_t> text_begin_;   // [id_limit + 1]
  std::vector<uint8_t> bytes_;         // [nodes]
  std::vector<Node> ends_;             // [nodes]
  std::vector<uint32_t> first_token_;  // [nodes + 1]
  std::vector<TokenId> tokens_;
  std::bitset<256> single_bytes_;
  std::unique_ptr<TextMaskCache> shared_masks_;
};

}  // namespace mference
