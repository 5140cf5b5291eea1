// Invented words and the merges that make them, for synthetic tokenizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace mference {

// Words of a byte-pair encoding, each made of two earlier ones (or single letters). All begin with
// a letter or, as words do in running text, with the mark that stands for a space.
class SynthWords {
 public:
  struct Word {
    std::string text;
    size_t split = 0;  // bytes of the left token of the merge that makes it
  };

  // `count` different words. `mark` is one character.
  SynthWords(std::string mark, size_t count, uint64_t stream);

  const std::vector<Word>& words() const { return words_; }
  // Whether `text` is a letter, the mark or one of the words.
  bool Has(std::string_view text) const;

 private:
  // Adds left + right unless there is such a word; both must be tokens.
  void Add(const std::string& left, const std::string& right);
  bool Full() const { return words_.size() == count_; }
  void AddShortWords();
  void AddLongWords(uint64_t stream);

  const std::string mark_;
  const size_t count_;
  std::vector<Word> words_;  // never reallocated: `known_` refers to their texts
  std::unordered_map<std::string_view, size_t> known_;
};

}  // namespace mference
