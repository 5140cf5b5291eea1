#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <functional>

#include "base/utf8.h"
#include "text/tokenizer/byte_alphabet.h"

namespace mference {
namespace {

constexpr uint32_t kEnd = UINT32_MAX;

}  // namespace

void BpeEncoder::Encode(const BpeModel& model, std::string_view word, std::vector<TokenId>* out) {
  if (model.ignore_merges) {
    std::string_view token = word;
    if (model.initial == InitialSymbols::kBytes) {
      alphabet_.clear();
      for (const char c : word) AppendUtf8(alphabet_, kByteAlphabet.Code(static_cast<uint8_t>(c)));
      token = alphabet_;
    }
    // Never a control token: they come from the added tokens alone.
    const std::optional<TokenId> id = model.vocabulary.Find(token);
    if (id && !model.vocabulary.IsSpecial(*id)) {
      out->push_back(*id);
      return;
    }
  }
  Split(model, word);
  if (initial_.size() <= kShortSymbols) {
    MergeShort(model, out);
  } else {
    MergeByHeap(model, out);
  }
}

void BpeEncoder::EncodeByHeap(const BpeModel& model, std::string_view word,
                              std::vector<TokenId>* out) {
  Split(model, word);
  MergeByHeap(model, out);
}

void BpeEncoder::Split(const BpeModel& model, std::string_view word) {
  initial_.clear();
  if (model.initial == InitialSymbols::kBytes) {
    for (const char c : word) initial_.push_back(model.byte_tokens[static_cast<uint8_t>(c)]);
    return;
  }
  while (!word.empty()) {
    const uint32_t length = DecodeValidUtf8(word).length;
    const std::string_view character = word.substr(0, length);
    TokenId id = -1;
    if (length == 1) {
      id = model.ascii[static_cast<uint8_t>(character[0])];
    } else if (const std::optional<TokenId> found = model.vocabulary.Find(character)) {
      id = *found;
    }
    if (id >= 0) {
      initial_.push_back(id);
    } else {
      for (const char c : character) initial_.push_back(model.byte_tokens[static_cast<uint8_t>(c)]);
    }
    word.remove_prefix(length);
  }
}

void BpeEncoder::MergeShort(const BpeModel& model, std::vector<TokenId>* out) {
  std::array<uint32_t, kShortSymbols> ranks;  // ranks[i]: of joining symbols i and i + 1
  std::vector<TokenId>& ids = initial_;
  size_t count = ids.size();
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = model.merges.Find(ids[i], ids[i + 1]);
  work_ += count;
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == MergeTable::kNone) break;
    work_ += count;
    ids[best] = model.merges.Result(ranks[best]);
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      ranks[i - 1] = ranks[i];
    }
    if (best > 0) ranks[best - 1] = model.merges.Find(ids[best - 1], ids[best]);
    if (best + 1 < count) ranks[best] = model.merges.Find(ids[best], ids[best + 1]);
  }
  out->insert(out->end(), ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count));
}

// Looks up how the symbol at `position` joins with the one after it.
void BpeEncoder::Rank(const BpeModel& model, uint32_t position) {
  Symbol& symbol = symbols_[position];
  symbol.rank = symbol.next == kEnd ? MergeTable::kNone
                                    : model.merges.Find(symbol.id, symbols_[symbol.next].id);
  ++work_;
}

// Joins the symbol at `position` with the one after it, which is unlinked.
void BpeEncoder::Join(const BpeModel& model, uint32_t position) {
  Symbol& symbol = symbols_[position];
  Symbol& gone = symbols_[symbol.next];
  symbol.id = model.merges.Result(symbol.rank);
  symbol.next = gone.next;
  gone.rank = MergeTable::kNone;
  if (symbol.next != kEnd) symbols_[symbol.next].previous = position;
}

void BpeEncoder::MergeByHeap(const BpeModel& model, std::vector<TokenId>* out) {
  const auto count = static_cast<uint32_t>(initial_.size());
  symbols_.resize(count);
  heap_.clear();
  const auto entry = [&](uint32_t position) {
    return static_cast<uint64_t>(symbols_[position].rank) << 32 | position;
  };
  for (uint32_t i = 0; i < count; ++i) {
    symbols_[i] = {initial_[i], i == 0 ? kEnd : i - 1, i + 1 == count ? kEnd : i + 1, 0};
  }
  for (uint32_t i = 0; i < count; ++i) {
    Rank(model, i);
    if (symbols_[i].rank != MergeTable::kNone) heap_.push_back(entry(i));
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  const auto rank_and_push = [&](uint32_t position) {
    Rank(model, position);
    if (symbols_[position].rank == MergeTable::kNone) return;
    heap_.push_back(entry(position));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const uint64_t top = heap_.back();
    heap_.pop_back();
    ++work_;
    const auto position = static_cast<uint32_t>(top);
    // Stale if the pair at this position is another one by now: a rank names one pair.
    if (symbols_[position].rank != static_cast<uint32_t>(top >> 32)) continue;
    Join(model, position);
    rank_and_push(position);
    if (symbols_[position].previous != kEnd) rank_and_push(symbols_[position].previous);
  }
  for (uint32_t i = 0; i != kEnd && i < count; i = symbols_[i].next) out->push_back(symbols_[i].id);
}

size_t BpeEncoder::memory_bytes() const {
  return initial_.capacity() * sizeof(TokenId) + symbols_.capacity() * sizeof(Symbol) +
         heap_.capacity() * sizeof(uint64_t) + alphabet_.capacity();
}

void BpeEncoder::ReleaseMemory() {
  initial_ = {};
  symbols_ = {};
  heap_ = {};
  alphabet_ = {};
}

}  // namespace mference
