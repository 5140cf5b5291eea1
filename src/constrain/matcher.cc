#include "constrain/matcher.h"

#include <algorithm>

namespace mference {

using Kind = GrammarState::Kind;

Matcher::Matcher(const Grammar& grammar) : grammar_(grammar) {
  // Number 0 of each pool: no caller, the empty key, no keys.
  frames_.Intern({.rest = grammar.end_cost()});
  keys_.Intern({.parent = UINT32_MAX});
  used_.Intern({.parent = UINT32_MAX});
  for (const std::vector<std::string>& names : grammar.excluded()) {
    std::vector<uint32_t>& numbers = excluded_.emplace_back();
    for (const std::string& name : names) {
      uint32_t key = 0;
      for (const char c : name)
        key = keys_.Intern({.parent = key, .byte = static_cast<uint8_t>(c)});
      numbers.push_back(key);
    }
  }
}

void Matcher::Start(Configurations* out) {
  out->clear();
  Enter({.state = grammar_.start()}, out);
}

void Matcher::Rollback(const Mark& mark) {
  frames_.Rollback(mark.frames);
  keys_.Rollback(mark.keys);
  used_.Rollback(mark.used);
}

void Matcher::Push(const Configuration& configuration, Configurations* out) const {
  if (out->size() >= kMaxConfigurations) return;
  if (std::find(out->begin(), out->end(), configuration) == out->end()) {
    out->push_back(configuration);
  }
}

void Matcher::Enter(Configuration at, Configurations* out) {
  const GrammarState& state = grammar_.state(at.state);
  if (grammar_.Cost(at.state, Levels(at.stack)) == kUnreachable) return;
  at.position = 0;
  at.count = 0;
  switch (state.kind) {
    case Kind::kLiteral:
      return Push(at, out);
    case Kind::kText:
    case Kind::kCounted:
    case Kind::kKey:
      return EnterText(at, out);
    case Kind::kSplit:
      for (uint32_t i = 0; i < state.b; ++i) {
        at.state = grammar_.targets()[state.a + i];
        Enter(at, out);
      }
      return;
    case Kind::kCall: {
      const Frame& caller = frames_[at.stack];
      const Frame frame = {.parent = at.stack,
                           .next = state.next,
                           .items = at.items,
                           .used = at.used,
                           .depth = caller.depth + 1,
                           .rest = caller.rest + grammar_.Cost(state.next, Levels(at.stack))};
      return Enter({.state = state.a, .stack = frames_.Intern(frame)}, out);
    }
    case Kind::kReturn: {
      if (at.stack == 0) return Push({.state = at.state}, out);
      const Frame frame = frames_[at.stack];
      return Enter(
          {.state = frame.next, .items = frame.items, .used = frame.used, .stack = frame.parent},
          out);
    }
    case Kind::kLoop: {
      Configuration body = at;
      body.state = state.a;
      if (state.max != UINT32_MAX) ++body.items;
      if (body.items <= state.max) Enter(body, out);
      at.state = state.next;
      return Enter(at, out);
    }
  }
}

// `at` stands inside a text, or at its beginning: it goes on, and where it may end so does what
// follows.
void Matcher::EnterText(const Configuration& at, Configurations* out) {
  Push(at, out);
  Leave(at, {}, out);
}

void Matcher::Leave(Configuration text, std::string_view more, Configurations* out) {
  const GrammarState& state = grammar_.state(text.state);
  if (!grammar_.automaton(state.a).accepting(static_cast<Dfa::State>(text.position))) return;
  if (state.kind == Kind::kCounted && text.count < state.min) return;
  if (state.kind == Kind::kKey) {
    for (const char c : more) {
      text.count = keys_.Intern({.parent = text.count, .byte = static_cast<uint8_t>(c)});
    }
    if (Taken(text)) return;
    text.used = used_.Intern({.parent = text.used, .key = text.count});
  }
  text.state = state.next;
  Enter(text, out);
}

bool Matcher::Taken(const Configuration& key) const {
  const std::vector<uint32_t>& excluded = excluded_[grammar_.state(key.state).b];
  if (std::find(excluded.begin(), excluded.end(), key.count) != excluded.end()) return true;
  for (uint32_t used = key.used; used != 0; used = used_[used].parent) {
    if (used_[used].key == key.count) return true;
  }
  return false;
}

void Matcher::Step(const Configurations& from, uint8_t byte, Configurations* out) {
  out->clear();
  for (Configuration at : from) {
    const GrammarState& state = grammar_.state(at.state);
    switch (state.kind) {
      case Kind::kLiteral: {
        const std::string_view literal = grammar_.literal(state);
        if (static_cast<uint8_t>(literal[at.position]) != byte) break;
        if (++at.position < literal.size()) {
          Push(at, out);
        } else {
          at.state = state.next;
          Enter(at, out);
        }
        break;
      }
      case Kind::kText:
      case Kind::kCounted:
      case Kind::kKey: {
        const Dfa& automaton = grammar_.automaton(state.a);
        const auto before = static_cast<Dfa::State>(at.position);
        const Dfa::State after = automaton.Next(before, byte);
        if (after == Dfa::kDead) break;
        if (state.kind == Kind::kCounted && automaton.accepting(before)) {
          if (at.count >= state.max) break;
          // Without a maximum counts beyond the minimum are alike.
          if (state.max != UINT32_MAX || at.count < state.min) ++at.count;
        }
        if (state.kind == Kind::kKey) at.count = keys_.Intern({.parent = at.count, .byte = byte});
        at.position = after;
        EnterText(at, out);
        break;
      }
      default:
        break;  // the end of the reply
    }
  }
}

bool Matcher::MayEnd(const Configurations& set) const {
  return std::any_of(set.begin(), set.end(), [this](const Configuration& at) {
    return grammar_.state(at.state).kind == Kind::kReturn;
  });
}

uint32_t Matcher::AfterText(const Configuration& at) const {
  return grammar_.Cost(grammar_.state(at.state).next, Levels(at.stack)) + frames_[at.stack].rest;
}

uint32_t Matcher::Shortest(const Configuration& at) const {
  const GrammarState& state = grammar_.state(at.state);
  switch (state.kind) {
    case Kind::kLiteral:
      return state.b - at.position + AfterText(at);
    case Kind::kText:
      return grammar_.automaton(state.a).distance(static_cast<Dfa::State>(at.position)) +
             AfterText(at);
    case Kind::kCounted:
      return grammar_.automaton(state.a).distance(static_cast<Dfa::State>(at.position)) +
             (at.count < state.min ? state.min - at.count : 0) + AfterText(at);
    case Kind::kKey:
      return grammar_.automaton(state.a).distance(static_cast<Dfa::State>(at.position)) +
             (Taken(at) ? 1 : 0) + AfterText(at);
    default:
      return frames_[at.stack].rest;
  }
}

uint32_t Matcher::Shortest(const Configurations& set) const {
  uint32_t least = kUnreachable;
  for (const Configuration& at : set) least = std::min(least, Shortest(at));
  return least;
}

}  // namespace mference
