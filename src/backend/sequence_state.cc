#include "backend/sequence_state.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/units.h"

namespace mference {
namespace {

// Blocks start on cache lines, so that no kernel straddles one for lack of alignment.
constexpr uint64_t kBlockAlignment = 64;

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

uint64_t StateLayout::SnapshotBytesFor(int64_t context) const {
  uint64_t bytes = 0;
  for (const StateBlockSpec& block : blocks_) {
    if (block.kind == StateKind::kAppend) continue;
    bytes += static_cast<uint64_t>(RowsFor(block, context) * block.row_bytes);
  }
  return bytes;
}

SequenceState::SequenceState(const StateLayout& layout, int64_t context, MemoryLedger& ledger)
    : layout_(layout), context_(context) {
  uint64_t offset = 0;
  for (const StateBlockSpec& block : layout_.blocks()) {
    rows_.push_back(layout_.RowsFor(block, context));
    offsets_.push_back(offset);
    offset += RoundUp(static_cast<uint64_t>(rows_.back() * block.row_bytes), kBlockAlignment);
  }
  memory_ = Slab(ledger, "sequence state", offset);
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
}

bool SequenceState::CanRewindTo(int64_t position) const {
  if (open_ || position > position_ || position < 0) return false;
  if (position == position_ || position == 0) return true;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const StateBlockSpec& block = layout_.blocks()[i];
    if (block.kind == StateKind::kFixed) return false;
    // The ring holds positions from position_ - rows on; the next query, at `position`, looks back
    // to position - window + 1.
    if (block.kind == StateKind::kRing && position_ > rows_[i] &&
        position - block.window + 1 < position_ - rows_[i]) {
      return false;
    }
    if (block.kind == StateKind::kAppend && position % block.rate != 0) return false;
  }
  return true;
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
  open_ = false;
}

StateSnapshot SequenceState::Snapshot(MemoryLedger& ledger) const {
  Check(!open_, "a snapshot is taken between steps");
  StateSnapshot snapshot;
  snapshot.position_ = position_;
  snapshot.memory_ = Slab(ledger, "snapshots", layout_.SnapshotBytesFor(context_));
  std::byte* out = snapshot.memory_.data();
  for (size_t i = 0; i < rows_.size(); ++i) {
    const StateBlockSpec& block = layout_.blocks()[i];
    if (block.kind == StateKind::kAppend) continue;
    const auto bytes = static_cast<size_t>(rows_[i] * block.row_bytes);
    std::memcpy(out, memory_.data() + offsets_[i], bytes);
    out += bytes;
  }
  return snapshot;
}

void SequenceState::Restore(const StateSnapshot& snapshot) {
  const std::byte* in = snapshot.memory_.data();
  for (size_t i = 0; i < rows_.size(); ++i) {
    const StateBlockSpec& block = layout_.blocks()[i];
    if (block.kind == StateKind::kAppend) continue;
    const auto bytes = static_cast<size_t>(rows_[i] * block.row_bytes);
    std::memcpy(memory_.data() + offsets_[i], in, bytes);
    in += bytes;
  }
  position_ = snapshot.position_;
  open_ = false;
}

}  // namespace mference
