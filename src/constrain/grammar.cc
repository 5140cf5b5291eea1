#include "constrain/grammar.h"

#include <algorithm>

#include "base/error.h"

namespace mference {
namespace {

uint32_t Sum(uint32_t a, uint32_t b) {
  return a == kUnreachable || b == kUnreachable || a > kUnreachable - 1 - b ? kUnreachable : a + b;
}

}  // namespace

char MarkerByte(TextFamily family, Marker marker) {
  const auto markers = DialectMarkers(family);
  for (size_t i = 0; i < markers.size(); ++i) {
    if (markers[i].marker == marker) return static_cast<char>(kFirstMarkerByte + i);
  }
  Fail(ErrorCode::kInternal, "internal error: the family's dialect lacks a marker");
}

size_t Grammar::memory_bytes() const {
  size_t bytes = sizeof(*this) + states_.size() * sizeof(GrammarState) +
                 targets_.size() * sizeof(uint32_t) + literals_.size();
  for (const auto& level : costs_) bytes += level.size() * sizeof(uint32_t);
  for (const DfaPtr& dfa : automata_) bytes += dfa->memory_bytes();
  return bytes;
}

GrammarBuilder::GrammarBuilder() { Add({.kind = GrammarState::Kind::kReturn}); }

GrammarBuilder::State GrammarBuilder::Add(const GrammarState& state) {
  if (grammar_.states_.size() >= Grammar::kMaxStates ||
      grammar_.targets_.size() >= 4 * Grammar::kMaxStates) {
    throw GrammarTooLarge();
  }
  grammar_.states_.push_back(state);
  return static_cast<State>(grammar_.states_.size() - 1);
}

uint32_t GrammarBuilder::Automaton(const DfaPtr& automaton) {
  auto& known = grammar_.automata_;
  const auto found = std::find(known.begin(), known.end(), automaton);
  if (found != known.end()) return static_cast<uint32_t>(found - known.begin());
  automaton_states_ += automaton->size();
  if (automaton_states_ > Grammar::kMaxAutomatonStates) throw GrammarTooLarge();
  known.push_back(automaton);
  return static_cast<uint32_t>(known.size() - 1);
}

GrammarBuilder::State GrammarBuilder::Literal(std::string_view bytes, State next) {
  if (bytes.empty()) return next;
  for (const char c : bytes) {
    const bool marker = static_cast<uint8_t>(c) >= kFirstMarkerByte;
    if (marker && grammar_.markers_.find(c) == std::string::npos) grammar_.markers_ += c;
  }
  return AddLiteral(bytes, next);
}

GrammarBuilder::State GrammarBuilder::OptionalMarker(char marker, State next) {
  return AddLiteral({&marker, 1}, next);
}

GrammarBuilder::State GrammarBuilder::AddLiteral(std::string_view bytes, State next) {
  const auto at =
      literals_.try_emplace(std::string(bytes), static_cast<uint32_t>(grammar_.literals_.size()));
  if (at.second) grammar_.literals_ += bytes;
  return Add({.kind = GrammarState::Kind::kLiteral,
              .next = next,
              .a = at.first->second,
              .b = static_cast<uint32_t>(bytes.size())});
}

GrammarBuilder::State GrammarBuilder::Text(const DfaPtr& automaton, State next) {
  return Add({.kind = GrammarState::Kind::kText, .next = next, .a = Automaton(automaton), .b = 0});
}

GrammarBuilder::State GrammarBuilder::Counted(const DfaPtr& automaton, uint32_t min, uint32_t max,
                                              State next) {
  if (min == 0 && max == UINT32_MAX) return Text(automaton, next);
  return Add({.kind = GrammarState::Kind::kCounted,
              .next = next,
              .a = Automaton(automaton),
              .b = 0,
              .min = min,
              .max = max});
}

GrammarBuilder::State GrammarBuilder::Key(const DfaPtr& automaton,
                                          std::vector<std::string> excluded, State next) {
  grammar_.excluded_.push_back(std::move(excluded));
  return Add({.kind = GrammarState::Kind::kKey,
              .next = next,
              .a = Automaton(automaton),
              .b = static_cast<uint32_t>(grammar_.excluded_.size() - 1)});
}

GrammarBuilder::State GrammarBuilder::Split(std::vector<State> targets) {
  if (targets.size() == 1) return targets[0];
  const State state = Forward();
  SetTargets(state, std::move(targets));
  return state;
}

GrammarBuilder::State GrammarBuilder::Call(State rule, State next) {
  return Add({.kind = GrammarState::Kind::kCall, .next = next, .a = rule});
}

GrammarBuilder::State GrammarBuilder::Loop(State body, uint32_t max, State next) {
  return Add({.kind = GrammarState::Kind::kLoop, .next = next, .a = body, .max = max});
}

GrammarBuilder::State GrammarBuilder::Forward() {
  return Add({.kind = GrammarState::Kind::kSplit});
}

void GrammarBuilder::SetTargets(State forward, std::vector<State> targets) {
  if (grammar_.targets_.size() + targets.size() > Grammar::kMaxTargets) throw GrammarTooLarge();
  GrammarState& state = grammar_.states_[forward];
  state.a = static_cast<uint32_t>(grammar_.targets_.size());
  state.b = static_cast<uint32_t>(targets.size());
  grammar_.targets_.insert(grammar_.targets_.end(), targets.begin(), targets.end());
}

Grammar GrammarBuilder::Finish(State start, uint32_t end_cost) {
  grammar_.start_ = start;
  grammar_.end_cost_ = end_cost;
  ComputeCosts();
  ComputeExits();
  return std::move(grammar_);
}

// The bytes that `state` can begin with; kManyExits where that is not looked into.
void GrammarBuilder::CollectFirst(State state, int budget, std::vector<uint16_t>* first) const {
  const GrammarState& at = grammar_.states_[state];
  if (at.kind == GrammarState::Kind::kLiteral) {
    first->push_back(static_cast<uint8_t>(grammar_.literals_[at.a]));
  } else if (at.kind == GrammarState::Kind::kReturn && budget > 0) {
    first->push_back(GrammarState::kNoExit);  // the end of the reply, if it is no called rule's
  } else if (at.kind == GrammarState::Kind::kSplit && budget > 0 && at.b <= 16) {
    for (uint32_t i = 0; i < at.b; ++i) {
      CollectFirst(grammar_.targets_[at.a + i], budget - 1, first);
    }
  } else {
    first->push_back(GrammarState::kManyExits);
  }
}

void GrammarBuilder::ComputeExits() {
  constexpr int kSplits = 4;
  for (GrammarState& state : grammar_.states_) {
    const bool text = state.kind == GrammarState::Kind::kText ||
                      state.kind == GrammarState::Kind::kCounted ||
                      state.kind == GrammarState::Kind::kKey;
    if (!text || !grammar_.automata_[state.a]->wide()) continue;
    std::vector<uint16_t> first;
    CollectFirst(state.next, kSplits, &first);
    std::erase_if(first, [](uint16_t byte) {
      return byte >= kFirstMarkerByte && byte <= GrammarState::kNoExit;
    });
    std::sort(first.begin(), first.end());
    first.erase(std::unique(first.begin(), first.end()), first.end());
    state.exit = first.empty()       ? GrammarState::kNoExit
                 : first.size() == 1 ? first[0]
                                     : GrammarState::kManyExits;
  }
}

// Level by level, since a call's cost is that of a rule with one level less; within a level until
// nothing changes, for the cycles. States come after what follows them, so few rounds suffice.
void GrammarBuilder::ComputeCosts() {
  auto& levels = grammar_.costs_;
  for (uint32_t level = 0; level <= Grammar::kMaxDepth; ++level) {
    std::vector<uint32_t> costs(grammar_.states_.size(), kUnreachable);
    const std::vector<uint32_t>* below = level == 0 ? nullptr : &levels.back();
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t s = 0; s < costs.size(); ++s) {
        const uint32_t cost = CostOf(grammar_.states_[s], costs, below);
        changed = changed || cost != costs[s];
        costs[s] = cost;
      }
    }
    if (below != nullptr && costs == *below) return;  // more levels change nothing
    levels.push_back(std::move(costs));
  }
}

uint32_t GrammarBuilder::CostOf(const GrammarState& state, const std::vector<uint32_t>& costs,
                                const std::vector<uint32_t>* below) const {
  switch (state.kind) {
    case GrammarState::Kind::kLiteral:
      return Sum(state.b, costs[state.next]);
    case GrammarState::Kind::kText:
      return Sum(grammar_.automata_[state.a]->distance(0), costs[state.next]);
    case GrammarState::Kind::kCounted:
      return Sum(state.min, costs[state.next]);  // every round can be one byte
    case GrammarState::Kind::kKey:
      return Sum(1, costs[state.next]);  // the shortest key may be taken
    case GrammarState::Kind::kCall:
      return below == nullptr ? kUnreachable : Sum((*below)[state.a], costs[state.next]);
    case GrammarState::Kind::kReturn:
      return 0;
    case GrammarState::Kind::kLoop:
      return costs[state.next];
    case GrammarState::Kind::kSplit: {
      uint32_t least = kUnreachable;
      for (uint32_t i = 0; i < state.b; ++i) {
        least = std::min(least, costs[grammar_.targets_[state.a + i]]);
      }
      return least;
    }
  }
  return kUnreachable;
}

}  // namespace mference
