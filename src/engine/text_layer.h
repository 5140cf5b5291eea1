// A model's text: tokenizer, framing, and the tokens that begin and end things.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "constrain/grammar_constraint.h"
#include "constrain/reasoning_limit.h"
#include "engine/generator.h"
#include "format/arch_config.h"
#include "format/model_directory.h"
#include "text/dialects/dialect.h"
#include "text/framing/prompt_renderer.h"
#include "text/tokenizer/tokenizer.h"

namespace mference {

TextFamily TextFamilyOf(Family family);

// How a family's tokenizers spell the token that prompts begin with; empty: there is none.
std::string_view BosSpelling(TextFamily family);

// The installed chat template; nullopt where the model has none.
std::optional<std::string> ReadChatTemplate(const ModelDirectory& directory);

// Sampling defaults from generation_config.json over the program's own.
SamplingParams SamplingDefaults(const JsonReader& generation_config);

// Immutable; safe to use from several threads.
class TextLayer {
 public:
  // Reads the sidecars of an opened directory. Throws kTokenizerInvalid, kTemplateInvalid and what
  // reading files throws.
  static TextLayer Load(const ModelDirectory& directory, const JsonReader& config);

  TextFamily family() const { return family_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const PromptRenderer& renderer() const { return renderer_; }
  const StopTokens& stops() const { return stops_; }
  const SamplingParams& sampling_defaults() const { return sampling_defaults_; }
  // The beginning-of-sequence id of families that have one.
  std::optional<TokenId> bos() const { return bos_; }

  // Ids of a raw prompt: `text` with special tokens recognised, after the BOS where there is one
  // and the text does not spell it already.
  std::vector<TokenId> EncodeRaw(std::string_view text) const;
  // Ids of a framed prompt; control tokens only where the framing wrote them.
  std::vector<TokenId> EncodePrompt(const Prompt& prompt) const;

  // Tokens that begin a turn: the markers of roles. Empty where the vocabulary has none.
  const std::vector<TokenId>& turn_starts() const { return turn_starts_; }

  // The vocabulary as constrained replies need it. Built by the first call, which takes some 0.1 s
  // for a large vocabulary, and kept: 9 MiB, and some more for the masks of strings.
  std::shared_ptr<const TokenTrie> token_trie() const;
  // A constraint for one reply. The tokens that end it are those of `stops` that end a sequence or
  // a turn. Throws kTokenizerInvalid when the vocabulary lacks what the grammar needs.
  std::unique_ptr<GrammarConstraint> MakeConstraint(std::shared_ptr<const Grammar> grammar) const;

  // The tokens that open and close reasoning; nullopt where the vocabulary lacks one.
  std::optional<ReasoningTokens> reasoning_tokens() const;

  // The role of a token in the family's tool-call dialect.
  Marker MarkerOf(TokenId id) const;

 private:
  TextLayer(TextFamily family, Tokenizer tokenizer, PromptRenderer renderer)
      : family_(family), tokenizer_(std::move(tokenizer)), renderer_(std::move(renderer)) {}

  TextFamily family_;
  Tokenizer tokenizer_;
  PromptRenderer renderer_;
  StopTokens stops_;
  SamplingParams sampling_defaults_;
  std::optional<TokenId> bos_;
  std::vector<TokenId> turn_starts_;
  std::vector<std::pair<TokenId, Marker>> markers_;
  struct LazyTrie {
    std::once_flag once;
    std::shared_ptr<const TokenTrie> trie;
  };
  std::unique_ptr<LazyTrie> trie_ = std::make_unique<LazyTrie>();
};

}  // namespace mference
