#include "synth/vocabulary.h"

#include "synth/random.h"

namespace mference {
namespace {

constexpr std::string_view kLetters = "etaoinshrdlucmfwypvbgkjqxz";
constexpr size_t kMaxLetters = 12;

}  // namespace

SynthWords::SynthWords(std::string mark, size_t count, uint64_t stream)
    : mark_(std::move(mark)), count_(count) {
  words_.reserve(count);
  known_.reserve(count);
  AddShortWords();
  AddLongWords(stream);
}

bool SynthWords::Has(std::string_view text) const {
  return (text.size() == 1 && kLetters.find(text.front()) != std::string_view::npos) ||
         text == mark_ || known_.contains(text);
}

void SynthWords::Add(const std::string& left, const std::string& right) {
  if (Full()) return;
  std::string text = left + right;
  if (known_.contains(text)) return;
  words_.push_back({std::move(text), left.size()});
  known_.emplace(words_.back().text, words_.size() - 1);
}

// Everything of up to three letters, with and without the mark.
void SynthWords::AddShortWords() {
  for (const char a : kLetters) Add(mark_, {a});
  for (const std::string& head : {std::string(), mark_}) {
    for (const char a : kLetters) {
      for (const char b : kLetters) Add(head + a, {b});
    }
  }
  for (const std::string& head : {std::string(), mark_}) {
    for (const char a : kLetters) {
      for (const char b : kLetters) {
        for (const char c : kLetters) Add(head + a + b, {c});
      }
    }
  }
}

// Four letters and more: a short word and up to three letters, or a longer word and three more.
// Few of the draws repeat, whatever the count: there are 26^6 words of six letters alone.
void SynthWords::AddLongWords(uint64_t stream) {
  const auto letters = [](uint64_t random, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i, random /= kLetters.size()) {
      text += kLetters[random % kLetters.size()];
    }
    return text;
  };
  const size_t first_long = words_.size();
  for (uint64_t draw = 0; !Full(); ++draw) {
    const uint64_t random = RandomWord(stream, 2 * draw);
    const uint64_t choice = RandomWord(stream, 2 * draw + 1);
    // One letter as often as two or three: such words can be made in most ways.
    const size_t extra = choice % 4 < 2 ? 1 : choice % 4;
    const std::string tail = letters(random >> 32, extra);
    if ((choice >> 4) % 16 < 12 || words_.size() == first_long) {
      const std::string head = ((choice >> 8) & 1) != 0 ? mark_ : std::string();
      Add(head + letters(random & 0xffffffff, 3), tail);
    } else {
      const size_t index = first_long + (choice >> 16) % (words_.size() - first_long);
      const std::string& longer = words_[index].text;
      if (longer.size() + tail.size() <= kMaxLetters) Add(longer, tail);
    }
  }
}

}  // namespace mference
