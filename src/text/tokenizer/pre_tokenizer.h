// Cuts a normalised text into the words that are encoded separately.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/function_ref.h"
#include "text/tokenizer/split_pattern.h"

namespace mference {

// What becomes of the matches of a split; the text between matches is always a piece of its own,
// and `invert` swaps the roles of the two.
enum class SplitBehavior {
  kIsolated,            // a piece each
  kRemoved,             // dropped
  kMergedWithPrevious,  // the end of the piece before
};

struct Split {
  std::variant<std::string, SplitPattern> pattern;  // a literal text, or a regular expression
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};

// Splits in order, each within the pieces of the one before. Immutable.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<Split> splits) : splits_(std::move(splits)) {}

  // Calls `sink` with each piece of `text` (valid UTF-8), in order, none empty.
  void Run(std::string_view text, MatchScratch* scratch,
           FunctionRef<void(std::string_view)> sink) const {
    RunFrom(0, text, scratch, sink);
  }

  const std::vector<Split>& splits() const { return splits_; }
  size_t memory_bytes() const;

 private:
  void RunFrom(size_t index, std::string_view text, MatchScratch* scratch,
               FunctionRef<void(std::string_view)> sink) const;

  std::vector<Split> splits_;
};

}  // namespace mference
