// What may come next: the seam between a grammar and the generation loop.
#pragma once

#include <cstdint>
#include <span>

namespace mference {

// Says which tokens may follow, one reply long. The generation loop asks for the allowed set before
// it samples, and reports what it took. Ids are those of the tokenizer; the tokens that end a reply
// are in the set where the reply may end there, so an implementation has to be told them.
//
// Neither call throws, and after the first tokens neither allocates in the steady state. Not
// thread-safe; one per reply.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // The allowed set: bit id % 64 of word id / 64; ids beyond the words are not allowed. Without any
  // words everything is. It is never the empty set before `complete`. `remaining_tokens` (at least
  // 1) is how many tokens may still be generated, the next one included; the set then leads to an
  // end within them, unless fewer remain than any end needs. The words stay valid until the next
  // call of this object.
  virtual std::span<const uint64_t> Allowed(int64_t remaining_tokens) = 0;

  // `id`, of the allowed set and no end token, has been generated.
  virtual void Accept(int32_t id) = 0;

  // Whether the reply may end here.
  virtual bool may_end() const = 0;

  // Whether nothing may follow: the reply is over without an end token.
  virtual bool complete() const = 0;
};

}  // namespace mference
