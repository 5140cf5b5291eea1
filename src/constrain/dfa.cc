#include "constrain/dfa.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"

namespace mference {
namespace {

constexpr size_t kMaxNfaStates = 10 * Dfa::kMaxStates;
// Far more bytes than a number or a word allows, far fewer than free text.
constexpr size_t kWideBytes = 64;

struct TooLarge {};

// Thompson's construction. A state has either one byte edge or any number of empty edges.
class Nfa {
 public:
  struct State {
    uint8_t low = 1;  // low > high: no byte edge
    uint8_t high = 0;
    uint32_t target = 0;
    std::vector<uint32_t> empty;
  };

  uint32_t Add() {
    if (states_.size() >= kMaxNfaStates) throw TooLarge();
    states_.emplace_back();
    return static_cast<uint32_t>(states_.size() - 1);
  }

  // Adds `regex` from `from` on; returns its end.
  uint32_t Append(const Regex& regex, uint32_t from) {
    switch (regex.kind) {
      case Regex::Kind::kEmpty:
        return from;
      case Regex::Kind::kByte: {
        const uint32_t state = Link(from, Add());
        const uint32_t end = Add();
        states_[state].low = regex.low;
        states_[state].high = regex.high;
        states_[state].target = end;
        return end;
      }
      case Regex::Kind::kConcat:
        for (const RegexPtr& part : regex.parts) from = Append(*part, from);
        return from;
      case Regex::Kind::kAlternate: {
        const uint32_t end = Add();
        for (const RegexPtr& part : regex.parts) Link(Append(*part, Link(from, Add())), end);
        return end;
      }
      case Regex::Kind::kRepeat:
        return AppendRepeat(regex, from);
    }
    return from;
  }

  const State& operator[](uint32_t state) const { return states_[state]; }
  size_t size() const { return states_.size(); }

 private:
  uint32_t AppendRepeat(const Regex& regex, uint32_t from) {
    const Regex& part = *regex.parts[0];
    for (uint32_t i = 0; i < regex.min; ++i) from = Append(part, from);
    if (regex.max == Regex::kUnbounded) {
      // The loop's head is its end too, so that after every round the automaton is where it began.
      const uint32_t head = Link(from, Add());
      Link(Append(part, Link(head, Add())), head);
      return head;
    }
    const uint32_t end = Add();
    for (uint32_t i = regex.min; i < regex.max; ++i) {
      Link(from, end);
      from = Append(part, from);
    }
    Link(from, end);
    return end;
  }

  uint32_t Link(uint32_t from, uint32_t to) {
    states_[from].empty.push_back(to);
    return to;
  }

  std::vector<State> states_;
};

}  // namespace

// Collects a full table, then drops what cannot accept and joins bytes that always act alike.
class DfaBuilder {
 public:
  using Row = std::array<uint32_t, 256>;
  static constexpr uint32_t kNone = UINT32_MAX;

  // Returns the new state's number. The first one is the start.
  uint32_t Add(bool accepting) {
    if (rows_.size() >= Dfa::kMaxStates) throw TooLarge();
    rows_.emplace_back().fill(kNone);
    accepting_.push_back(accepting);
    return static_cast<uint32_t>(rows_.size() - 1);
  }
  Row& row(uint32_t state) { return rows_[state]; }

  DfaPtr Finish() const {
    const std::vector<uint32_t> distance = Distances();
    if (rows_.empty() || distance[0] == kNone) return nullptr;
    // Numbers of the live states; the start stays first.
    std::vector<uint32_t> number(rows_.size(), kNone);
    uint32_t live = 0;
    for (size_t s = 0; s < rows_.size(); ++s) {
      if (distance[s] != kNone) number[s] = live++;
    }
    auto dfa = std::make_shared<Dfa>();
    Classify(distance, dfa.get());
    dfa->table_.resize(size_t{live} * dfa->class_count_, Dfa::kDead);
    for (size_t s = 0; s < rows_.size(); ++s) {
      if (number[s] == kNone) continue;
      size_t alive_bytes = 0;
      for (size_t byte = 0; byte < 256; ++byte) {
        const uint32_t target = rows_[s][byte];
        if (target == kNone || number[target] == kNone) continue;
        ++alive_bytes;
        dfa->table_[number[s] * dfa->class_count_ + dfa->classes_[byte]] =
            static_cast<Dfa::State>(number[target]);
      }
      dfa->wide_ = dfa->wide_ || alive_bytes >= kWideBytes;
      dfa->distance_.push_back(distance[s]);
      dfa->max_distance_ = std::max(dfa->max_distance_, distance[s]);
    }
    return dfa;
  }

 private:
  // Breadth first from the accepting states, backwards.
  std::vector<uint32_t> Distances() const {
    std::vector<std::vector<uint32_t>> sources(rows_.size());
    for (size_t s = 0; s < rows_.size(); ++s) {
      uint32_t last = kNone;
      for (const uint32_t target : rows_[s]) {
        if (target == kNone || target == last) continue;
        sources[target].push_back(static_cast<uint32_t>(s));
        last = target;
      }
    }
    std::vector<uint32_t> distance(rows_.size(), kNone);
    std::vector<uint32_t> queue;
    for (size_t s = 0; s < rows_.size(); ++s) {
      if (!accepting_[s]) continue;
      distance[s] = 0;
      queue.push_back(static_cast<uint32_t>(s));
    }
    for (size_t i = 0; i < queue.size(); ++i) {
      for (const uint32_t source : sources[queue[i]]) {
        if (distance[source] != kNone) continue;
        distance[source] = distance[queue[i]] + 1;
        queue.push_back(source);
      }
    }
    return distance;
  }

  void Classify(const std::vector<uint32_t>& distance, Dfa* dfa) const {
    // Bytes with equal columns share a class: refine by one state's row after the other.
    std::array<uint32_t, 256> group{};
    uint32_t groups = 1;
    for (size_t s = 0; s < rows_.size() && groups < 256; ++s) {
      if (distance[s] == kNone) continue;
      std::map<std::pair<uint32_t, uint32_t>, uint32_t> refined;
      for (size_t byte = 0; byte < 256; ++byte) {
        uint32_t target = rows_[s][byte];
        if (target != kNone && distance[target] == kNone) target = kNone;
        const auto [entry, fresh] =
            refined.try_emplace({group[byte], target}, static_cast<uint32_t>(refined.size()));
        group[byte] = entry->second;
      }
      groups = static_cast<uint32_t>(refined.size());
    }
    dfa->class_count_ = groups;
    for (size_t byte = 0; byte < 256; ++byte)
      dfa->classes_[byte] = static_cast<uint8_t>(group[byte]);
  }

  std::vector<Row> rows_;
  std::vector<bool> accepting_;
};

namespace {

// The subset construction.
class Determinizer {
 public:
  explicit Determinizer(const Regex& regex) {
    const uint32_t start = nfa_.Add();
    end_ = nfa_.Append(regex, start);
    seen_.resize(nfa_.size());
    Number({start});
    for (size_t s = 0; s < sets_.size(); ++s) Expand(static_cast<uint32_t>(s));
  }

  DfaPtr Finish() const { return builder_.Finish(); }

 private:
  // The number of the closure of `states`.
  uint32_t Number(std::vector<uint32_t> states) {
    ++round_;
    std::vector<uint32_t> set;
    bool accepting = false;
    while (!states.empty()) {
      const uint32_t state = states.back();
      states.pop_back();
      if (seen_[state] == round_) continue;
      seen_[state] = round_;
      accepting = accepting || state == end_;
      const Nfa::State& node = nfa_[state];
      if (node.low <= node.high) set.push_back(state);
      states.insert(states.end(), node.empty.begin(), node.empty.end());
    }
    std::sort(set.begin(), set.end());
    // Sets differ in what they accept too: the end has no byte edge.
    const auto [entry, fresh] = numbers_.try_emplace({std::move(set), accepting}, kUnnumbered);
    if (fresh) {
      entry->second = builder_.Add(accepting);
      sets_.push_back(&entry->first.first);
    }
    return entry->second;
  }

  void Expand(uint32_t number) {
    const std::vector<uint32_t>& set = *sets_[number];
    // Bytes between two neighbouring edge borders act alike.
    std::vector<uint32_t> borders = {0, 256};
    for (const uint32_t state : set) {
      borders.push_back(nfa_[state].low);
      borders.push_back(nfa_[state].high + 1u);
    }
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      std::vector<uint32_t> targets;
      for (const uint32_t state : set) {
        const Nfa::State& node = nfa_[state];
        if (node.low <= borders[i] && borders[i] <= node.high) targets.push_back(node.target);
      }
      if (targets.empty()) continue;
      const uint32_t target = Number(std::move(targets));
      for (uint32_t byte = borders[i]; byte < borders[i + 1]; ++byte) {
        builder_.row(number)[byte] = target;
      }
    }
  }

  static constexpr uint32_t kUnnumbered = UINT32_MAX;

  Nfa nfa_;
  uint32_t end_ = 0;
  DfaBuilder builder_;
  std::map<std::pair<std::vector<uint32_t>, bool>, uint32_t> numbers_;
  std::vector<const std::vector<uint32_t>*> sets_;
  std::vector<uint32_t> seen_;
  uint32_t round_ = 0;
};

}  // namespace

bool Dfa::Matches(std::string_view text) const {
  State state = start();
  for (const char c : text) {
    state = Next(state, static_cast<uint8_t>(c));
    if (state == kDead) return false;
  }
  return accepting(state);
}

size_t Dfa::memory_bytes() const {
  return sizeof(*this) + table_.size() * sizeof(State) + distance_.size() * sizeof(uint32_t);
}

std::optional<DfaPtr> MakeDfa(const RegexPtr& regex) {
  if (regex == nullptr) return DfaPtr();
  try {
    return Determinizer(*regex).Finish();
  } catch (const TooLarge&) {
    return std::nullopt;
  }
}

std::optional<DfaPtr> Intersect(const Dfa& a, const Dfa& b) {
  DfaBuilder builder;
  std::map<std::pair<Dfa::State, Dfa::State>, uint32_t> numbers;
  std::vector<std::pair<Dfa::State, Dfa::State>> pairs;
  const auto number = [&](Dfa::State x, Dfa::State y) {
    const auto [entry, fresh] = numbers.try_emplace({x, y}, 0);
    if (fresh) {
      entry->second = builder.Add(a.accepting(x) && b.accepting(y));
      pairs.emplace_back(x, y);
    }
    return entry->second;
  };
  try {
    number(a.start(), b.start());
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto [x, y] = pairs[i];
      for (uint32_t byte = 0; byte < 256; ++byte) {
        const Dfa::State next_x = a.Next(x, static_cast<uint8_t>(byte));
        const Dfa::State next_y = b.Next(y, static_cast<uint8_t>(byte));
        if (next_x == Dfa::kDead || next_y == Dfa::kDead) continue;
        const uint32_t target = number(next_x, next_y);
        builder.row(static_cast<uint32_t>(i))[byte] = target;
      }
    }
  } catch (const TooLarge&) {
    return std::nullopt;
  }
  return builder.Finish();
}

std::optional<DfaPtr> CountRounds(const Dfa& loop, uint32_t min, uint32_t max) {
  const uint32_t last = max == Regex::kUnbounded ? min : max;  // counts beyond are alike
  DfaBuilder builder;
  std::map<std::pair<Dfa::State, uint32_t>, uint32_t> numbers;
  std::vector<std::pair<Dfa::State, uint32_t>> pairs;
  const auto number = [&](Dfa::State state, uint32_t begun) {
    const auto [entry, fresh] = numbers.try_emplace({state, begun}, 0);
    if (fresh) {
      entry->second = builder.Add(loop.accepting(state) && begun >= min);
      pairs.emplace_back(state, begun);
    }
    return entry->second;
  };
  try {
    number(loop.start(), 0);
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto [state, begun] = pairs[i];
      uint32_t next_begun = begun;
      if (loop.accepting(state)) {
        if (max != Regex::kUnbounded && begun == max) continue;
        next_begun = std::min(begun + 1, last);
      }
      for (uint32_t byte = 0; byte < 256; ++byte) {
        const Dfa::State next = loop.Next(state, static_cast<uint8_t>(byte));
        if (next == Dfa::kDead) continue;
        const uint32_t target = number(next, next_begun);
        builder.row(static_cast<uint32_t>(i))[byte] = target;
      }
    }
  } catch (const TooLarge&) {
    return std::nullopt;
  }
  return builder.Finish();
}

// Knuth, Morris and Pratt's automaton without its last state.
DfaPtr MakeWithout(std::string_view text) {
  Check(!text.empty(), "a text to leave out");
  DfaBuilder builder;
  for (size_t i = 0; i < text.size(); ++i) builder.Add(true);
  uint32_t border = 0;  // where the automaton is after text[1..i)
  for (uint32_t i = 0; i < text.size(); ++i) {
    const auto expected = static_cast<uint8_t>(text[i]);
    for (uint32_t byte = 0; byte < 256; ++byte) {
      builder.row(i)[byte] = i == 0 ? 0 : builder.row(border)[byte];
    }
    const uint32_t next_border = i == 0 ? 0 : builder.row(border)[expected];
    builder.row(i)[expected] = i + 1 < text.size() ? i + 1 : DfaBuilder::kNone;
    border = next_border;
  }
  return builder.Finish();
}

}  // namespace mference
