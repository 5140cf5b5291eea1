// Cache policies to compare with in the laboratory (replay.h), beside those the engine runs with.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "experts/cache_policy.h"
#include "experts/routing_trace.h"

namespace mference {

// Least recently used. Below one token's cycle of slots it never hits: it evicts exactly the layer
// that comes next.
class LruPolicy : public ResidentPolicy {
 public:
  using ResidentPolicy::ResidentPolicy;
  int ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) override;
};

// Use counts that halve every `kHalfLife` turns of their layer; ties as in LfuPolicy.
class AgedLfuPolicy : public ResidentPolicy {
 public:
  AgedLfuPolicy(int layers, int experts_per_layer, int slots);
  void OnRequest(int layer, std::span<const int32_t> experts, const RowChoices& choices) override;
  int ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) override;

 private:
  static constexpr double kHalfLife = 64;
  std::vector<float> counts_;  // [layers * experts_per_layer]
};

// S3-FIFO (Yang et al., SOSP 2023): a small queue of a tenth of the slots for newcomers, a main
// queue with two-bit counters and second chances, and a ghost queue of keys evicted from the small
// one, which return to the main queue.
class S3FifoPolicy : public CachePolicy {
 public:
  S3FifoPolicy(int layers, int experts_per_layer, int slots);

  void OnRequest(int /*layer*/, std::span<const int32_t> /*experts*/,
                 const RowChoices& /*choices*/) override {}
  void OnHit(int slot) override;
  void OnFill(int slot, int layer, int expert, bool demand) override;
  void OnClear(int slot) override;
  int ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) override;

 private:
  struct Resident {
    int32_t key = -1;
    uint8_t uses = 0;  // at most 3
  };
  int FromSmall(std::span<const SlotGuard> guards, SlotGuard level);
  int FromMain(std::span<const SlotGuard> guards, SlotGuard level);

  const int experts_per_layer_;
  std::vector<Resident> residents_;  // [slots]
  std::deque<int> small_, main_;     // slots, oldest first
  std::deque<int32_t> ghost_;        // keys, oldest first
  std::vector<uint8_t> is_ghost_;    // [layers * experts_per_layer]
};

// Belady's optimum: knows the trace that is replayed and evicts what is used again last. Nothing
// can hit more often with the same slots.
class BeladyPolicy : public ResidentPolicy {
 public:
  // The requests that will come, in order.
  struct Request {
    int32_t layer = 0;
    std::vector<int32_t> experts;
  };
  BeladyPolicy(int layers, int experts_per_layer, int slots, const std::vector<Request>& requests);
  void OnRequest(int layer, std::span<const int32_t> experts, const RowChoices& choices) override;
  int ChooseVictim(std::span<const SlotGuard> guards, SlotGuard level) override;

 private:
  std::vector<std::vector<uint32_t>> uses_;  // [layers * experts_per_layer]: request numbers from 1
  std::vector<uint32_t> next_;               // of each, the first use after the current request
};

}  // namespace mference
