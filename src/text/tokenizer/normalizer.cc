#include "text/tokenizer/normalizer.h"

#include "text/tokenizer/nfc.h"

namespace mference {
namespace {

void Replace(const ReplaceCharacter& step, std::string_view text, std::string* out) {
  size_t from = 0;
  for (size_t at = text.find(step.from); at != std::string_view::npos;
       at = text.find(step.from, from)) {
    out->append(text, from, at - from);
    out->append(step.to);
    from = at + step.from.size();
  }
  out->append(text, from);
}

}  // namespace

std::string_view Normalizer::Apply(std::string_view text, std::string* buffer) const {
  std::string_view current = text;
  for (const Step& step : steps_) {
    std::string next;
    if (const auto* replace = std::get_if<ReplaceCharacter>(&step)) {
      if (current.find(replace->from) == std::string_view::npos) continue;
      if (current.data() != buffer->data()) std::swap(next, *buffer);  // reuse its capacity
      next.clear();
      Replace(*replace, current, &next);
    } else {
      if (IsNfcQuick(current)) continue;
      AppendNfc(current, &next);
    }
    *buffer = std::move(next);
    current = *buffer;
  }
  return current;
}

}  // namespace mference
