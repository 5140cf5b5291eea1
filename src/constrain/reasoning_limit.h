// Keeps a reply's reasoning to a number of tokens: when they are spent, the marker that closes it
// is all that may come, and none that opens it again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "constrain/token_constraint.h"
#include "text/tokenizer/tokenizer.h"

namespace mference {

// The tokens between which a family's models reason.
struct ReasoningTokens {
  TokenId open = -1;
  TokenId close = -1;
};

// One reply. Markers are not counted.
class ReasoningLimit final : public TokenConstraint {
 public:
  // `form` is what else the reply is kept to, or null. `in_reasoning`: the prompt has opened it.
  ReasoningLimit(ReasoningTokens tokens, int64_t max_tokens, bool in_reasoning, int32_t id_limit,
                 std::unique_ptr<TokenConstraint> form);

  // To be told after every token, before `Accept`: only the reply's dialect knows which of its
  // sections are reasoning.
  void Observe(bool in_reasoning);

  std::span<const uint64_t> Allowed(int64_t remaining_tokens) override;
  void Accept(int32_t id) override;
  bool may_end() const override { return form_ == nullptr || form_->may_end(); }
  bool complete() const override { return form_ != nullptr && form_->complete(); }

 private:
  const ReasoningTokens tokens_;
  int64_t left_;
  bool in_reasoning_;
  const std::unique_ptr<TokenConstraint> form_;
  std::vector<uint64_t> only_close_;
  std::vector<uint64_t> without_open_;
};

}  // namespace mference
