// What a sequence remembers between steps, as typed blocks.
//
// A family declares its blocks once in a `StateLayout`: append-only rows (full attention,
// compressed entries), rings (sliding windows), fixed bytes (recurrent matrices, convolution
// tails). Rewinding, snapshots and the memory figures are then written once, here, for all
// families.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/ledger.h"
#include "base/slab.h"

namespace mference {

// A handle: the block's place in its layout.
struct StateBlock {
  int32_t index = -1;
};

enum class StateKind : uint8_t {
  kAppend,  // one row per `rate` positions, kept for the whole context
  kRing,    // the newest `rows` positions, position p in row p % rows
  kFixed,   // `row_bytes` bytes that every step rewrites
};

struct StateBlockSpec {
  StateKind kind = StateKind::kFixed;
  std::string name;
  int64_t row_bytes = 0;
  int64_t rows = 0;    // rings: physical rows
  int64_t window = 0;  // rings: how far back a query looks, itself included
  int32_t rate = 1;    // append: positions per row
};

class StateLayout {
 public:
  StateBlock AddAppend(std::string name, int64_t row_bytes, int32_t rate = 1);
  // Rows beyond the window are how far a sequence can be rewound: rows - window + 1 positions.
  StateBlock AddRing(std::string name, int64_t row_bytes, int64_t window, int64_t rows);
  StateBlock AddFixed(std::string name, int64_t bytes);

  const std::vector<StateBlockSpec>& blocks() const { return blocks_; }
  // Physical rows of a block for a context; a ring never needs more rows than positions.
  int64_t RowsFor(const StateBlockSpec& block, int64_t context) const;
  // Bytes of one sequence of `context` positions.
  uint64_t BytesFor(int64_t context) const;
  // Bytes of one snapshot at `position`: rings as far as they are filled, and fixed blocks
  // (append-only rows are kept by their length).
  uint64_t SnapshotBytes(int64_t position, int64_t context) const;
  // Bytes of the append-only rows of `positions` positions.
  uint64_t AppendedBytes(int64_t positions) const;

  // True if a sequence that has held `from` positions at most can go on from `to` <= `from` without
  // a snapshot.
  bool CanRewind(int64_t from, int64_t to, int64_t context) const;
  // Kinds, names and sizes of all blocks: states of equal description are interchangeable.
  std::string Describe() const;

 private:
  std::vector<StateBlockSpec> blocks_;
};

// A copy of everything that cannot be rewound, taken between steps.
class StateSnapshot {
 public:
  int64_t position() const { return position_; }
  // See SequenceState::high_water.
  int64_t high_water() const { return high_water_; }
  uint64_t bytes() const { return memory_.size(); }

 private:
  friend class SequenceState;
  int64_t position_ = 0;
  int64_t high_water_ = 0;
  Slab memory_;
};

// A copy of append-only rows, taken between steps: with a snapshot, a whole sequence.
class StateRows {
 public:
  int64_t positions() const { return positions_; }
  uint64_t bytes() const { return memory_.size(); }

 private:
  friend class SequenceState;
  int64_t positions_ = 0;
  Slab memory_;
};

// The state of one sequence. Not thread-safe: the thread that drives the backend owns it. Holds a
// copy of the layout; the ledger must outlive it.
class SequenceState {
 public:
  // Reserves and maps the memory of `context` positions. Throws kOutOfBudget.
  SequenceState(const StateLayout& layout, int64_t context, MemoryLedger& ledger);

  int64_t context() const { return context_; }
  // Positions held: the next step begins here.
  int64_t position() const { return position_; }
  int64_t room() const { return context_ - position_; }
  // The most positions held since the state was empty: rewinding does not bring back the ring rows
  // that later positions have overwritten.
  int64_t high_water() const { return high_water_; }

  const StateBlockSpec& spec(StateBlock block) const { return layout_.blocks()[block.index]; }
  int64_t rows(StateBlock block) const { return rows_[block.index]; }
  std::byte* data(StateBlock block) const { return memory_.data() + offsets_[block.index]; }

  // A step writes state before it is complete. Between `BeginStep` and `CompleteStep` the state is
  // open; if the step fails it stays so, and only `Reset` or `Restore` make it usable again.
  // BeginStep throws kInternal on an open state and kContextFull when `rows` do not fit.
  void BeginStep(int64_t rows);
  void CompleteStep(int64_t rows);
  bool usable() const { return !open_; }
  // Whether a step of `rows` rows from here, broken off, would leave all that was held before it
  // readable: nothing of it is rewritten in place.
  bool CanUndoStep(int64_t rows) const;
  // Closes a state that such a step has left open, without that step.
  void UndoStep(int64_t rows);

  // True if a step can continue from `position` <= position() without a snapshot.
  bool CanRewindTo(int64_t position) const;
  // Forgets the positions from `position` on. Throws kInternal unless CanRewindTo.
  void RewindTo(int64_t position);
  void Reset() noexcept;

  // Throws kOutOfBudget when the ledger has no room for a copy.
  StateSnapshot Snapshot(MemoryLedger& ledger) const;
  // Goes back to a snapshot of a state of this layout and context. The append-only rows must be
  // those of its positions: later steps only appended, or `RestoreRows` has brought them back.
  void Restore(const StateSnapshot& snapshot);

  // Copies the rows of all positions held. Throws kOutOfBudget.
  StateRows SaveRows(MemoryLedger& ledger) const;
  // Brings back the rows of the first `positions` <= rows.positions() positions. The state is open
  // afterwards, until `Restore` makes the rest fit them.
  void RestoreRows(const StateRows& rows, int64_t positions);

  // For files: the same bytes in the same order as snapshots and rows have them, in place. What is
  // written through `visit` counts once `Adopt` says so; until then the state is open.
  using Visit = FunctionRef<void(std::span<std::byte> bytes)>;
  void VisitSnapshot(int64_t position, Visit visit) const;
  void VisitRows(int64_t positions, Visit visit) const;
  static std::span<const std::byte> BytesOf(const StateSnapshot& snapshot) {
    return snapshot.memory_.bytes();
  }
  void Abandon() { open_ = true; }
  void Adopt(int64_t position, int64_t high_water);

 private:
  StateLayout layout_;
  int64_t context_ = 0;
  int64_t position_ = 0;
  int64_t high_water_ = 0;
  bool open_ = false;
  std::vector<int64_t> rows_;
  std::vector<uint64_t> offsets_;
  Slab memory_;
};

}  // namespace mference
