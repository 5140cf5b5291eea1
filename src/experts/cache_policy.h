// Which slot to give up for an expert that has to be read: policy, apart from transport.
//
// The store keeps the facts (what a slot holds, whether somebody uses it); a policy keeps its own
// statistics from the events it is told, and orders the slots that may be evicted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mference {

// How strongly the store protects a slot. A victim is chosen among slots up to a level.
enum class SlotGuard : uint8_t {
  kEvictable,  // empty, or ready and wanted by nobody
  kPredicted,  // read ahead of a layer that has not been opened yet
  kWanted,     // the current stream will deliver it
  kHeld,       // leased, or a read is in flight: never evicted
};

// Events come from the store's thread; nothing here allocates after construction.
class CachePolicy {
 public:
  virtual ~CachePolicy() = default;

  // One request for `experts` of `layer` begins: called before any other event of the request.
  virtual void OnRequest(int layer, std::span<const int32_t> experts) = 0;
  // The request found its expert in `slot`.
  virtual void OnHit(int slot) = 0;
  // `slot` is given to an expert; the read is about to start. Demand is false for a prediction,
  // which leaves no trace in the use statistics.
  virtual void OnFill(int slot, int layer, int expert, bool demand) = 0;
  // `slot` holds nothing any more: evicted, or its read failed.
  virtual void OnClear(int slot) = 0;
  // The slot to evict next among those with guards[slot] <= level; -1 if there is none. Empty slots
  // go first, lowest number first. Changes nothing.
  virtual int ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) const = 0;
};

// Least frequently used, with cumulative counts per (layer, expert) that survive eviction and are
// never aged. A request counts once for each of its experts, hit or miss. Eviction order:
//
//   1. empty slots;
//   2. smaller use count of the resident expert;
//   3. the layer whose next turn is furthest away: layers run cyclically, so right now that is the
//      current layer, then the one before it, and last the layer about to run;
//   4. less recently used (in requests);
//   5. smaller slot number.
//
// Within one layer rule 3 never decides, and the order is the one of a pool per layer: count,
// recency, slot number. Between layers it is what lets one pool be smaller than a token's cycle of
// layers * top_k experts: recency alone would evict precisely the layer that comes next and never
// hit, which is also what count-then-recency does for as long as the counts are equal.
class LfuPolicy : public CachePolicy {
 public:
  LfuPolicy(int layers, int experts_per_layer, int slots);

  void OnRequest(int layer, std::span<const int32_t> experts) override;
  void OnHit(int slot) override;
  void OnFill(int slot, int layer, int expert, bool demand) override;
  void OnClear(int slot) override;
  int ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) const override;

  // Requests that named the expert so far.
  uint32_t UseCount(int layer, int expert) const;

 private:
  struct Resident {
    int32_t key = -1;  // layer * experts_per_layer + expert; -1 when empty
    int32_t layer = 0;
    uint64_t last_use = 0;
  };

  int layers_;
  int experts_per_layer_;
  int current_layer_ = 0;
  uint64_t clock_ = 0;
  std::vector<uint32_t> use_counts_;  // [layers * experts_per_layer]
  std::vector<Resident> residents_;   // [slots]
};

}  // namespace mference
