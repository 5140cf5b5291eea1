// The expert store: a bounded cache of expert blobs with streams of experts out of it.
//
// A layer that has routed asks for its distinct experts with `Open` and takes them one by one from
// the stream, as leases on slots: those that are cached at once, the others when their reads land.
// Reads start in `Open`, so that whatever the caller computes before it asks for the first expert
// overlaps them. Experts of all layers compete for one pool of slots.
//
//   ExpertStream stream = store.Open(layer, ids, StreamOrder::kHitsFirst);
//   ExpertLease lease;
//   while ((next = stream.Next(lease)) == StreamNext::kReady) {
//     ... read lease.blob ...
//     store.Release(lease);             // when the work that reads it has completed
//   }
//   if (next == StreamNext::kFailed) store.ThrowLastError();
//
// A slot is written only when it is neither leased nor the target of a read. It moves
// empty -> reading -> ready, and back to empty when its read fails; an expert becomes visible when
// its own read has landed, not when the whole request has.
//
// In kHitsFirst the victims of all misses are chosen in Open, in request order, after the request's
// hits have been protected: one plan, as for a cache of a single layer. Where that is impossible
// (more experts than free slots, or than the reader takes) the plan is not refused but continued as
// slots come free.
//
// Threads: one thread at a time calls the store (the backend's driver thread); readers cross
// threads behind `BlobReader`. After the first use of each layer nothing here allocates, locks or
// throws on the way of a request, except for sleeping until a read lands. Misuse (a lease released
// twice, an expert out of range, a second stream) throws kInternal.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "experts/blob_reader.h"
#include "experts/cache_policy.h"
#include "experts/expert_files.h"
#include "experts/slot_memory.h"

namespace mference {

enum class StreamOrder {
  kHitsFirst,  // decode: cached experts in request order, then the others as their reads land
  kAscending,  // prefill: in request order (ascending ids); reads run ahead by a bounded window
};

enum class StreamNext {
  kReady,   // the lease holds the next expert
  kEnd,     // every expert of the request has been delivered
  kFailed,  // a read or the opening of the layer failed for good; see last_error()
  kBusy,    // every slot is leased: release one and ask again
};

// One delivered expert. Plain data: copying it does not add a pin.
struct ExpertLease {
  int32_t expert = -1;
  int32_t index = -1;  // position in the ids given to Open
  int32_t slot = -1;
  const std::byte* blob = nullptr;  // [blob_bytes], valid until Release
};

struct ExpertStoreOptions {
  int top_k = 1;           // experts of one token: the fewest slots the pool may have
  bool direct_io = false;  // open layer files for O_DIRECT where the file system takes it
  // kAscending: most blobs read but not yet delivered; 0 for as many as suit the pool.
  int read_ahead = 0;
  // For whoever predicts (see Prefetch): budgets of a single token's guesses, and of what a wide
  // chunk is certain to need. 0: none.
  int token_prefetch = 0;
  int chunk_prefetch = 0;
  // Called for every Open with what was asked: the hook for recording routing traces.
  std::function<void(int layer, std::span<const int32_t> ids)> on_open;
};

struct LayerCounters {
  uint64_t hits = 0;
  uint64_t misses = 0;
};

// Since construction or the last reset. Every requested expert is a hit, a join or a miss.
struct ExpertCounters {
  uint64_t requests = 0;          // streams opened
  uint64_t all_hit_requests = 0;  // of these, those that found every expert ready
  uint64_t hits = 0;              // ready at Open
  uint64_t joins = 0;  // a read begun earlier (prediction, abandoned stream) was in flight
  uint64_t misses = 0;
  uint64_t rereads = 0;  // hits evicted before delivery: a stream longer than the pool
  uint64_t evictions = 0;
  uint64_t reads = 0;  // blobs landed, predicted ones included
  uint64_t bytes_read = 0;
  uint64_t retries = 0;
  uint64_t failed_reads = 0;  // given up after the retry
  uint64_t exposed_ns = 0;    // slept in Next until a read landed
  // Demand reads were in flight while the caller was doing something else. An upper bound: a
  // landing is noticed when the caller next enters the store.
  uint64_t overlapped_ns = 0;
  uint64_t predicted = 0;   // experts hinted to Prefetch
  uint64_t prefetched = 0;  // of these, reads issued
  uint64_t confirmed = 0;   // of the issued, those that their layer then asked for
};

class ExpertStore;

// A request being served. Movable handle; at most one is open per store, from Open to the delivery
// of its last expert, a failure, or its destruction. Destroying it abandons what has not been
// delivered: leases stay valid, reads in flight land in their slots and are cached.
class ExpertStream {
 public:
  ExpertStream() = default;
  ~ExpertStream();
  ExpertStream(ExpertStream&& other) noexcept;
  ExpertStream& operator=(ExpertStream&& other) noexcept;

  // Delivers the next expert, sleeping until a read lands if need be. After kEnd or kFailed it
  // returns the same again.
  StreamNext Next(ExpertLease& lease);

  // Whether Next would deliver at once. Never sleeps.
  bool HasReady();

 private:
  friend class ExpertStore;
  explicit ExpertStream(ExpertStore* store) : store_(store) {}
  void Close();

  ExpertStore* store_ = nullptr;  // null once the stream has ended
  StreamNext ended_with_ = StreamNext::kEnd;
};

class ExpertStore {
 public:
  // Throws kInvalidArgument when the pool has fewer than top_k slots or slots smaller than a blob.
  ExpertStore(ExpertFiles files, std::unique_ptr<SlotMemory> memory,
              std::unique_ptr<CachePolicy> policy, std::unique_ptr<BlobReader> reader,
              ExpertStoreOptions options);
  // Waits for reads in flight. No stream may be open.
  ~ExpertStore();
  ExpertStore(const ExpertStore&) = delete;
  ExpertStore& operator=(const ExpertStore&) = delete;

  // Opens the files of all layers that can be opened now instead of on their first use, so that
  // hints reach them from the start. For callers whose `open_layer` is quick.
  void OpenLayers();

  // Asks for `distinct_ids` of `layer`, which are copied; 1 to experts_per_layer of them. Counts
  // use, protects the cached ones and starts the first reads. Never waits for a read. A layer that
  // cannot be opened makes the stream fail at its first Next. `choices` is for the cache policy.
  [[nodiscard]] ExpertStream Open(int layer, std::span<const int32_t> distinct_ids,
                                  StreamOrder order, const RowChoices& choices = {});
  // The consumer has finished reading the lease's blob. In any order, also after the stream ended.
  void Release(const ExpertLease& lease);

  // Hints that `layer` will probably ask for `ids`, most probable first. Replaces hints whose reads
  // have not begun. Reads begin only while no demand read is outstanding or waiting for a slot,
  // keep at most `budget` blobs that nobody has asked for yet, and always leave top_k slots
  // evictable. Does not touch use counts.
  void Prefetch(int layer, std::span<const int32_t> ids, int budget);

  const ExpertStoreOptions& options() const { return options_; }

  // Whether the expert is cached. A probe: changes neither counters nor eviction order.
  bool IsReady(int layer, int expert) const;

  // What made a stream return kFailed, with layer, expert, file, offset and errno.
  const Error& last_error() const;
  [[noreturn]] void ThrowLastError() const;

  int slots() const { return static_cast<int>(slots_.size()); }
  const ExpertFiles& files() const { return files_; }
  // How blobs are read, for people; after a refusal of O_DIRECT it says why reads are buffered.
  std::string DescribeIo() const;

  ExpertCounters counters() const;
  std::span<const LayerCounters> layer_counters() const { return layer_counters_; }
  void ResetCounters();

 private:
  friend class ExpertStream;

  enum class SlotState : uint8_t { kEmpty, kReading, kReady };
  struct Slot {
    int32_t key = -1;       // layer * experts_per_layer + expert
    int32_t position = -1;  // in the open stream, while that wants it and has not got it
    int32_t pins = 0;
    SlotState state = SlotState::kEmpty;
    uint8_t attempts = 0;     // of the read in flight
    bool predicted = false;   // hinted, and its layer has not been opened since
    bool prefetched = false;  // predicted, and read because of that
    const std::byte* blob = nullptr;
  };
  enum class EntryState : uint8_t { kMissing, kReading, kReady, kDelivered };
  struct Entry {
    int32_t expert = -1;
    int32_t slot = -1;
    EntryState state = EntryState::kMissing;
    bool read_ahead = false;  // counts against the window until delivered
  };
  struct Stream {
    bool open = false;
    bool failed = false;
    StreamOrder order = StreamOrder::kHitsFirst;
    int layer = 0;
    int count = 0;
    int delivered = 0;
    int head = 0;                        // kAscending: the position to deliver next
    int cursor = 0;                      // no entry before it is missing
    int ahead = 0;                       // entries with read_ahead set
    int ready_begin = 0, ready_end = 0;  // kHitsFirst: the part of ready_ still to deliver
  };
  using Clock = std::chrono::steady_clock;

  int32_t Key(int layer, int expert) const { return layer * files_.experts_per_layer + expert; }
  StreamNext NextExpert(ExpertLease& lease);
  bool HasReady();
  void CloseStream();

  bool EnsureLayerOpen(int layer);
  void Classify(int position, int layer, int expert);
  void FillWindow();
  int ChooseVictim();
  int StealWanted();
  void Deliver(int position, ExpertLease& lease);

  void StartRead(int slot, int32_t key, int position);
  void QueueRead(int slot);
  void SubmitQueued();
  void Reap(bool wait);
  void OnCompletion(const ReadCompletion& completion);
  void OnReadFailed(int slot, const ReadCompletion& completion);

  void IssuePrefetches();
  void ForgetPredictions(int layer_to_keep);
  void Unpredict(int slot);

  void BeginDemand();
  void EndDemand(int reads);
  void RefreshGuard(int slot);
  void Empty(int slot);

  ExpertFiles files_;
  ExpertStoreOptions options_;
  std::unique_ptr<SlotMemory> memory_;
  std::unique_ptr<CachePolicy> policy_;

  std::vector<std::optional<LayerFile>> layer_files_;  // [layers]
  // After the memory and the files: destroyed before them, when its last read has landed.
  std::unique_ptr<BlobReader> reader_;

  std::vector<Slot> slots_;
  std::vector<SlotGuard> guards_;  // [slots]
  std::vector<int32_t> slot_of_;   // [layers * experts_per_layer], -1 absent

  Stream stream_;
  std::vector<Entry> entries_;      // [experts_per_layer], of the open stream
  std::vector<int32_t> ready_;      // [experts_per_layer], positions in order of readiness
  std::vector<uint64_t> asked_at_;  // [experts_per_layer], request number: finds duplicates
  uint64_t request_number_ = 0;

  std::vector<BlobRead> queued_reads_;       // not yet handed to the reader
  std::vector<ReadCompletion> completions_;  // [reader capacity], scratch
  int in_flight_ = 0;                        // reads the reader has or is about to get
  int demand_in_flight_ = 0;                 // of these, wanted by the open stream

  int hint_layer_ = -1;
  int hint_budget_ = 0;
  std::vector<int32_t> hints_;            // experts still to prefetch, most probable first
  std::vector<int32_t> predicted_slots_;  // slots with `predicted` set
  int prefetched_ = 0;                    // slots with `prefetched` set

  std::optional<Error> last_error_;
  std::string buffered_reason_;  // why a layer file is not read directly although asked for
  ExpertCounters counters_;
  std::vector<LayerCounters> layer_counters_;
  uint64_t demand_ns_ = 0;  // demand reads were in flight
  Clock::time_point demand_since_;
};

}  // namespace mference
