#include "constrain/reasoning_limit.h"

#include <algorithm>

namespace mference {
namespace {

uint64_t BitOf(TokenId id) { return uint64_t{1} << id % 64; }
size_t WordOf(TokenId id) { return static_cast<size_t>(id) / 64; }

}  // namespace

ReasoningLimit::ReasoningLimit(ReasoningTokens tokens, int64_t max_tokens, bool in_reasoning,
                               int32_t id_limit, std::unique_ptr<TokenConstraint> form)
    : tokens_(tokens),
      left_(max_tokens),
      in_reasoning_(in_reasoning),
      form_(std::move(form)),
      only_close_((static_cast<size_t>(id_limit) + 63) / 64),
      without_open_(only_close_.size(), ~uint64_t{0}) {
  only_close_.at(WordOf(tokens_.close)) |= BitOf(tokens_.close);
  without_open_.at(WordOf(tokens_.open)) &= ~BitOf(tokens_.open);
}

void ReasoningLimit::Observe(bool in_reasoning) {
  if (in_reasoning_ && in_reasoning) --left_;
  in_reasoning_ = in_reasoning;
}

std::span<const uint64_t> ReasoningLimit::Allowed(int64_t remaining_tokens) {
  if (left_ > 0) {
    if (form_ != nullptr) return form_->Allowed(remaining_tokens);
    return {};
  }
  if (in_reasoning_) {
    // The nearest end of a form leads out of the reasoning, after the character that is begun.
    return form_ != nullptr ? form_->Allowed(1) : only_close_;
  }
  if (form_ == nullptr) return without_open_;
  const std::span<const uint64_t> allowed = form_->Allowed(remaining_tokens);
  std::copy_n(allowed.begin(), std::min(allowed.size(), without_open_.size()),
              without_open_.begin());
  without_open_[WordOf(tokens_.open)] &= ~BitOf(tokens_.open);
  return without_open_;
}

void ReasoningLimit::Accept(int32_t id) {
  if (form_ != nullptr) form_->Accept(id);
}

}  // namespace mference
