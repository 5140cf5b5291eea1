#include "backend/sequence_state.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/units.h"

namespace mference {
namespace {

// Blocks start on cache lines, so that no kernel straddles one for lack of alignment.
constexpr uint64_t kBlockAlignment = 64;

// Rows of a block that hold something once `position` positions are.
int64_t FilledRows(const StateBlockSpec& block, int64_t position, int64_t rows) {
  switch (block.kind) {
    case StateKind::kAppend:
      return (position + block.rate - 1) / block.rate;
    case StateKind::kRing:
      return std::min(position, rows);
    case StateKind::kFixed:
      return rows;
  }
  return 0;
}

}  // namespace

StateBlock StateLayout::AddAppend(std::string name, int64_t row_bytes, int32_t rate) {
  blocks_.push_back(
      {.kind = StateKind::kAppend, .name = std::move(name), .row_bytes = row_bytes, .rate = rate});
  return {static_cast<int32_t>(blocks_.size()) - 1};
}

StateBlock StateLayout::AddRing(std::string name, int64_t row_bytes, int64_t window, int64_t rows) {
  Check(window > 0 && rows >= window, "a ring holds at least its window");
  blocks_.push_back({.kind = StateKind::kRing,
                     .name = std::move(name),
                     .row_bytes = row_bytes,
                     .rows = rows,
                     .window = window});
  return {static_cast<int32_t>(blocks_.size()) - 1};
}

StateBlock StateLayout::AddFixed(std::string name, int64_t bytes) {
  blocks_.push_back({.kind = StateKind::kFixed, .name = std::move(name), .row_bytes = bytes});
  return {static_cast<int32_t>(blocks_.size()) - 1};
}

int64_t StateLayout::RowsFor(const StateBlockSpec& block, int64_t context) const {
  switch (block.kind) {
    case StateKind::kAppend:
      return (context + block.rate - 1) / block.rate;
    case StateKind::kRing:
      return std::min(block.rows, context);
    case StateKind::kFixed:
      return 1;
  }
  return 0;
}

uint64_t StateLayout::BytesFor(int64_t context) const {
  uint64_t bytes = 0;
  for (const StateBlockSpec& block : blocks_) {
    bytes +=
        RoundUp(static_cast<uint64_t>(RowsFor(block, context) * block.row_bytes), kBlockAlignment);
  }
  return bytes;
}

uint64_t StateLayout::SnapshotBytes(int64_t position, int64_t context) const {
  uint64_t bytes = 0;
  for (const StateBlockSpec& block : blocks_) {
    if (block.kind == StateKind::kAppend) continue;
    bytes += static_cast<uint64_t>(FilledRows(block, position, RowsFor(block, context)) *
                                   block.row_bytes);
  }
  return bytes;
}

uint64_t StateLayout::AppendedBytes(int64_t positions) const {
  uint64_t bytes = 0;
  for (const StateBlockSpec& block : blocks_) {
    if (block.kind != StateKind::kAppend) continue;
    bytes += static_cast<uint64_t>(FilledRows(block, positions, 0) * block.row_bytes);
  }
  return bytes;
}

bool StateLayout::CanRewind(int64_t from, int64_t to, int64_t context) const {
  if (to > from || to < 0) return false;
  if (to == from || to == 0) return true;
  for (const StateBlockSpec& block : blocks_) {
    if (block.kind == StateKind::kFixed) return false;
    // The ring holds positions from `from - rows` on; the next query, at `to`, looks back to
    // to - window + 1.
    const int64_t rows = RowsFor(block, context);
    if (block.kind == StateKind::kRing && from > rows && to - block.window + 1 < from - rows) {
      return false;
    }
    if (block.kind == StateKind::kAppend && to % block.rate != 0) return false;
  }
  return true;
}

std::string StateLayout::Describe() const {
  std::string text;
  for (const StateBlockSpec& block : blocks_) {
    text += fmt::format("{}:{}:{}:{}:{}:{}\n", static_cast<int>(block.kind), block.name,
                        block.row_bytes, block.rows, block.window, block.rate);
  }
  return text;
}

SequenceState::SequenceState(const StateLayout& layout, int64_t context, MemoryLedger& ledger)
    : layout_(layout), context_(context) {
  uint64_t offset = 0;
  for (const StateBlockSpec& block : layout_.blocks()) {
    rows_.push_back(layout_.RowsFor(block, context));
    offsets_.push_back(offset);
    offset += RoundUp(static_cast<uint64_t>(rows_.back() * block.row_bytes), kBlockAlignment);
  }
  memory_ = Slab(ledger, "sequence state", offset, Slab::Pages::kInBackground);
}

void SequenceState::BeginStep(int64_t rows) {
  Check(!open_, "the previous step failed: the sequence must be reset or restored first");
  if (rows > room()) {
    Fail(ErrorCode::kContextFull, "{} more tokens do not fit: {} of {} positions are taken", rows,
         position_, context_);
  }
  open_ = true;
}

void SequenceState::CompleteStep(int64_t rows) {
  Check(open_, "no step to complete");
  open_ = false;
  position_ += rows;
  high_water_ = std::max(high_water_, position_);
}

bool SequenceState::CanUndoStep(int64_t rows) const {
  // Some of its blocks may be as far as after the step, the others as before it.
  return layout_.CanRewind(std::max(high_water_, position_ + rows), position_, context_);
}

void SequenceState::UndoStep(int64_t rows) {
  Check(open_ && CanUndoStep(rows), "a step that can be undone");
  if (position_ == 0) return Reset();
  open_ = false;
  high_water_ = std::max(high_water_, position_ + rows);
}

bool SequenceState::CanRewindTo(int64_t position) const {
  if (open_ || position > position_) return false;
  return position == position_ || layout_.CanRewind(high_water_, position, context_);
}

void SequenceState::RewindTo(int64_t position) {
  if (position == 0) return Reset();
  Check(CanRewindTo(position), "this sequence cannot be rewound that far");
  position_ = position;
}

void SequenceState::Reset() noexcept {
  for (size_t i = 0; i < rows_.size(); ++i) {
    const StateBlockSpec& block = layout_.blocks()[i];
    if (block.kind == StateKind::kFixed) {
      std::memset(memory_.data() + offsets_[i], 0, static_cast<size_t>(block.row_bytes));
    }
  }
  position_ = 0;
  high_water_ = 0;
  open_ = false;
}

void SequenceState::VisitSnapshot(int64_t position, Visit visit) const {
  for (size_t i = 0; i < rows_.size(); ++i) {
    const StateBlockSpec& block = layout_.blocks()[i];
    if (block.kind == StateKind::kAppend) continue;
    const int64_t bytes = FilledRows(block, position, rows_[i]) * block.row_bytes;
    visit({memory_.data() + offsets_[i], static_cast<size_t>(bytes)});
  }
}

void SequenceState::VisitRows(int64_t positions, Visit visit) const {
  for (size_t i = 0; i < rows_.size(); ++i) {
    const StateBlockSpec& block = layout_.blocks()[i];
    if (block.kind != StateKind::kAppend) continue;
    const int64_t bytes = FilledRows(block, positions, rows_[i]) * block.row_bytes;
    visit({memory_.data() + offsets_[i], static_cast<size_t>(bytes)});
  }
}

void SequenceState::Adopt(int64_t position, int64_t high_water) {
  Check(position >= 0 && position <= high_water && high_water <= context_,
        "positions within the context");
  position_ = position;
  high_water_ = high_water;
  open_ = false;
}

StateSnapshot SequenceState::Snapshot(MemoryLedger& ledger) const {
  Check(!open_, "a snapshot is taken between steps");
  StateSnapshot snapshot;
  snapshot.position_ = position_;
  snapshot.high_water_ = high_water_;
  snapshot.memory_ = Slab(ledger, "snapshots", layout_.SnapshotBytes(position_, context_));
  std::byte* out = snapshot.memory_.data();
  VisitSnapshot(position_, [&](std::span<std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
    out += bytes.size();
  });
  return snapshot;
}

void SequenceState::Restore(const StateSnapshot& snapshot) {
  const std::byte* in = snapshot.memory_.data();
  VisitSnapshot(snapshot.position_, [&](std::span<std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(bytes.data(), in, bytes.size());
    in += bytes.size();
  });
  Adopt(snapshot.position_, snapshot.high_water_);
}

StateRows SequenceState::SaveRows(MemoryLedger& ledger) const {
  Check(!open_, "rows are copied between steps");
  StateRows rows;
  rows.positions_ = position_;
  rows.memory_ = Slab(ledger, "rows", layout_.AppendedBytes(position_));
  std::byte* out = rows.memory_.data();
  VisitRows(position_, [&](std::span<std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
    out += bytes.size();
  });
  return rows;
}

void SequenceState::RestoreRows(const StateRows& rows, int64_t positions) {
  Check(positions <= rows.positions_, "rows that were saved");
  Abandon();
  const std::byte* in = rows.memory_.data();
  for (size_t i = 0; i < rows_.size(); ++i) {
    const StateBlockSpec& block = layout_.blocks()[i];
    if (block.kind != StateKind::kAppend) continue;
    const int64_t wanted = FilledRows(block, positions, rows_[i]) * block.row_bytes;
    if (wanted > 0) std::memcpy(memory_.data() + offsets_[i], in, static_cast<size_t>(wanted));
    in += FilledRows(block, rows.positions_, rows_[i]) * block.row_bytes;
  }
}

}  // namespace mference
