#include "backend/sequence_state.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "base/units.h"

namespace mference {
namespace {

// Position p is written as the byte p everywhere a step of one row would write it.
void Advance(SequenceState& state, StateBlock append, StateBlock ring, StateBlock fixed,
             int64_t to) {
  while (state.position() < to) {
    state.BeginStep(1);
    const auto p = static_cast<size_t>(state.position());
    const auto mark = static_cast<std::byte>(p);
    state.data(append)[p] = mark;
    state.data(ring)[p % static_cast<size_t>(state.rows(ring))] = mark;
    state.data(fixed)[0] =
        static_cast<std::byte>(std::to_integer<size_t>(state.data(fixed)[0]) + p + 1);
    state.CompleteStep(1);
  }
}

class SequenceStateTest : public testing::Test {
 protected:
  MemoryLedger ledger_{64 * kMiB};
  StateLayout layout_;
  StateBlock append_ = layout_.AddAppend("append", 1);
  StateBlock ring_ = layout_.AddRing("ring", 1, /*window=*/4, /*rows=*/6);
};

TEST_F(SequenceStateTest, BytesFollowTheLayout) {
  // 100 rows and 6 rows, each block on a cache line of 64 bytes.
  EXPECT_EQ(layout_.BytesFor(100), 128u + 64u);
  EXPECT_EQ(layout_.SnapshotBytes(100, 100), 6u);
  EXPECT_EQ(layout_.SnapshotBytes(4, 100), 4u) << "rows that hold nothing yet are not copied";
  EXPECT_EQ(layout_.AppendedBytes(7), 7u);
  EXPECT_EQ(layout_.BytesFor(3), 64u + 64u);
  // Gemma 4 at 4K: 25 sliding layers of 1,152 rows and 5 full ones (family specification, 6).
  StateLayout gemma;
  for (int layer = 0; layer < 30; ++layer) {
    if (layer % 6 == 5) {
      gemma.AddAppend("keys", 2048);
      gemma.AddAppend("values", 2048);
    } else {
      gemma.AddRing("keys", 4096, 1024, 1152);
      gemma.AddRing("values", 4096, 1024, 1152);
    }
  }
  EXPECT_EQ(gemma.BytesFor(4096), 319815680u);
  EXPECT_EQ(gemma.BytesFor(131072), 2920284160u);
}

TEST_F(SequenceStateTest, ARingRewindsAsFarAsItsSlackReaches) {
  SequenceState state(layout_, 100, ledger_);
  for (int i = 0; i < 20; ++i) {
    state.BeginStep(1);
    state.CompleteStep(1);
  }
  // Rows of positions 14 .. 19 are held; a query at q looks back to q - 3.
  EXPECT_TRUE(state.CanRewindTo(20));
  EXPECT_TRUE(state.CanRewindTo(17));
  EXPECT_FALSE(state.CanRewindTo(16));
  EXPECT_TRUE(state.CanRewindTo(0));
  EXPECT_FALSE(state.CanRewindTo(21));
  EXPECT_THROW(state.RewindTo(16), Error);
  state.RewindTo(17);
  EXPECT_EQ(state.position(), 17);
}

TEST_F(SequenceStateTest, ARingThatHasNotWrappedRewindsAnywhere) {
  SequenceState state(layout_, 100, ledger_);
  state.BeginStep(6);
  state.CompleteStep(6);
  for (int64_t position = 0; position <= 6; ++position) {
    EXPECT_TRUE(state.CanRewindTo(position)) << position;
  }
}

TEST_F(SequenceStateTest, FixedBlocksRewindOnlyThroughSnapshots) {
  const StateBlock fixed = layout_.AddFixed("recurrent", 8);
  SequenceState state(layout_, 100, ledger_);
  Advance(state, append_, ring_, fixed, 10);
  EXPECT_FALSE(state.CanRewindTo(9));
  const StateSnapshot snapshot = state.Snapshot(ledger_);
  std::vector<std::byte> ring(state.data(ring_), state.data(ring_) + 6);
  const std::byte recurrent = state.data(fixed)[0];

  Advance(state, append_, ring_, fixed, 30);
  EXPECT_NE(std::memcmp(state.data(ring_), ring.data(), ring.size()), 0);
  state.Restore(snapshot);
  EXPECT_EQ(state.position(), 10);
  EXPECT_EQ(std::memcmp(state.data(ring_), ring.data(), ring.size()), 0);
  EXPECT_EQ(state.data(fixed)[0], recurrent);
  for (size_t p = 0; p < 10; ++p) EXPECT_EQ(std::to_integer<size_t>(state.data(append_)[p]), p);

  state.Reset();
  EXPECT_EQ(state.position(), 0);
  EXPECT_EQ(state.data(fixed)[0], std::byte{0});
}

// Going back does not bring back what later positions have overwritten: the second rewind is
// measured from the furthest position, not from where the first one led.
TEST_F(SequenceStateTest, RewindingTwiceReachesNoFurther) {
  SequenceState state(layout_, 100, ledger_);
  state.BeginStep(20);
  state.CompleteStep(20);
  state.RewindTo(18);
  EXPECT_TRUE(state.CanRewindTo(17));
  EXPECT_FALSE(state.CanRewindTo(16));
  state.BeginStep(1);
  state.CompleteStep(1);
  EXPECT_FALSE(state.CanRewindTo(16));
  const StateSnapshot snapshot = state.Snapshot(ledger_);
  state.Reset();
  state.Restore(snapshot);
  EXPECT_EQ(state.position(), 19);
  EXPECT_TRUE(state.CanRewindTo(17));
  EXPECT_FALSE(state.CanRewindTo(16));
}

TEST_F(SequenceStateTest, RowsAndASnapshotBringBackAWholeSequence) {
  const StateBlock fixed = layout_.AddFixed("recurrent", 8);
  SequenceState state(layout_, 100, ledger_);
  Advance(state, append_, ring_, fixed, 10);
  const StateSnapshot middle = state.Snapshot(ledger_);
  Advance(state, append_, ring_, fixed, 30);
  const StateSnapshot end = state.Snapshot(ledger_);
  const StateRows rows = state.SaveRows(ledger_);
  const auto bytes_of = [&] {
    std::vector<std::byte> all;
    state.VisitRows(state.position(), [&](std::span<std::byte> bytes) {
      all.insert(all.end(), bytes.begin(), bytes.end());
    });
    state.VisitSnapshot(state.position(), [&](std::span<std::byte> bytes) {
      all.insert(all.end(), bytes.begin(), bytes.end());
    });
    return all;
  };
  const std::vector<std::byte> expected = bytes_of();

  for (const int64_t length : {12, 30}) {  // another sequence, shorter and as long
    state.Reset();
    while (state.position() < length) {
      state.BeginStep(1);
      const auto p = static_cast<size_t>(state.position());
      state.data(append_)[p] = state.data(ring_)[p % 6] = state.data(fixed)[0] = std::byte{0xEE};
      state.CompleteStep(1);
    }
    state.RestoreRows(rows, 30);
    EXPECT_FALSE(state.usable()) << "rows alone are no sequence";
    state.Restore(end);
    EXPECT_EQ(state.position(), 30);
    EXPECT_EQ(bytes_of(), expected);
  }
  // A part of the rows, with an earlier snapshot.
  state.Reset();
  state.RestoreRows(rows, 10);
  state.Restore(middle);
  EXPECT_EQ(state.position(), 10);
  for (size_t p = 0; p < 10; ++p) EXPECT_EQ(std::to_integer<size_t>(state.data(append_)[p]), p);
  EXPECT_THROW(state.RestoreRows(rows, 31), Error);
}

TEST_F(SequenceStateTest, AFailedStepMustBeResetOrRestored) {
  SequenceState state(layout_, 100, ledger_);
  state.BeginStep(5);  // never completed
  EXPECT_FALSE(state.usable());
  EXPECT_THROW(state.BeginStep(1), Error);
  EXPECT_THROW(static_cast<void>(state.Snapshot(ledger_)), Error);
  EXPECT_FALSE(state.CanRewindTo(0));
  state.Reset();
  state.BeginStep(1);
  state.CompleteStep(1);
  EXPECT_EQ(state.position(), 1);
}

TEST_F(SequenceStateTest, RefusesMoreThanTheContextHolds) {
  SequenceState state(layout_, 8, ledger_);
  try {
    state.BeginStep(9);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kContextFull);
  }
}

TEST_F(SequenceStateTest, TheLedgerHoldsStateAndSnapshots) {
  MemoryLedger small(layout_.BytesFor(100) + 3);
  SequenceState state(layout_, 100, small);
  state.BeginStep(6);
  state.CompleteStep(6);
  EXPECT_THROW(static_cast<void>(state.Snapshot(small)), Error);
  EXPECT_THROW(SequenceState(layout_, 100, small), Error);
}

}  // namespace
}  // namespace mference
