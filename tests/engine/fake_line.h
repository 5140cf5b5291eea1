// A stand-in for a model: writes a state from token ids alone, so that tests can tell exactly whose
// bytes a state holds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/sequence_state.h"

namespace mference::testing_support {

// A layout with any of the three kinds of blocks, and steps over it. Row p of the append block and
// of the ring holds the token at p (and a hash of all before); the fixed block holds that hash.
class FakeModel {
 public:
  struct Blocks {
    bool ring = false;
    bool fixed = false;
  };
  explicit FakeModel(Blocks blocks) : blocks_(blocks) {
    append_ = layout_.AddAppend("rows", kRowBytes);
    if (blocks.ring) ring_ = layout_.AddRing("ring", kRowBytes, /*window=*/16, /*rows=*/24);
    if (blocks.fixed) fixed_ = layout_.AddFixed("fixed", 4096);
  }

  static constexpr int64_t kRowBytes = 64;
  const StateLayout& layout() const { return layout_; }

  // Steps to `tokens.size()` positions; the state holds the first state.position() of them.
  void Forward(SequenceState& state, std::span<const int32_t> tokens) const {
    const auto rows = static_cast<int64_t>(tokens.size()) - state.position();
    state.BeginStep(rows);
    for (int64_t p = state.position(); p < static_cast<int64_t>(tokens.size()); ++p) {
      const uint64_t hash = Hash(tokens.first(static_cast<size_t>(p) + 1));
      Put(state, append_, p, hash);
      if (blocks_.ring) Put(state, ring_, p % state.rows(ring_), hash);
      if (blocks_.fixed) Put(state, fixed_, 0, hash);
    }
    state.CompleteStep(rows);
  }

  // Whether everything a later step would read is what computing `tokens` from nothing leaves.
  bool Holds(const SequenceState& state, std::span<const int32_t> tokens) const {
    const auto length = static_cast<int64_t>(tokens.size());
    if (!state.usable() || state.position() != length) return false;
    for (int64_t p = 0; p < length; ++p) {
      const uint64_t hash = Hash(tokens.first(static_cast<size_t>(p) + 1));
      if (Get(state, append_, p) != hash) return false;
      if (blocks_.ring && p > length - 16 && Get(state, ring_, p % state.rows(ring_)) != hash) {
        return false;
      }
    }
    return !blocks_.fixed || length == 0 || Get(state, fixed_, 0) == Hash(tokens);
  }

 private:
  static uint64_t Hash(std::span<const int32_t> tokens) {
    uint64_t hash = 14695981039346656037u;  // FNV-1a
    for (const int32_t token : tokens) {
      hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211u;
    }
    return hash;
  }
  static uint64_t* At(const SequenceState& state, StateBlock block, int64_t row) {
    return reinterpret_cast<uint64_t*>(state.data(block) + row * kRowBytes);
  }
  static void Put(const SequenceState& state, StateBlock block, int64_t row, uint64_t value) {
    *At(state, block, row) = value;
  }
  static uint64_t Get(const SequenceState& state, StateBlock block, int64_t row) {
    return *At(state, block, row);
  }

  Blocks blocks_;
  StateLayout layout_;
  StateBlock append_, ring_, fixed_;
};

}  // namespace mference::testing_support
