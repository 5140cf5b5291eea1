// What is done to a text before it is cut into words: nothing, replacing a character, or Unicode
// form C.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace mference {

struct ReplaceCharacter {
  std::string from;  // one character
  std::string to;    // does not contain it
};

struct ComposeNfc {};

// Steps in order. Idempotent as a whole: normalising a text of which some parts are normalised
// already gives the same result. (One Replace at most, and form C neither makes nor removes a space
// or another character that decomposes to nothing else.)
class Normalizer {
 public:
  using Step = std::variant<ReplaceCharacter, ComposeNfc>;

  Normalizer() = default;
  explicit Normalizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  bool is_identity() const { return steps_.empty(); }

  // Returns `text` (valid UTF-8) itself if nothing changes, else a view of `buffer`, which it
  // fills.
  std::string_view Apply(std::string_view text, std::string* buffer) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace mference
