#include "experts/expert_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/units.h"
#include "experts/expert_io.h"

namespace mference {
namespace {

// A failed read gets one more chance: transient errors exist, and a second failure is real.
constexpr int kReadAttempts = 2;

// As far as keeps the disk busy, but not so far that small pools hold little else. Prefill 512 at
// 4 GiB, 685 slots, with 16 blobs here and 48 into the next layer: 128 to 134 tokens/s, with 32 and
// 48 140, with 16 and 96 128, with 48 and 96 146 to 154.
int ReadAheadFor(int slots) { return std::clamp(slots / 8, 16, 48); }

uint64_t Nanoseconds(std::chrono::steady_clock::duration duration) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
}

}  // namespace

// ---- Stream handle --------------------------------------------------------------------------

ExpertStream::~ExpertStream() { Close(); }
ExpertStream::ExpertStream(ExpertStream&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)), ended_with_(other.ended_with_) {}
ExpertStream& ExpertStream::operator=(ExpertStream&& other) noexcept {
  if (this != &other) {
    Close();
    store_ = std::exchange(other.store_, nullptr);
    ended_with_ = other.ended_with_;
  }
  return *this;
}

void ExpertStream::Close() {
  if (store_ != nullptr) std::exchange(store_, nullptr)->CloseStream();
}

StreamNext ExpertStream::Next(ExpertLease& lease) {
  if (store_ == nullptr) return ended_with_;
  const StreamNext next = store_->NextExpert(lease);
  if (next == StreamNext::kFailed) ended_with_ = StreamNext::kFailed;
  if (next == StreamNext::kFailed || store_->stream_.delivered == store_->stream_.count) Close();
  return next;
}

bool ExpertStream::HasReady() { return store_ != nullptr && store_->HasReady(); }

// ---- Construction ---------------------------------------------------------------------------

ExpertStore::ExpertStore(ExpertFiles files, std::unique_ptr<SlotMemory> memory,
                         std::unique_ptr<CachePolicy> policy, std::unique_ptr<BlobReader> reader,
                         ExpertStoreOptions options)
    : files_(std::move(files)),
      options_(std::move(options)),
      memory_(std::move(memory)),
      policy_(std::move(policy)),
      reader_(std::move(reader)) {
  if (files_.layers < 1 || files_.experts_per_layer < 1 || files_.blob_bytes < 1) {
    Fail(ErrorCode::kInvalidArgument,
         "an expert store needs layers, experts and bytes, not {} x {} x {}", files_.layers,
         files_.experts_per_layer, files_.blob_bytes);
  }
  if (options_.top_k < 1 || options_.top_k > files_.experts_per_layer || options_.read_ahead < 0 ||
      options_.token_prefetch < 0 || options_.chunk_prefetch < 0) {
    Fail(ErrorCode::kInvalidArgument, "expert store: top_k {}, read_ahead {}, prefetch {} and {}",
         options_.top_k, options_.read_ahead, options_.token_prefetch, options_.chunk_prefetch);
  }
  if (memory_->slots() < options_.top_k) {
    Fail(ErrorCode::kInvalidArgument,
         "{} expert slots cannot hold the {} experts of one token; raise --memory or "
         "--expert-cache-slots",
         memory_->slots(), options_.top_k);
  }
  if (memory_->slot_bytes() < files_.blob_bytes) {
    Fail(ErrorCode::kInvalidArgument, "slots of {} bytes cannot hold expert blobs of {} bytes",
         memory_->slot_bytes(), files_.blob_bytes);
  }
  if (options_.read_ahead == 0) options_.read_ahead = ReadAheadFor(memory_->slots());
  const auto layers = static_cast<size_t>(files_.layers);
  const auto experts = static_cast<size_t>(files_.experts_per_layer);
  const auto slots = static_cast<size_t>(memory_->slots());
  const auto capacity = static_cast<size_t>(reader_->capacity());
  layer_files_.resize(layers);
  layer_counters_.resize(layers);
  slots_.resize(slots);
  guards_.assign(slots, SlotGuard::kEvictable);
  slot_of_.assign(layers * experts, -1);
  entries_.resize(experts);
  ready_.resize(experts);
  asked_at_.assign(experts, 0);
  queued_reads_.reserve(capacity);
  completions_.resize(capacity);
  hints_.reserve(experts);
  predicted_slots_.reserve(2 * experts);
}

ExpertStore::~ExpertStore() = default;

// ---- Requests -------------------------------------------------------------------------------

ExpertStream ExpertStore::Open(int layer, std::span<const int32_t> distinct_ids, StreamOrder order,
                               const RowChoices& choices) {
  Check(!stream_.open, "an expert stream is opened while another is open");
  Check(layer >= 0 && layer < files_.layers, "expert layer out of range");
  Check(!distinct_ids.empty() && distinct_ids.size() <= entries_.size(),
        "an expert stream needs 1 to experts_per_layer experts");
  Check(choices.rows >= 1 &&
            (choices.choosing.empty() || choices.choosing.size() == distinct_ids.size()),
        "an expert stream serves rows, and is told of all experts how many chose them or of none");
  for (const int32_t choosing : choices.choosing) {
    Check(choosing >= 1 && choosing <= choices.rows, "an expert is chosen by 1 to all rows");
  }
  ++request_number_;
  for (const int32_t expert : distinct_ids) {
    Check(expert >= 0 && expert < files_.experts_per_layer, "expert id out of range");
    uint64_t& asked_at = asked_at_[static_cast<size_t>(expert)];
    Check(asked_at != request_number_, "an expert is asked for twice in one stream");
    asked_at = request_number_;
  }
  if (options_.on_open) options_.on_open(layer, distinct_ids);
  const bool layer_is_open = EnsureLayerOpen(layer);

  stream_ = {.open = true,
             .failed = !layer_is_open,
             .order = order,
             .layer = layer,
             .count = static_cast<int>(distinct_ids.size())};
  ++counters_.requests;
  if (!layer_is_open) return ExpertStream(this);
  if (in_flight_ > 0) Reap(/*wait=*/false);

  policy_->OnRequest(layer, distinct_ids, choices);
  const uint64_t hits_before = counters_.hits;
  for (int i = 0; i < stream_.count; ++i) Classify(i, layer, distinct_ids[static_cast<size_t>(i)]);
  if (counters_.hits - hits_before == distinct_ids.size()) ++counters_.all_hit_requests;
  if (hint_layer_ == layer) hints_.clear();  // what is still wanted is a demand now
  ForgetPredictions(hint_layer_ == layer ? -1 : hint_layer_);
  FillWindow();
  return ExpertStream(this);
}

void ExpertStore::OpenLayers() {
  // What fails now will be tried again, and reported, by the stream that needs it.
  for (int layer = 0; layer < files_.layers; ++layer) EnsureLayerOpen(layer);
}

// Opens the layer's file on first use. False, with last_error_ set, when that fails.
bool ExpertStore::EnsureLayerOpen(int layer) {
  std::optional<LayerFile>& file = layer_files_[static_cast<size_t>(layer)];
  if (file.has_value()) return true;
  try {
    LayerFile opened = files_.open_layer(layer);
    if (opened.blob_offsets.size() != entries_.size()) {
      Fail(ErrorCode::kInternal, "{}: {} expert offsets instead of {}", opened.name,
           opened.blob_offsets.size(), entries_.size());
    }
    bool direct = options_.direct_io;
    if (direct) {
      uint64_t bits = files_.blob_bytes | SlotMemory::kSlotAlignment;
      for (const uint64_t offset : opened.blob_offsets) bits |= offset;
      // The lowest bit set anywhere is the largest power of two that divides everything.
      const std::optional<std::string> refusal = EnableDirectIo(opened.file, bits & (~bits + 1));
      if (refusal.has_value()) {
        buffered_reason_ = fmt::format("{}: {}", opened.name, *refusal);
        direct = false;
      }
    }
    if (!direct) UseBufferedIo(opened.file);
    file = std::move(opened);
    return true;
  } catch (const Error& error) {
    last_error_ = error;
    return false;
  }
}

// Finds out what has to happen for one requested expert, and protects it if it is here.
void ExpertStore::Classify(int position, int layer, int expert) {
  Entry& entry = entries_[static_cast<size_t>(position)];
  entry = {.expert = expert, .slot = slot_of_[static_cast<size_t>(Key(layer, expert))]};
  LayerCounters& layer_counters = layer_counters_[static_cast<size_t>(layer)];
  if (entry.slot < 0) {
    ++counters_.misses;
    ++layer_counters.misses;
    return;
  }
  Slot& slot = slots_[static_cast<size_t>(entry.slot)];
  slot.position = position;
  policy_->OnHit(entry.slot);
  if (slot.prefetched) ++counters_.confirmed;
  if (slot.predicted) Unpredict(entry.slot);
  if (slot.state == SlotState::kReady) {
    entry.state = EntryState::kReady;
    ready_[static_cast<size_t>(stream_.ready_end++)] = position;
    ++counters_.hits;
    ++layer_counters.hits;
  } else {
    entry.state = EntryState::kReading;
    entry.read_ahead = true;
    ++stream_.ahead;
    BeginDemand();
    ++counters_.joins;
    ++layer_counters.misses;
  }
  RefreshGuard(entry.slot);
}

// Of an open stream: something is still to deliver.
StreamNext ExpertStore::NextExpert(ExpertLease& lease) {
  if (in_flight_ > 0) Reap(/*wait=*/false);
  while (true) {
    if (stream_.failed) return StreamNext::kFailed;
    FillWindow();
    if (stream_.order == StreamOrder::kAscending) {
      if (entries_[static_cast<size_t>(stream_.head)].state == EntryState::kReady) {
        Deliver(stream_.head++, lease);
        return StreamNext::kReady;
      }
    } else if (stream_.ready_begin < stream_.ready_end) {
      Deliver(ready_[static_cast<size_t>(stream_.ready_begin++)], lease);
      return StreamNext::kReady;
    }
    if (in_flight_ == 0) return StreamNext::kBusy;
    Reap(/*wait=*/true);
  }
}

bool ExpertStore::HasReady() {
  if (in_flight_ > 0) Reap(/*wait=*/false);
  if (stream_.failed) return false;
  return stream_.order == StreamOrder::kAscending
             ? entries_[static_cast<size_t>(stream_.head)].state == EntryState::kReady
             : stream_.ready_begin < stream_.ready_end;
}

void ExpertStore::Deliver(int position, ExpertLease& lease) {
  Entry& entry = entries_[static_cast<size_t>(position)];
  Slot& slot = slots_[static_cast<size_t>(entry.slot)];
  entry.state = EntryState::kDelivered;
  if (std::exchange(entry.read_ahead, false)) --stream_.ahead;
  ++stream_.delivered;
  slot.position = -1;
  ++slot.pins;
  RefreshGuard(entry.slot);
  lease = {.expert = entry.expert, .index = position, .slot = entry.slot, .blob = slot.blob};
}

void ExpertStore::Release(const ExpertLease& lease) {
  Check(lease.slot >= 0 && lease.slot < slots(), "release of something that is not a lease");
  Slot& slot = slots_[static_cast<size_t>(lease.slot)];
  Check(slot.pins > 0 && slot.key % files_.experts_per_layer == lease.expert,
        "an expert lease is released twice");
  --slot.pins;
  RefreshGuard(lease.slot);
}

void ExpertStore::CloseStream() {
  for (int i = 0; i < stream_.count && stream_.delivered < stream_.count; ++i) {
    const int32_t index = entries_[static_cast<size_t>(i)].slot;
    if (index < 0 || slots_[static_cast<size_t>(index)].position != i) continue;
    slots_[static_cast<size_t>(index)].position = -1;
    RefreshGuard(index);
  }
  if (demand_in_flight_ > 0) EndDemand(demand_in_flight_);
  stream_ = {};
  IssuePrefetches();
}

// Gives slots to missing experts in request order and starts their reads: as many as slots, the
// reader and, in prefill, the window allow.
void ExpertStore::FillWindow() {
  const bool ascending = stream_.order == StreamOrder::kAscending;
  while (!stream_.failed && stream_.cursor < stream_.count && in_flight_ < reader_->capacity()) {
    const int position = stream_.cursor;
    if (entries_[static_cast<size_t>(position)].state != EntryState::kMissing) {
      ++stream_.cursor;
      continue;
    }
    // The expert to deliver next is exempt from the window: nothing moves without it.
    const bool is_next = ascending && position == stream_.head;
    if (ascending && !is_next && stream_.ahead >= options_.read_ahead) break;
    int slot = ChooseVictim();
    if (slot < 0 && is_next) slot = StealWanted();
    if (slot < 0) break;
    StartRead(slot, Key(stream_.layer, entries_[static_cast<size_t>(position)].expert), position);
    Entry& entry = entries_[static_cast<size_t>(position)];
    entry.slot = slot;
    entry.state = EntryState::kReading;
    entry.read_ahead = true;
    ++stream_.ahead;
    ++stream_.cursor;
  }
  SubmitQueued();
  if (stream_.cursor == stream_.count) IssuePrefetches();
}

int ExpertStore::ChooseVictim() {
  const int slot = policy_->ChooseVictim(guards_, SlotGuard::kEvictable);
  return slot >= 0 ? slot : policy_->ChooseVictim(guards_, SlotGuard::kPredicted);
}

// The whole pool holds experts of this very stream: gives up the one that is delivered last, which
// is then read again when its turn comes. Returns -1 when none can go.
int ExpertStore::StealWanted() {
  for (int i = stream_.count - 1; i > stream_.head; --i) {
    Entry& entry = entries_[static_cast<size_t>(i)];
    if (entry.state != EntryState::kReady ||
        guards_[static_cast<size_t>(entry.slot)] != SlotGuard::kWanted) {
      continue;
    }
    if (std::exchange(entry.read_ahead, false)) --stream_.ahead;
    entry.state = EntryState::kMissing;
    ++counters_.rereads;
    return std::exchange(entry.slot, -1);
  }
  return -1;
}

// ---- Reads ----------------------------------------------------------------------------------

// Empties `slot` and starts reading `key` into it, for `position` of the open stream or, with -1,
// on a prediction.
void ExpertStore::StartRead(int slot, int32_t key, int position) {
  Slot& target = slots_[static_cast<size_t>(slot)];
  if (target.key >= 0) {
    ++counters_.evictions;
    Empty(slot);
  }
  target.key = key;
  target.state = SlotState::kReading;
  target.position = position;
  target.attempts = 1;
  slot_of_[static_cast<size_t>(key)] = slot;
  policy_->OnFill(slot, key / files_.experts_per_layer, key % files_.experts_per_layer,
                  /*demand=*/position >= 0);
  RefreshGuard(slot);
  if (position >= 0) BeginDemand();
  QueueRead(slot);
}

void ExpertStore::QueueRead(int slot) {
  const int32_t key = slots_[static_cast<size_t>(slot)].key;
  const LayerFile& file = *layer_files_[static_cast<size_t>(key / files_.experts_per_layer)];
  ++in_flight_;
  queued_reads_.push_back(
      {.fd = file.file.get(),
       .offset = file.blob_offsets[static_cast<size_t>(key % files_.experts_per_layer)],
       .target = memory_->ReadTarget(slot),
       .bytes = files_.blob_bytes,
       .id = slot});
}

void ExpertStore::SubmitQueued() {
  if (queued_reads_.empty()) return;
  reader_->Submit(queued_reads_);
  queued_reads_.clear();
}

// Takes in what has landed; with `wait`, sleeps until something has.
void ExpertStore::Reap(bool wait) {
  size_t count = 0;
  if (wait) {
    const Clock::time_point before = Clock::now();
    count = reader_->Wait(completions_);
    if (demand_in_flight_ > 0) counters_.exposed_ns += Nanoseconds(Clock::now() - before);
  } else {
    count = reader_->Poll(completions_);
  }
  for (size_t i = 0; i < count; ++i) OnCompletion(completions_[i]);
  SubmitQueued();  // retries
}

void ExpertStore::OnCompletion(const ReadCompletion& completion) {
  const int index = completion.id;
  Slot& slot = slots_[static_cast<size_t>(index)];
  Check(slot.state == SlotState::kReading && slot.pins == 0, "a read landed in a slot in use");
  --in_flight_;
  if (completion.error != 0 || completion.bytes_read != files_.blob_bytes) {
    OnReadFailed(index, completion);
    return;
  }
  ++counters_.reads;
  counters_.bytes_read += completion.bytes_read;
  slot.state = SlotState::kReady;
  slot.blob = memory_->Commit(index);
  if (slot.position >= 0) {
    entries_[static_cast<size_t>(slot.position)].state = EntryState::kReady;
    // Only kHitsFirst reads this list; in kAscending a stolen entry would be listed twice.
    if (stream_.order == StreamOrder::kHitsFirst) {
      ready_[static_cast<size_t>(stream_.ready_end++)] = slot.position;
    }
    EndDemand(1);
  }
  RefreshGuard(index);
}

void ExpertStore::OnReadFailed(int index, const ReadCompletion& completion) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  const int layer = slot.key / files_.experts_per_layer;
  const int expert = slot.key % files_.experts_per_layer;
  const LayerFile& file = *layer_files_[static_cast<size_t>(layer)];
  if (slot.attempts < kReadAttempts) {
    ++slot.attempts;
    ++counters_.retries;
    // Some file systems accept O_DIRECT and then refuse the read.
    if (completion.error == EINVAL && options_.direct_io) {
      UseBufferedIo(file.file);
      buffered_reason_ = fmt::format("{}: a direct read was refused", file.name);
    }
    QueueRead(index);
    return;
  }
  ++counters_.failed_reads;
  const int position = slot.position;
  if (position >= 0) {
    const uint64_t offset = file.blob_offsets[static_cast<size_t>(expert)];
    std::string problem;
    ErrorCode code = ErrorCode::kIo;
    if (completion.error != 0) {
      problem = std::strerror(completion.error);
    } else {
      code = ErrorCode::kSizeMismatch;
      problem = fmt::format("the file ends at offset {}", offset + completion.bytes_read);
    }
    last_error_ = Error(
        code,
        fmt::format("layer {}, expert {}: cannot read {} bytes at offset {} of {}: {} (tried "
                    "{} times); check the disk, and the model with `mference verify`",
                    layer, expert, files_.blob_bytes, offset, file.name, problem, kReadAttempts));
    stream_.failed = true;
    Entry& entry = entries_[static_cast<size_t>(position)];
    entry.state = EntryState::kMissing;
    entry.slot = -1;
    EndDemand(1);
  }
  Empty(index);
  RefreshGuard(index);
}

// Takes the expert out of the slot and out of every table.
void ExpertStore::Empty(int index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot_of_[static_cast<size_t>(slot.key)] = -1;
  policy_->OnClear(index);
  if (slot.predicted) Unpredict(index);
  slot = {};
}

// ---- Prediction -----------------------------------------------------------------------------

void ExpertStore::Prefetch(int layer, std::span<const int32_t> ids, int budget) {
  Check(layer >= 0 && layer < files_.layers, "expert layer out of range");
  if (budget <= 0) return;
  hint_layer_ = layer;
  hint_budget_ = budget;
  hints_.clear();
  ForgetPredictions(layer);
  for (const int32_t expert : ids) {
    Check(expert >= 0 && expert < files_.experts_per_layer, "expert id out of range");
    if (hints_.size() == hints_.capacity() ||
        predicted_slots_.size() == predicted_slots_.capacity()) {
      break;
    }
    ++counters_.predicted;
    const int32_t slot = slot_of_[static_cast<size_t>(Key(layer, expert))];
    if (slot < 0) {
      hints_.push_back(expert);
    } else if (!slots_[static_cast<size_t>(slot)].predicted) {
      slots_[static_cast<size_t>(slot)].predicted = true;
      predicted_slots_.push_back(slot);
      RefreshGuard(slot);
    }
  }
  IssuePrefetches();
}

// Starts hinted reads where they delay no demand read: none is in flight or waiting for a slot.
void ExpertStore::IssuePrefetches() {
  if (hints_.empty() || demand_in_flight_ > 0) return;
  if (stream_.open && (stream_.failed || stream_.cursor < stream_.count)) return;
  // Opening a layer may verify a whole file, which is no business of a hint.
  if (!layer_files_[static_cast<size_t>(hint_layer_)].has_value()) return;
  auto evictable = std::count(guards_.begin(), guards_.end(), SlotGuard::kEvictable);
  size_t used = 0;
  for (; used < hints_.size() && prefetched_ < hint_budget_ && in_flight_ < reader_->capacity() &&
         predicted_slots_.size() < predicted_slots_.capacity() && evictable > options_.top_k;
       ++used, --evictable) {
    const int32_t key = Key(hint_layer_, hints_[used]);
    if (slot_of_[static_cast<size_t>(key)] >= 0) continue;  // hinted twice
    const int slot = policy_->ChooseVictim(guards_, SlotGuard::kEvictable);
    StartRead(slot, key, /*position=*/-1);
    Slot& target = slots_[static_cast<size_t>(slot)];
    target.predicted = target.prefetched = true;
    ++prefetched_;
    predicted_slots_.push_back(slot);
    ++counters_.prefetched;
  }
  hints_.erase(hints_.begin(), hints_.begin() + static_cast<ptrdiff_t>(used));
  SubmitQueued();
}

// Ends the protection of predicted slots of all layers but one.
void ExpertStore::ForgetPredictions(int layer_to_keep) {
  for (size_t i = predicted_slots_.size(); i-- > 0;) {
    const int32_t slot = predicted_slots_[i];
    if (slots_[static_cast<size_t>(slot)].key / files_.experts_per_layer == layer_to_keep) continue;
    Unpredict(slot);
    RefreshGuard(slot);
  }
}

void ExpertStore::Unpredict(int index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot.predicted = false;
  if (std::exchange(slot.prefetched, false)) --prefetched_;
  const auto at = std::find(predicted_slots_.begin(), predicted_slots_.end(), index);
  *at = predicted_slots_.back();
  predicted_slots_.pop_back();
}

// ---- Bookkeeping ----------------------------------------------------------------------------

void ExpertStore::BeginDemand() {
  if (demand_in_flight_++ == 0) demand_since_ = Clock::now();
}

void ExpertStore::EndDemand(int reads) {
  demand_in_flight_ -= reads;
  if (demand_in_flight_ == 0) demand_ns_ += Nanoseconds(Clock::now() - demand_since_);
}

void ExpertStore::RefreshGuard(int index) {
  const Slot& slot = slots_[static_cast<size_t>(index)];
  SlotGuard guard = SlotGuard::kEvictable;
  if (slot.pins > 0 || slot.state == SlotState::kReading) {
    guard = SlotGuard::kHeld;
  } else if (slot.position >= 0) {
    guard = SlotGuard::kWanted;
  } else if (slot.predicted) {
    guard = SlotGuard::kPredicted;
  }
  guards_[static_cast<size_t>(index)] = guard;
}

bool ExpertStore::IsReady(int layer, int expert) const {
  Check(layer >= 0 && layer < files_.layers && expert >= 0 && expert < files_.experts_per_layer,
        "expert out of range");
  const int32_t slot = slot_of_[static_cast<size_t>(Key(layer, expert))];
  return slot >= 0 && slots_[static_cast<size_t>(slot)].state == SlotState::kReady;
}

const Error& ExpertStore::last_error() const {
  Check(last_error_.has_value(), "no expert stream has failed");
  return *last_error_;
}

void ExpertStore::ThrowLastError() const { throw Error(last_error()); }

std::string ExpertStore::DescribeIo() const {
  if (!options_.direct_io) return fmt::format("buffered, {}", reader_->Describe());
  if (buffered_reason_.empty()) return fmt::format("direct, {}", reader_->Describe());
  return fmt::format("buffered ({}), {}", buffered_reason_, reader_->Describe());
}

ExpertCounters ExpertStore::counters() const {
  ExpertCounters result = counters_;
  result.overlapped_ns = demand_ns_ > counters_.exposed_ns ? demand_ns_ - counters_.exposed_ns : 0;
  return result;
}

void ExpertStore::ResetCounters() {
  counters_ = {};
  demand_ns_ = 0;
  if (demand_in_flight_ > 0) demand_since_ = Clock::now();
  std::fill(layer_counters_.begin(), layer_counters_.end(), LayerCounters{});
}

}  // namespace mference
