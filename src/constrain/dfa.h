// Deterministic automata over bytes, as tables.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "constrain/regex.h"

namespace mference {

// Immutable. Every state reaches an accepting one; transitions that could not are `kDead`.
class Dfa {
 public:
  using State = uint16_t;
  static constexpr State kDead = UINT16_MAX;
  static constexpr size_t kMaxStates = 20'000;

  State start() const { return 0; }
  State Next(State state, uint8_t byte) const {
    return table_[size_t{state} * class_count_ + classes_[byte]];
  }
  bool accepting(State state) const { return distance_[state] == 0; }
  // Bytes of the shortest way from `state` to an accepting state.
  uint32_t distance(State state) const { return distance_[state]; }
  uint32_t max_distance() const { return max_distance_; }
  size_t size() const { return distance_.size(); }
  bool Matches(std::string_view text) const;
  size_t memory_bytes() const;

  // Whether so many bytes are allowed in some state that a large part of a vocabulary stays inside.
  bool wide() const { return wide_; }

 private:
  friend class DfaBuilder;

  size_t class_count_ = 0;
  std::array<uint8_t, 256> classes_{};
  std::vector<State> table_;        // [states, classes]
  std::vector<uint32_t> distance_;  // [states]
  uint32_t max_distance_ = 0;
  bool wide_ = false;
};

using DfaPtr = std::shared_ptr<const Dfa>;

// The automaton of `regex`; null if the language is empty. nullopt if it would need more than
// kMaxStates states, or more than ten times as many on the way.
std::optional<DfaPtr> MakeDfa(const RegexPtr& regex);

// What both accept; null and nullopt as above.
std::optional<DfaPtr> Intersect(const Dfa& a, const Dfa& b);

// The texts of `min` to `max` (Regex::kUnbounded: any number of) rounds of `loop`, an automaton
// whose only accepting state is its start: a round is what leads from there back to there.
std::optional<DfaPtr> CountRounds(const Dfa& loop, uint32_t min, uint32_t max);

// Everything that does not contain `text` (not empty), whatever else the bytes are.
DfaPtr MakeWithout(std::string_view text);

}  // namespace mference
