// What the model really saw and said in earlier turns, so that a conversation can go on from there.
//
// Rendering a history again does not give the tokens that were sampled: templates leave reasoning
// out, write calls in another order, and text splits into tokens differently. A prompt whose
// messages begin with a remembered turn is therefore continued from that turn's own tokens, bridged
// to what is new; only then can its state be reused. The price is known: such a prompt differs from
// a fresh rendering, and a reply may differ with it.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/generator.h"
#include "engine/text_layer.h"
#include "text/framing/conversation.h"
#include "text/framing/prompt_renderer.h"

namespace mference {

// The request side of a turn, rendered.
struct EffectivePrompt {
  std::vector<TokenId> ids;  // what to generate from
  // Ids of the plain rendering. Equal to `ids` where no remembered turn applies.
  std::vector<TokenId> rendered_ids;
  Prompt rendered;
  // How many of `ids` come from a remembered turn, its prompt and reply; 0: none applied.
  int64_t remembered_tokens = 0;
};

// Thread-safe: one thread may prepare prompts while another remembers turns. Bounded; the turns
// used longest ago are forgotten first.
class TurnHistory {
 public:
  static constexpr size_t kMaxTurns = 256;
  static constexpr size_t kMaxTokens = size_t{1} << 20;  // of all turns: 4 MiB

  // Renders `messages` and bridges from the longest remembered turn that they begin with. Turns
  // match by message: role, content, calls by id, name and arguments (key order and the writing of
  // numbers aside), results by call id; reasoning and white space after an assistant's text do not
  // count, and null content equals empty content. Tools and the template's extra variables must be
  // equal, in order. Throws what rendering throws.
  EffectivePrompt Prepare(const TextLayer& text, const std::vector<ChatMessage>& messages,
                          const std::vector<ToolDeclaration>& tools, const PromptOptions& options);

  // Remembers that `reply` (with the ids of its calls as the client got them) came of `prompt`, the
  // ids that were generated from. Turns that ended by a stop string, an end of sequence that is no
  // end of turn, or with nothing sampled are not remembered.
  void Remember(const TextLayer& text, const std::vector<ChatMessage>& messages,
                const std::vector<ToolDeclaration>& tools, const PromptOptions& options,
                std::span<const TokenId> prompt, const GenerationResult& result,
                const ChatMessage& reply);

  void Clear();
  size_t size() const;

 private:
  struct Turn {
    std::string key;           // digest of everything that must be equal
    std::vector<TokenId> ids;  // prompt and reply, without the token that ended the turn
    bool asks_tools = false;   // ended by handing over to its tools rather than by its turn's end
  };

  std::optional<Turn> Find(const std::vector<std::string>& keys, size_t* position);

  mutable std::mutex mutex_;
  std::list<Turn> turns_;  // the most recently used first
  std::unordered_map<std::string, std::list<Turn>::iterator> by_key_;
  size_t tokens_ = 0;
};

}  // namespace mference
