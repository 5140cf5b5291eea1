// Which slot to give up for an expert that has to be read: policy, apart from transport.
//
// The store keeps the facts (what a slot holds, whether somebody uses it); a policy keeps its own
// statistics from the events it is told, and orders the slots that may be evicted.
#pragma once

#include <array>
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

// How the rows (tokens) of a step chose the experts that a layer is asked for. In a step of many
// rows nearly every expert is asked for, and only this tells the popular ones.
struct RowChoices {
  int32_t rows = 1;
  // Rows that chose each expert, in the order of the request; empty: all rows chose all of them.
  std::span<const int32_t> choosing = {};
};

// Events come from the store's thread; nothing here allocates after construction.
class CachePolicy {
 public:
  virtual ~CachePolicy() = default;

  // One request for `experts` of `layer` begins: called before any other event of the request.
  virtual void OnRequest(int layer, std::span<const int32_t> experts,
                         const RowChoices& choices) = 0;
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

  void OnRequest(int layer, std::span<const int32_t> experts, const RowChoices& choices) override;
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

  void OnRequest(int layer, std::span<const int32_t> experts, const RowChoices& choices) override;
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
// How likely a layer's next row is to choose an expert is estimated by memories of several lengths:
// the share of all rows so far that chose it, and averages that halve in 1,024, 256, ... rows down
// to a quarter of one. The chance is a weighted mean of them and of an even share. Their weights
// are learnt from the text that is being processed, as those of a mixture are by expectation
// maximisation: after each turn every memory's weight moves towards its share in having foretold
// the experts that were chosen. Where popularity does not change, the longest memory takes nearly
// all weight, and the order is that of use counts; where topics come and go, shorter ones do. All
// layers share the weights, which therefore mean something after a few tokens.
//
// An expert that is chosen with chance p waits for 1 / p turns of its layer, of which one comes
// with every cycle of layers: the experts that a pool below a token's cycle of layers * top_k gives
// up are those whose layer has just run, not those that are needed next. Ties go to the less
// recently used, then to the smaller slot.
class NextUsePolicy : public ResidentPolicy {
 public:
  NextUsePolicy(int layers, int experts_per_layer, int slots);

  void OnRequest(int layer, std::span<const int32_t> experts, const RowChoices& choices) override;
  void OnFill(int slot, int layer, int expert, bool demand) override;
  void OnClear(int slot) override;
  int ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) override;

 private:
  // Rows in which a memory halves. The first keeps all rows, up to kMostRows.
  static constexpr std::array<double, 8> kHalfLives = {0, 1024, 256, 64, 16, 4, 1, 0.25};
  static constexpr size_t kMemories = kHalfLives.size();

  struct Expert {
    std::array<float, kMemories> shares{};  // of its layer's rows that chose it, by memory
    double due = 0;                         // when its next use is expected, in layers run so far
    int32_t slot = -1;
  };

  std::span<Expert> OfLayer(int layer);
  void SpreadChoices(std::span<const int32_t> experts, const RowChoices& choices);
  void LearnWeights(int layer, std::span<const int32_t> experts);
  void Estimate(int layer, int32_t rows);

  std::vector<Expert> experts_;  // [layers * experts_per_layer]
  std::vector<double> due_;      // [slots]: of the expert there, infinity when empty
  std::vector<int32_t> rows_;    // [layers]: rows so far
  std::vector<float> chosen_;    // [experts_per_layer], scratch: share of the request's rows
  float even_ = 0;               // the chance of an expert when all are equal
  double now_ = 0;               // layers run so far, dense ones included
  std::array<float, kMemories> weights_{};
  float even_weight_ = 0;
  uint64_t lessons_ = 0;  // turns from which the weights have been learnt
};

}  // namespace mference
