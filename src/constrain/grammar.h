// A compiled grammar: what a reply may be, byte by byte, as a small program for the matcher.
//
// It is a recursive transition network. A state waits for bytes (a literal, an automaton's text, a
// free key) or says where to go on without any (split, call, return, loop). Calls nest as the
// objects and arrays of a reply do, at most kMaxDepth deep. Every state knows the fewest bytes in
// which its rule can be finished, for every number of levels that are left below it; that is what
// lets a reply be closed before its tokens run out. A state that cannot be finished is never
// entered.
//
// Control tokens of a dialect are bytes of the grammar too: MarkerByte gives each one a byte that
// never occurs in UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "constrain/dfa.h"
#include "text/dialects/dialect.h"
#include "text/framing/family.h"

namespace mference {

// 0xF5 + the marker's place in DialectMarkers(family). Throws kInternal for a marker that the
// family lacks.
char MarkerByte(TextFamily family, Marker marker);
inline constexpr uint8_t kFirstMarkerByte = 0xF5;

inline constexpr uint32_t kUnreachable = UINT32_MAX;

// One state. States are numbered; `next` and the like are numbers.
struct GrammarState {
  enum class Kind : uint8_t {
    kLiteral,  // the bytes [a, a + b) of `literals`, then next
    kText,     // what automaton `a` accepts, then next
    kCounted,  // the same, an automaton of rounds, `min` to `max` of them
    kKey,      // what automaton `a` accepts, except keys that the object has already and those of
               // `excluded[b]`; then next
    kSplit,    // any of `targets` [a, a + b)
    kCall,     // rule `a`, one level deeper, then next
    kReturn,   // to the caller
    kLoop,     // `a` as long as the frame's item count is below `max`, or next
  };
  Kind kind = Kind::kReturn;
  uint32_t next = 0;
  uint32_t a = 0;
  uint32_t b = 0;
  uint32_t min = 0;
  uint32_t max = UINT32_MAX;

  // Of texts and keys: the one byte of UTF-8 that what follows can begin with, kNoExit if it begins
  // with control tokens only, kManyExits if there are several.
  static constexpr uint16_t kNoExit = 256;
  static constexpr uint16_t kManyExits = 257;
  uint16_t exit = kManyExits;
};

// Immutable once built; safe to use from several threads.
class Grammar {
 public:
  static constexpr uint32_t kMaxDepth = 64;
  static constexpr size_t kMaxStates = 200'000;
  static constexpr size_t kMaxTargets = 1'000'000;
  static constexpr size_t kMaxAutomatonStates = 100'000;  // of all automata together

  const GrammarState& state(uint32_t number) const { return states_[number]; }
  uint32_t start() const { return start_; }
  const Dfa& automaton(uint32_t number) const { return *automata_[number]; }
  std::string_view literal(const GrammarState& state) const {
    return std::string_view(literals_).substr(state.a, state.b);
  }
  const std::vector<uint32_t>& targets() const { return targets_; }
  const std::vector<std::vector<std::string>>& excluded() const { return excluded_; }

  // Fewest bytes from the beginning of `state` to the end of its rule, where `levels` more calls
  // may nest; kUnreachable if there is no way.
  uint32_t Cost(uint32_t state, uint32_t levels) const {
    return costs_[std::min<size_t>(levels, costs_.size() - 1)][state];
  }
  // Bytes to keep in hand for the token that ends the reply: 0 where its end needs none.
  uint32_t end_cost() const { return end_cost_; }
  // The marker bytes that a reply may need.
  std::string_view markers() const { return markers_; }

  size_t size() const { return states_.size(); }
  size_t memory_bytes() const;

 private:
  friend class GrammarBuilder;

  std::vector<GrammarState> states_;
  std::vector<uint32_t> targets_;
  std::string literals_;
  std::vector<DfaPtr> automata_;
  std::vector<std::vector<std::string>> excluded_;
  std::vector<std::vector<uint32_t>> costs_;  // [levels][states]
  std::string markers_;
  uint32_t start_ = 0;
  uint32_t end_cost_ = 0;
};

// Builds a grammar back to front: every state is given what follows it. Throws
// GrammarTooLarge when it would exceed one of the grammar's bounds.
class GrammarTooLarge : public std::exception {};

class GrammarBuilder {
 public:
  using State = uint32_t;

  GrammarBuilder();

  State Return() const { return 0; }
  State Literal(std::string_view bytes, State next);
  // A control token that the tokenizer may lack; there has to be another way.
  State OptionalMarker(char marker, State next);
  State Text(const DfaPtr& automaton, State next);
  State Counted(const DfaPtr& automaton, uint32_t min, uint32_t max, State next);
  State Key(const DfaPtr& automaton, std::vector<std::string> excluded, State next);
  State Split(std::vector<State> targets);
  State Call(State rule, State next);
  State Loop(State body, uint32_t max, State next);

  // A split whose targets come later, for cycles; until then nothing follows it.
  State Forward();
  void SetTargets(State forward, std::vector<State> targets);

  // `end_cost` as in Grammar. The start may be unreachable: the caller asks `Cost`.
  Grammar Finish(State start, uint32_t end_cost);

 private:
  State Add(const GrammarState& state);
  State AddLiteral(std::string_view bytes, State next);
  uint32_t Automaton(const DfaPtr& automaton);
  void ComputeCosts();
  void CollectFirst(State state, int budget, std::vector<uint16_t>* first) const;
  void ComputeExits();
  uint32_t CostOf(const GrammarState& state, const std::vector<uint32_t>& costs,
                  const std::vector<uint32_t>* below) const;

  Grammar grammar_;
  size_t automaton_states_ = 0;
  std::unordered_map<std::string, uint32_t> literals_;  // where they begin in the grammar's
};

}  // namespace mference
