#include "text/tokenizer/vocabulary.h"

#include <algorithm>

#include "text/tokenizer/hash.h"

namespace mference {
namespace {

// 22 bits of id + 1 and 10 bits of tag: a lookup of an absent text almost never reads the blob.
constexpr int kTagBits = 10;
constexpr uint32_t kTagMask = (1U << kTagBits) - 1;
static_assert(Tokenizer::kMaxTokenId + 1 < (1 << (32 - kTagBits)));
static_assert(Tokenizer::kMaxTokenBytes <= UINT16_MAX);

constexpr size_t kMinSlots = 1024;

uint32_t Tag(uint64_t hash) { return static_cast<uint32_t>(hash >> (64 - kTagBits)); }

}  // namespace

bool Vocabulary::Insert(uint64_t hash, TokenId id) {
  const size_t mask = slots_.size() - 1;
  size_t slot = static_cast<size_t>(hash) & mask;
  for (size_t probe = 0; probe < kMaxProbes; ++probe, slot = (slot + 1) & mask) {
    if (slots_[slot] == 0) {
      slots_[slot] = (static_cast<uint32_t>(id) + 1) << kTagBits | Tag(hash);
      return true;
    }
  }
  return false;
}

bool Vocabulary::Grow() {
  slots_.assign(std::max(kMinSlots, slots_.size() * 2), 0);
  for (size_t id = 0; id < entries_.size(); ++id) {
    const std::string_view text = Text(static_cast<TokenId>(id));
    if (text.empty()) continue;
    if (!Insert(HashBytes(text.data(), text.size()), static_cast<TokenId>(id))) return false;
  }
  return true;
}

Vocabulary::AddResult Vocabulary::Add(std::string_view token, TokenId id) {
  if (Find(token)) return AddResult::kDuplicateToken;
  if (!Text(id).empty()) return AddResult::kDuplicateId;
  if (2 * (size_ + 1) > slots_.size() && !Grow()) return AddResult::kColliding;
  if (static_cast<size_t>(id) >= entries_.size()) entries_.resize(static_cast<size_t>(id) + 1);
  SetText(token, id);
  ++size_;
  return Insert(HashBytes(token.data(), token.size()), id) ? AddResult::kAdded
                                                           : AddResult::kColliding;
}

bool Vocabulary::Override(std::string_view token, TokenId id) {
  // The slot of the former text stays and leads to a text that differs: nothing is found there.
  SetText(token, id);
  return Insert(HashBytes(token.data(), token.size()), id);
}

void Vocabulary::SetText(std::string_view token, TokenId id) {
  Entry& entry = entries_[static_cast<size_t>(id)];
  entry.offset = static_cast<uint32_t>(blob_.size());
  entry.length = static_cast<uint16_t>(token.size());
  blob_.insert(blob_.end(), token.begin(), token.end());
}

void Vocabulary::SetAdded(TokenId id, bool special) {
  entries_[static_cast<size_t>(id)].flags = special ? kAddedFlag | kSpecialFlag : kAddedFlag;
}

void Vocabulary::ShrinkToFit() {
  blob_.shrink_to_fit();
  entries_.shrink_to_fit();
}

std::optional<TokenId> Vocabulary::Find(std::string_view token) const {
  if (slots_.empty() || token.empty()) return std::nullopt;
  const uint64_t hash = HashBytes(token.data(), token.size());
  const uint32_t tag = Tag(hash);
  const size_t mask = slots_.size() - 1;
  for (size_t slot = static_cast<size_t>(hash) & mask; slots_[slot] != 0;
       slot = (slot + 1) & mask) {
    if ((slots_[slot] & kTagMask) != tag) continue;
    const auto id = static_cast<TokenId>((slots_[slot] >> kTagBits) - 1);
    if (Text(id) == token) return id;
  }
  return std::nullopt;
}

size_t Vocabulary::memory_bytes() const {
  return blob_.capacity() + entries_.capacity() * sizeof(Entry) +
         slots_.capacity() * sizeof(uint32_t);
}

}  // namespace mference
