#include "text/tokenizer/pre_tokenizer.h"

#include <utility>

namespace mference {
namespace {

bool FindLiteral(const std::string& literal, std::string_view text, size_t from,
                 SplitPattern::Range* match) {
  const size_t at = text.find(literal, from);
  if (at == std::string_view::npos) return false;
  *match = {at, at + literal.size()};
  return true;
}

bool FindNext(const Split& split, std::string_view text, size_t from, MatchScratch* scratch,
              SplitPattern::Range* match) {
  if (from == text.size()) return false;
  if (const auto* pattern = std::get_if<SplitPattern>(&split.pattern)) {
    return pattern->Find(text, from, scratch, match);
  }
  return FindLiteral(std::get<std::string>(split.pattern), text, from, match);
}

// Turns the alternation of matches and text between them into pieces.
class PieceMaker {
 public:
  PieceMaker(const Split& split, std::string_view text, FunctionRef<void(std::string_view)> sink)
      : split_(split), text_(text), sink_(sink) {}

  void Add(size_t begin, size_t end, bool is_match) {
    if (begin == end) return;
    is_match = is_match != split_.invert;
    switch (split_.behavior) {
      case SplitBehavior::kIsolated:
        sink_(text_.substr(begin, end - begin));
        break;
      case SplitBehavior::kRemoved:
        if (!is_match) sink_(text_.substr(begin, end - begin));
        break;
      case SplitBehavior::kMergedWithPrevious:
        // Of several matches in a row, only the first belongs to the piece before.
        if (!is_match || previous_is_match_) Finish(), held_begin_ = begin;
        held_end_ = end;
        previous_is_match_ = is_match;
        break;
    }
  }

  void Finish() {
    if (held_end_ > held_begin_) sink_(text_.substr(held_begin_, held_end_ - held_begin_));
    held_begin_ = held_end_;
  }

 private:
  const Split& split_;
  std::string_view text_;
  FunctionRef<void(std::string_view)> sink_;
  size_t held_begin_ = 0;  // kMergedWithPrevious: a piece that may still grow
  size_t held_end_ = 0;
  bool previous_is_match_ = false;
};

}  // namespace

void PreTokenizer::RunFrom(size_t index, std::string_view text, MatchScratch* scratch,
                           FunctionRef<void(std::string_view)> sink) const {
  if (text.empty()) return;
  if (index == splits_.size()) {
    sink(text);
    return;
  }
  const Split& split = splits_[index];
  auto next = [&](std::string_view piece) { RunFrom(index + 1, piece, scratch, sink); };
  const bool last = index + 1 == splits_.size();
  PieceMaker pieces(split, text, last ? sink : FunctionRef<void(std::string_view)>(next));
  size_t from = 0;
  SplitPattern::Range match = {};
  while (FindNext(split, text, from, scratch, &match)) {
    pieces.Add(from, match.begin, /*is_match=*/false);
    pieces.Add(match.begin, match.end, /*is_match=*/true);
    from = match.end;
  }
  pieces.Add(from, text.size(), /*is_match=*/false);
  pieces.Finish();
}

size_t PreTokenizer::memory_bytes() const {
  size_t bytes = 0;
  for (const Split& split : splits_) {
    if (const auto* pattern = std::get_if<SplitPattern>(&split.pattern)) {
      bytes += pattern->memory_bytes();
    }
  }
  return bytes;
}

}  // namespace mference
