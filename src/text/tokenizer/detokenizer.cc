#include "text/tokenizer/detokenizer.h"

#include "base/utf8.h"

namespace mference {

std::string_view Detokenizer::Push(TokenId id) {
  piece_.clear();
  if (skip_special_ && tokenizer_->IsSpecial(id)) return piece_;
  tokenizer_->AppendTokenBytes(id, &held_);
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Step step = DecodeUtf8(rest);
    if (step.status == Utf8Status::kIncomplete) break;
    piece_ += step.status == Utf8Status::kValid ? rest.substr(0, step.length) : kReplacementUtf8;
    rest.remove_prefix(step.length);
  }
  held_.erase(0, held_.size() - rest.size());
  return piece_;
}

std::string_view Detokenizer::Flush() {
  // What is held is one incomplete sequence, so one maximal subpart.
  piece_ = held_.empty() ? std::string_view() : kReplacementUtf8;
  held_.clear();
  return piece_;
}

}  // namespace mference
