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
  // go first, lowest number first. May reorder the policy's own queues, and changes nothing else.
  virtual int ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) = 0;
};

// What a slot holds, as policies keep it.
struct ResidentExpert {
  int32_t key = -1;  // layer * experts_per_layer + expert; -1 when empty
  int32_t layer = 0;
  uint64_t last_use = 0;  // in requests; 0 for a prediction
};

// Policies that keep a table of residents and evict the one with the smallest score.
class ResidentPolicy : public CachePolicy {
 public:
  ResidentPolicy(int layers, int experts_per_layer, int slots);

  void OnRequest(int layer, std::span<const int32_t> experts) override;
  void OnHit(int slot) override { residents_[static_cast<size_t>(slot)].last_use = clock_; }
  void OnFill(int slot, int layer, int expert, bool demand) override;
  void OnClear(int slot) override { residents_[static_cast<size_t>(slot)] = {}; }

 protected:
  int32_t KeyOf(int layer, int expert) const { return layer * experts_per_layer_ + expert; }
  // Layers until this one's next turn. Layers run cyclically: the current one, whose turn is now,
  // waits a whole cycle.
  int DistanceTo(int layer) const {
    return layer > current_layer_ ? layer - current_layer_ : layer - current_layer_ + layers_;
  }
  // The first empty slot, else the one with the smallest score(resident), ties to the lower number.
  template <typename Score>
  int Smallest(std::span<const SlotGuard> guards, SlotGuard level, const Score& score) const {
    int victim = -1;
    decltype(score(residents_[0])) lowest{};
    for (size_t slot = 0; slot < residents_.size(); ++slot) {
      if (guards[slot] > level) continue;
      if (residents_[slot].key < 0) return static_cast<int>(slot);
      const auto value = score(residents_[slot]);
      if (victim >= 0 && !(value < lowest)) continue;
      victim = static_cast<int>(slot);
      lowest = value;
    }
    return victim;
  }

  const int layers_;
  const int experts_per_layer_;
  int current_layer_ = 0;
  uint64_t clock_ = 0;                     // requests
  std::vector<ResidentExpert> residents_;  // [slots]
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
class LfuPolicy : public ResidentPolicy {
 public:
  using ResidentPolicy::ResidentPolicy;

  void OnRequest(int layer, std::span<const int32_t> experts) override;
  int ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) override;

  // Requests that named the expert so far.
  uint32_t UseCount(int layer, int expert) const {
    return use_counts_[static_cast<size_t>(KeyOf(layer, expert))];
  }

 private:
  std::vector<uint32_t> use_counts_ =
      std::vector<uint32_t>(static_cast<size_t>(layers_) * static_cast<size_t>(experts_per_layer_));
};

// Evicts the expert whose next use is expected last, as the offline optimum would evict the one
// whose next use is last.
//
// Whether an expert is chosen in its layer's next turn depends mostly on how long ago it was chosen
// last and on how often it is chosen at all. Both are put into a few classes (ages that double
// and rates that fall by the root of 2 from one to the next), and for each pair of classes the
// policy counts how often experts of that kind were chosen when their layer's turn came: h,
// measured on the very text that is being processed. An expert of a kind that is chosen with
// probability h waits for 1 / h turns, so its next use is expected after
//
//   layers until its layer's next turn + (1 / h - 1) * layers
//
// The classes are shared by all layers, so that the counts mean something after a few tokens. Rates
// are averages that halve in `kRateHalfLife` turns; counts halve when they have filled up. Ties go
// to the less recently used, then to the smaller slot.
class NextUsePolicy : public ResidentPolicy {
 public:
  NextUsePolicy(int layers, int experts_per_layer, int slots);

  void OnRequest(int layer, std::span<const int32_t> experts) override;
  int ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) override;

 private:
  static constexpr int kAgeClasses = 10;   // turns since the last use: 1, 2, 3-4, 5-8, ... , never
  static constexpr int kRateClasses = 24;  // chosen in 1, 2^-1/2, 2^-1, ... of the turns
  static constexpr double kRateHalfLife = 128;

  struct Expert {
    uint32_t last_turn = 0;  // of its layer, counted from 1; 0: never chosen
    float rate = 0;          // share of recent turns in which it was chosen
    float wait = 0;          // expected turns beyond the next one until it is chosen again
    uint8_t kind = 0;        // age class * kRateClasses + rate class, for the layer's next turn
  };
  struct Kind {
    double turns = 0;   // of experts of this kind
    double chosen = 0;  // in so many of them
  };

  void Classify(Expert& expert, uint32_t turn, float rate_unit) const;

  std::vector<Expert> experts_;        // [layers * experts_per_layer]
  std::vector<uint32_t> layer_turns_;  // [layers]
  std::vector<uint8_t> asked_;         // [experts_per_layer], scratch
  size_t fewest_asked_ = SIZE_MAX;     // of one request: what one token asks for
  std::vector<Kind> kinds_;            // [kAgeClasses * kRateClasses]
};

}  // namespace mference
