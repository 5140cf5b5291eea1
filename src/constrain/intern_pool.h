// Equal nodes stored once, so that they are equal if their numbers are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mference {

// `Node` has operator== and `uint64_t Hash() const`. Not thread-safe.
template <typename Node>
class InternPool {
 public:
  InternPool() : slots_(64, kFree) {}

  // The number of `node`, which is added if it is new.
  uint32_t Intern(const Node& node) {
    if (nodes_.size() * 2 >= slots_.size()) Grow();
    size_t slot = Find(node);
    if (slots_[slot] == kFree) {
      slots_[slot] = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back(node);
    }
    return slots_[slot];
  }

  const Node& operator[](uint32_t number) const { return nodes_[number]; }
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }

  // Forgets all nodes from number `size` on. In the reverse order of their coming, so that no
  // node's slot depends on a later one's.
  void Rollback(uint32_t size) {
    while (nodes_.size() > size) {
      slots_[Find(nodes_.back())] = kFree;
      nodes_.pop_back();
    }
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;

  // The slot of an equal node, or a free one for it.
  size_t Find(const Node& node) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = static_cast<size_t>(node.Hash()) & mask;
    while (slots_[slot] != kFree && !(nodes_[slots_[slot]] == node)) slot = (slot + 1) & mask;
    return slot;
  }

  void Grow() {
    slots_.assign(slots_.size() * 2, kFree);
    for (size_t i = 0; i < nodes_.size(); ++i) slots_[Find(nodes_[i])] = static_cast<uint32_t>(i);
  }

  std::vector<Node> nodes_;
  std::vector<uint32_t> slots_;
};

// A mix of two halves, for Hash().
inline uint64_t MixHash(uint64_t a, uint64_t b) {
  uint64_t hash = (a ^ (b + 0x9E3779B97F4A7C15u + (a << 6) + (a >> 2))) * 0xBF58476D1CE4E5B9u;
  return hash ^ hash >> 29;
}

}  // namespace mference
