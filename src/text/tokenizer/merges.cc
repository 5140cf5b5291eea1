#include "text/tokenizer/merges.h"

#include <algorithm>
#include <bit>

#include "text/tokenizer/hash.h"

namespace mference {
namespace {

// 21 bits of rank + 1 and 11 of tag. Nearly every lookup asks for a pair that does not join; it is
// answered by the slots alone, 4 MB for the largest vocabulary, without touching the merges.
constexpr int kTagBits = 11;
constexpr uint32_t kTagMask = (1U << kTagBits) - 1;
static_assert(Tokenizer::kMaxMerges + 1 < (size_t{1} << (32 - kTagBits)));

constexpr size_t kMinSlots = 64;
constexpr size_t kMaxProbes = 512;

uint64_t HashPair(TokenId left, TokenId right) {
  return HashMix(static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right), 0);
}

uint32_t Tag(uint64_t hash) { return static_cast<uint32_t>(hash >> (64 - kTagBits)); }

}  // namespace

bool MergeTable::Build() {
  merges_.shrink_to_fit();
  slots_.assign(std::bit_ceil(std::max(kMinSlots, 2 * merges_.size())), 0);
  const size_t mask = slots_.size() - 1;
  for (uint32_t rank = 0; rank < merges_.size(); ++rank) {
    const Merge& merge = merges_[rank];
    const uint64_t hash = HashPair(merge.left, merge.right);
    size_t slot = static_cast<size_t>(hash) & mask;
    size_t probes = 0;
    for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
      const Merge& other = merges_[(slots_[slot] >> kTagBits) - 1];
      if (other.left == merge.left && other.right == merge.right) break;
      if (++probes == kMaxProbes) return false;
    }
    slots_[slot] = (rank + 1) << kTagBits | Tag(hash);
  }
  return true;
}

uint32_t MergeTable::Find(TokenId left, TokenId right) const {
  const uint64_t hash = HashPair(left, right);
  const uint32_t tag = Tag(hash);
  const size_t mask = slots_.size() - 1;
  for (size_t slot = static_cast<size_t>(hash) & mask; slots_[slot] != 0;
       slot = (slot + 1) & mask) {
    if ((slots_[slot] & kTagMask) != tag) continue;
    const uint32_t rank = (slots_[slot] >> kTagBits) - 1;
    if (merges_[rank].left == left && merges_[rank].right == right) return rank;
  }
  return kNone;
}

size_t MergeTable::memory_bytes() const {
  return merges_.capacity() * sizeof(Merge) + slots_.capacity() * sizeof(uint32_t);
}

}  // namespace mference
