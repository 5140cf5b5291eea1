// Runs a grammar over bytes: which states a reply can be in, and how few bytes would end it.
//
// A reply's state is a set of configurations, since alternatives may begin alike. A configuration
// is a handful of numbers; what nests (the callers, the keys an object has) lies in pools in which
// equal things have equal numbers. So configurations are copied and compared as plain numbers, and
// a set is the key under which a token mask can be kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "constrain/grammar.h"
#include "constrain/intern_pool.h"

namespace mference {

struct Configuration {
  uint32_t state = 0;     // a state that waits for bytes; or kReturn: the reply may end here
  uint32_t position = 0;  // byte of the literal, or state of the automaton
  uint32_t count = 0;     // rounds begun (kCounted), or the key so far (kKey)
  uint32_t items = 0;     // of the frame: counted items of its array
  uint32_t used = 0;      // of the frame: keys its object has
  uint32_t stack = 0;     // the callers

  bool operator==(const Configuration&) const = default;
};

using Configurations = std::vector<Configuration>;

// Not thread-safe. The grammar must outlive it.
class Matcher {
 public:
  explicit Matcher(const Grammar& grammar);

  const Grammar& grammar() const { return grammar_; }

  // Where a reply begins.
  void Start(Configurations* out);
  // All that `from` can be after `byte`; empty if none can. `out` is not `from`.
  void Step(const Configurations& from, uint8_t byte, Configurations* out);
  // Adds what follows `text` (kText, kCounted or kKey) if it ends here, after its key's bytes
  // `more` where it is a key.
  void Leave(Configuration text, std::string_view more, Configurations* out);

  bool MayEnd(const Configurations& set) const;
  // Fewest bytes to the end of the reply; kUnreachable never occurs in a set.
  uint32_t Shortest(const Configuration& configuration) const;
  uint32_t Shortest(const Configurations& set) const;
  // The part of it that comes after a text.
  uint32_t AfterText(const Configuration& configuration) const;

  // What Step and Leave add to the pools from a mark on can be taken back, with all configurations
  // that came of it.
  struct Mark {
    uint32_t frames = 0;
    uint32_t keys = 0;
    uint32_t used = 0;
  };
  Mark SetMark() const { return {frames_.size(), keys_.size(), used_.size()}; }
  void Rollback(const Mark& mark);

 private:
  // More alternatives at once than any sensible grammar has; later ones are dropped, which loses
  // some replies and never admits a wrong one.
  static constexpr size_t kMaxConfigurations = 1024;

  // A caller that waits, and its frame's registers.
  struct Frame {
    uint32_t parent = 0;
    uint32_t next = 0;
    uint32_t items = 0;
    uint32_t used = 0;
    uint32_t depth = 0;
    uint32_t rest = 0;  // fewest bytes from here to the end of the reply

    bool operator==(const Frame&) const = default;
    uint64_t Hash() const { return MixHash(MixHash(parent, next), uint64_t{items} << 32 | used); }
  };
  // A key so far: one more byte.
  struct KeyNode {
    uint32_t parent = 0;
    uint32_t byte = 0;
    bool operator==(const KeyNode&) const = default;
    uint64_t Hash() const { return MixHash(parent, byte); }
  };
  // The keys of an object: one more.
  struct UsedNode {
    uint32_t parent = 0;
    uint32_t key = 0;
    bool operator==(const UsedNode&) const = default;
    uint64_t Hash() const { return MixHash(parent, key); }
  };

  uint32_t Levels(uint32_t stack) const { return Grammar::kMaxDepth - frames_[stack].depth; }
  // Follows `at`, whose state has just been reached, to the states that wait for bytes.
  void Enter(Configuration at, Configurations* out);
  void EnterText(const Configuration& at, Configurations* out);
  void Push(const Configuration& configuration, Configurations* out) const;
  bool Taken(const Configuration& key) const;

  const Grammar& grammar_;
  InternPool<Frame> frames_;
  InternPool<KeyNode> keys_;
  InternPool<UsedNode> used_;
  std::vector<std::vector<uint32_t>> excluded_;  // as Grammar::excluded, as keys' numbers
};

}  // namespace mference
