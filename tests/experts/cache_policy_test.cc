#include "experts/cache_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "experts/lab_policies.h"

namespace mference {
namespace {

using Ids = std::vector<int32_t>;
using Token = std::vector<Ids>;  // [layers][top_k]
using Trace = std::vector<Token>;

// A cache that serves each request at once: policy and slot tables, nothing else.
template <typename Policy>
class ImmediateCache {
 public:
  ImmediateCache(int layers, int experts, int slots)
      : policy_(layers, experts, slots),
        slot_of_(static_cast<size_t>(layers), Ids(static_cast<size_t>(experts), -1)),
        resident_(static_cast<size_t>(slots), {-1, -1}) {}

  // Returns the number of hits.
  int Request(int layer, const Ids& ids) {
    policy_.OnRequest(layer, ids, {});
    std::vector<SlotGuard> guards(resident_.size(), SlotGuard::kEvictable);
    Ids missing;
    Ids& slots = slot_of_[static_cast<size_t>(layer)];
    for (const int32_t id : ids) {
      const int32_t slot = slots[static_cast<size_t>(id)];
      if (slot < 0) {
        missing.push_back(id);
        continue;
      }
      policy_.OnHit(slot);
      guards[static_cast<size_t>(slot)] = SlotGuard::kHeld;
    }
    for (const int32_t id : missing) {
      const int slot = policy_.ChooseVictim(guards, SlotGuard::kEvictable);
      auto& [old_layer, old_id] = resident_.at(static_cast<size_t>(slot));
      if (old_layer >= 0) {
        slot_of_[static_cast<size_t>(old_layer)][static_cast<size_t>(old_id)] = -1;
        policy_.OnClear(slot);
      }
      old_layer = layer;
      old_id = id;
      slots[static_cast<size_t>(id)] = slot;
      policy_.OnFill(slot, layer, id, /*demand=*/true);
      guards[static_cast<size_t>(slot)] = SlotGuard::kHeld;
    }
    return static_cast<int>(ids.size() - missing.size());
  }

  Ids Resident(int layer) const {
    Ids ids;
    const Ids& slots = slot_of_[static_cast<size_t>(layer)];
    for (size_t id = 0; id < slots.size(); ++id) {
      if (slots[id] >= 0) ids.push_back(static_cast<int32_t>(id));
    }
    return ids;
  }

 private:
  Policy policy_;
  std::vector<Ids> slot_of_;
  std::vector<std::pair<int, int>> resident_;
};

// The specified planning for the cache of one layer, written out as its steps are.
class SpecifiedLayerCache {
 public:
  SpecifiedLayerCache(int experts, int slots)
      : slot_expert_(static_cast<size_t>(slots), -1),
        slot_last_use_(static_cast<size_t>(slots), 0),
        use_count_(static_cast<size_t>(experts), 0) {}

  int Request(const Ids& ids) {
    const size_t slots = slot_expert_.size();
    std::vector<bool> reserved(slots, false);
    std::vector<size_t> hit_slots;
    Ids misses;
    for (const int32_t id : ids) {
      const auto at = std::find(slot_expert_.begin(), slot_expert_.end(), id);
      if (at == slot_expert_.end()) {
        misses.push_back(id);
      } else {
        hit_slots.push_back(static_cast<size_t>(at - slot_expert_.begin()));
        reserved[hit_slots.back()] = true;
      }
    }
    std::vector<size_t> evictable;
    for (size_t slot = 0; slot < slots; ++slot) {
      if (!reserved[slot]) evictable.push_back(slot);
    }
    std::stable_sort(evictable.begin(), evictable.end(), [this](size_t a, size_t b) {
      const bool empty_a = slot_expert_[a] < 0;
      const bool empty_b = slot_expert_[b] < 0;
      if (empty_a || empty_b) return empty_a && !empty_b;
      const int count_a = use_count_[static_cast<size_t>(slot_expert_[a])];
      const int count_b = use_count_[static_cast<size_t>(slot_expert_[b])];
      if (count_a != count_b) return count_a < count_b;
      return slot_last_use_[a] < slot_last_use_[b];
    });
    ++clock_;
    for (const int32_t id : ids) ++use_count_[static_cast<size_t>(id)];
    for (const size_t slot : hit_slots) slot_last_use_[slot] = clock_;
    for (size_t i = 0; i < misses.size(); ++i) {
      slot_expert_[evictable.at(i)] = misses[i];
      slot_last_use_[evictable[i]] = clock_;
    }
    return static_cast<int>(hit_slots.size());
  }

  Ids Resident() const {
    Ids ids;
    for (const int32_t id : slot_expert_) {
      if (id >= 0) ids.push_back(id);
    }
    std::sort(ids.begin(), ids.end());
    return ids;
  }

 private:
  Ids slot_expert_;
  std::vector<int> slot_last_use_;
  std::vector<int> use_count_;
  int clock_ = 0;
};

// Zipf-like popularity, another permutation of it in each layer; the top_k of log weight plus
// Gumbel noise are a sample without replacement.
Trace ZipfTrace(int layers, int experts, int top_k, int tokens, double skew, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(1e-12, 1.0);
  std::vector<std::vector<double>> log_weights(static_cast<size_t>(layers));
  for (std::vector<double>& weights : log_weights) {
    weights.reserve(static_cast<size_t>(experts));
    for (int rank = 1; rank <= experts; ++rank) weights.push_back(-skew * std::log(rank));
    std::shuffle(weights.begin(), weights.end(), random);
  }
  Trace trace(static_cast<size_t>(tokens), Token(static_cast<size_t>(layers)));
  for (Token& token : trace) {
    for (size_t layer = 0; layer < token.size(); ++layer) {
      std::vector<std::pair<double, int32_t>> scores;
      scores.reserve(static_cast<size_t>(experts));
      for (int32_t e = 0; e < experts; ++e) {
        scores.emplace_back(
            log_weights[layer][static_cast<size_t>(e)] - std::log(-std::log(uniform(random))), e);
      }
      std::partial_sort(scores.begin(), scores.begin() + top_k, scores.end(), std::greater<>());
      for (int i = 0; i < top_k; ++i) token[layer].push_back(scores[static_cast<size_t>(i)].second);
    }
  }
  return trace;
}

template <typename Policy>
double HitRate(const Trace& trace, int experts, int slots) {
  ImmediateCache<Policy> cache(static_cast<int>(trace[0].size()), experts, slots);
  int64_t hits = 0;
  int64_t requested = 0;
  for (const Token& token : trace) {
    for (size_t layer = 0; layer < token.size(); ++layer) {
      hits += cache.Request(static_cast<int>(layer), token[layer]);
      requested += static_cast<int64_t>(token[layer].size());
    }
  }
  return static_cast<double>(hits) / static_cast<double>(requested);
}

// The optimum that knows the future: evicts what is needed furthest from now, or never keeps it.
double BeladyHitRate(const Trace& trace, int slots) {
  struct Use {
    int64_t key;
    int64_t next;
  };
  std::vector<Use> uses;
  for (const Token& token : trace) {
    for (size_t layer = 0; layer < token.size(); ++layer) {
      for (const int32_t id : token[layer]) {
        uses.push_back({static_cast<int64_t>(layer) * 100000 + id, 0});
      }
    }
  }
  std::map<int64_t, int64_t> next_use;
  for (size_t i = uses.size(); i-- > 0;) {
    const auto at = next_use.find(uses[i].key);
    uses[i].next = at == next_use.end() ? std::numeric_limits<int64_t>::max() : at->second;
    next_use[uses[i].key] = static_cast<int64_t>(i);
  }
  std::map<int64_t, int64_t> cached;              // key -> next use
  std::set<std::pair<int64_t, int64_t>> by_next;  // (next use, key)
  int64_t hits = 0;
  for (const Use& use : uses) {
    const auto at = cached.find(use.key);
    if (at != cached.end()) {
      ++hits;
      by_next.erase({at->second, use.key});
    }
    cached[use.key] = use.next;
    by_next.insert({use.next, use.key});
    if (cached.size() > static_cast<size_t>(slots)) {
      cached.erase(std::prev(by_next.end())->second);
      by_next.erase(std::prev(by_next.end()));
    }
  }
  return static_cast<double>(hits) / static_cast<double>(uses.size());
}

// Keeps the experts that the whole trace uses most, for ever.
double StaticHitRate(const Trace& trace, int slots) {
  std::map<std::pair<size_t, int32_t>, int64_t> counts;
  int64_t requested = 0;
  for (const Token& token : trace) {
    for (size_t layer = 0; layer < token.size(); ++layer) {
      for (const int32_t id : token[layer]) {
        ++counts[{layer, id}];
        ++requested;
      }
    }
  }
  std::vector<int64_t> ordered;
  ordered.reserve(counts.size());
  for (const auto& [key, count] : counts) ordered.push_back(count);
  std::sort(ordered.rbegin(), ordered.rend());
  ordered.resize(std::min(ordered.size(), static_cast<size_t>(slots)));
  // The first use of each is a miss.
  const int64_t hits = std::accumulate(ordered.begin(), ordered.end(), int64_t{0}) -
                       static_cast<int64_t>(ordered.size());
  return static_cast<double>(hits) / static_cast<double>(requested);
}

TEST(LfuPolicy, OneLayerFollowsTheSpecificationExactly) {
  std::mt19937 random(7);
  for (const int slots : {8, 9, 16, 31}) {
    ImmediateCache<LfuPolicy> cache(1, 32, slots);
    SpecifiedLayerCache specified(32, slots);
    Ids ids(32);
    std::iota(ids.begin(), ids.end(), 0);
    for (int round = 0; round < 2000; ++round) {
      std::shuffle(ids.begin(), ids.end(), random);
      const size_t count = 1 + random() % 8;
      // Squaring prefers low ids, so that counts differ.
      Ids request;
      for (const int32_t id : ids) {
        if (request.size() < count && random() % 32 >= static_cast<uint32_t>(id * id / 32)) {
          request.push_back(id);
        }
      }
      ASSERT_EQ(cache.Request(0, request), specified.Request(request));
      ASSERT_EQ(cache.Resident(0), specified.Resident()) << "slots " << slots << " round " << round;
    }
  }
}

TEST(LfuPolicy, CountsSurviveEviction) {
  LfuPolicy policy(1, 4, 1);
  const Ids zero = {0};
  const Ids one = {1};
  policy.OnRequest(0, zero, {});
  policy.OnFill(0, 0, 0, true);
  policy.OnClear(0);
  policy.OnRequest(0, one, {});
  policy.OnRequest(0, zero, {});
  EXPECT_EQ(policy.UseCount(0, 0), 2u);
  EXPECT_EQ(policy.UseCount(0, 1), 1u);
}

TEST(LfuPolicy, GuardsAndEmptySlots) {
  LfuPolicy policy(1, 8, 3);
  std::vector<SlotGuard> guards(3, SlotGuard::kEvictable);
  const Ids ids = {5, 6};
  policy.OnRequest(0, ids, {});
  policy.OnFill(0, 0, 5, true);
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kEvictable), 1);  // the lowest empty one
  policy.OnFill(1, 0, 6, true);
  policy.OnFill(2, 0, 7, false);  // a prediction has no use yet: the first to go
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kEvictable), 2);
  guards[2] = SlotGuard::kPredicted;
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kEvictable), 0);
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kPredicted), 2);
  guards.assign(3, SlotGuard::kHeld);
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kWanted), -1);
}

// Gemma 4 with 2 GiB: 110 slots, and a token needs 240 experts.
constexpr int kLayers = 30;
constexpr int kExperts = 128;
constexpr int kTopK = 8;
constexpr int kSmallPool = 110;

TEST(LfuPolicy, APoolBelowOneTokensCycleSurvivesEqualCounts) {
  // The worst case for recency: every token asks for the same experts, so all counts are always
  // equal. No policy can hit more than 110 of 240.
  Trace trace = ZipfTrace(kLayers, kExperts, kTopK, 1, 1.0, 3);
  trace.resize(40, trace[0]);
  const double rate = HitRate<LfuPolicy>(trace, kExperts, kSmallPool);
  std::printf("same 240 experts per token, 110 slots: LFU %.3f, Belady %.3f\n", rate,
              BeladyHitRate(trace, kSmallPool));
  // A layer's last misses may cost it slots of its own: allow for 8 of them.
  EXPECT_GT(rate, (kSmallPool - kTopK) / 240.0 * 39 / 40 - 0.01);
}

TEST(LfuPolicy, APoolBelowOneTokensCycleKeepsThePopularExperts) {
  for (const double skew : {0.7, 1.0, 1.5}) {
    for (const int tokens : {32, 300}) {
      const Trace trace = ZipfTrace(kLayers, kExperts, kTopK, tokens, skew, 5);
      const double lfu = HitRate<LfuPolicy>(trace, kExperts, kSmallPool);
      const double fixed = StaticHitRate(trace, kSmallPool);
      const double belady = BeladyHitRate(trace, kSmallPool);
      std::printf("Zipf %.1f, %3d tokens, 110 slots: LFU %.3f, best static %.3f, Belady %.3f\n",
                  skew, tokens, lfu, fixed, belady);
      EXPECT_GT(lfu, 0.5 * fixed);
      EXPECT_GT(lfu, 0.03);
      EXPECT_LE(lfu, belady);
    }
  }
}

TEST(LfuPolicy, ALargerPoolHitsMore) {
  const Trace trace = ZipfTrace(kLayers, kExperts, kTopK, 100, 1.0, 11);
  double before = 0;
  for (const int slots : {110, 240, 480, 960, 3840}) {
    const double rate = HitRate<LfuPolicy>(trace, kExperts, slots);
    EXPECT_GT(rate, before) << slots;
    before = rate;
  }
}

// ---- Expected next use ----------------------------------------------------------------------

// Tokens of a topic share experts: each layer keeps a set of which it replaces two per token, and
// changes all of it with the topic.
Trace TopicalTrace(int tokens, int topic_tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int32_t> any(0, kExperts - 1);
  Trace trace(static_cast<size_t>(tokens), Token(kLayers));
  for (size_t t = 0; t < trace.size(); ++t) {
    for (size_t layer = 0; layer < kLayers; ++layer) {
      Ids& ids = trace[t][layer];
      if (t % static_cast<size_t>(topic_tokens) != 0) {
        ids = trace[t - 1][layer];
        std::shuffle(ids.begin(), ids.end(), random);
        ids.resize(kTopK - 2);
      }
      while (ids.size() < kTopK) {
        const int32_t id = any(random);
        if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
      }
    }
  }
  return trace;
}

TEST(NextUsePolicy, APoolBelowOneTokensCycleSurvivesEqualCounts) {
  Trace trace = ZipfTrace(kLayers, kExperts, kTopK, 1, 1.0, 3);
  trace.resize(40, trace[0]);
  EXPECT_GT(HitRate<NextUsePolicy>(trace, kExperts, kSmallPool),
            (kSmallPool - kTopK) / 240.0 * 39 / 40 - 0.02);
}

TEST(NextUsePolicy, KeepsWhatIsInUseNowNotWhatWasInUseMost) {
  const Trace trace = TopicalTrace(300, 60, 17);
  for (const int slots : {kSmallPool, 300, 600}) {
    const double lfu = HitRate<LfuPolicy>(trace, kExperts, slots);
    const double next_use = HitRate<NextUsePolicy>(trace, kExperts, slots);
    const double belady = BeladyHitRate(trace, slots);
    std::printf("topics, %d slots: LFU %.3f, next use %.3f, Belady %.3f\n", slots, lfu, next_use,
                belady);
    EXPECT_GT(next_use, lfu + 0.05) << slots;
    EXPECT_LE(next_use, belady) << slots;
  }
}

// Nothing can be known of the next row but popularity, which use counts estimate best. Both
// policies make the same mistakes while counts are small: they differ by which of equals they keep.
TEST(NextUsePolicy, PopularityWithoutPersistenceIsWorthAsMuchAsToLfu) {
  for (const double skew : {0.5, 1.0}) {
    for (const uint32_t seed : {5u, 6u}) {
      const Trace trace = ZipfTrace(kLayers, kExperts, kTopK, 200, skew, seed);
      for (const int slots : {kSmallPool, 480, 1900}) {
        const double lfu = HitRate<LfuPolicy>(trace, kExperts, slots);
        const double next_use = HitRate<NextUsePolicy>(trace, kExperts, slots);
        std::printf("Zipf %.1f, %d slots: LFU %.4f, next use %.4f\n", skew, slots, lfu, next_use);
        EXPECT_GT(next_use, lfu - 0.002) << skew << ", " << seed << ", " << slots;
      }
    }
  }
}

// What a text without topics has taught does not stand in the way when topics come.
TEST(NextUsePolicy, LearnsAnewWhenTheTextChanges) {
  constexpr int kSlots = 300;
  const Trace before = ZipfTrace(kLayers, kExperts, kTopK, 300, 1.0, 8);
  const Trace topical = TopicalTrace(120, 60, 18);
  ImmediateCache<NextUsePolicy> cache(kLayers, kExperts, kSlots);
  int hits = 0;
  for (const Trace* trace : {&before, &topical}) {
    hits = 0;
    for (const Token& token : *trace) {
      for (size_t layer = 0; layer < token.size(); ++layer) {
        hits += cache.Request(static_cast<int>(layer), token[layer]);
      }
    }
  }
  const double fresh = HitRate<NextUsePolicy>(topical, kExperts, kSlots);
  const double taught = hits / (120.0 * kLayers * kTopK);
  std::printf("topics, 300 slots: fresh %.3f, after another text %.3f\n", fresh, taught);
  EXPECT_GT(taught, fresh - 0.05);
}

// A prompt of 100 rows asks for both experts, and one of them is chosen by nearly all rows.
TEST(NextUsePolicy, AWideStepTellsPopularityByItsRows) {
  NextUsePolicy policy(1, 8, 2);
  const std::vector<SlotGuard> guards(2, SlotGuard::kEvictable);
  const Ids ids = {3, 4};
  const Ids choosing = {99, 2};
  policy.OnRequest(0, ids, {.rows = 100, .choosing = choosing});
  policy.OnFill(0, 0, 3, true);
  policy.OnFill(1, 0, 4, true);
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kEvictable), 1);
  // It outweighs a few rows of the contrary.
  const Ids four = {4};
  policy.OnRequest(0, four, {});
  policy.OnHit(1);
  policy.OnRequest(0, ids, {.rows = 100, .choosing = choosing});
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kEvictable), 1);
}

TEST(NextUsePolicy, BetweenEqualsTheLayerWhoseTurnIsFurthestAwayGoesFirst) {
  NextUsePolicy policy(3, 4, 3);
  const std::vector<SlotGuard> guards(3, SlotGuard::kEvictable);
  const Ids ids = {0};
  for (int layer = 0; layer < 3; ++layer) {
    policy.OnRequest(layer, ids, {});
    policy.OnFill(layer, layer, 0, true);
  }
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kEvictable), 2);  // layer 0 comes next
  policy.OnRequest(0, ids, {});
  policy.OnHit(0);
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kEvictable), 0);
}

TEST(NextUsePolicy, GuardsEmptySlotsAndPredictions) {
  NextUsePolicy policy(1, 8, 3);
  std::vector<SlotGuard> guards(3, SlotGuard::kEvictable);
  const Ids ids = {5, 6};
  policy.OnRequest(0, ids, {});
  policy.OnFill(0, 0, 5, true);
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kEvictable), 1);  // the lowest empty one
  policy.OnFill(1, 0, 6, true);
  policy.OnFill(2, 0, 7, false);  // never asked for: waits longest
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kEvictable), 2);
  guards[2] = SlotGuard::kHeld;
  const Ids only_six = {6};
  policy.OnRequest(0, only_six, {});
  policy.OnHit(1);
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kEvictable), 0);
  guards.assign(3, SlotGuard::kHeld);
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kWanted), -1);
}

// ---- The others of the laboratory -----------------------------------------------------------

TEST(LruPolicy, NeverHitsBelowOneTokensCycle) {
  Trace trace = ZipfTrace(kLayers, kExperts, kTopK, 1, 1.0, 3);
  trace.resize(10, trace[0]);
  EXPECT_EQ(HitRate<LruPolicy>(trace, kExperts, kSmallPool), 0);
  EXPECT_GT(HitRate<LruPolicy>(trace, kExperts, 240), 0.89);
}

TEST(AgedLfuPolicy, ForgetsOldFavourites) {
  AgedLfuPolicy policy(1, 4, 2);
  const std::vector<SlotGuard> guards(2, SlotGuard::kEvictable);
  const Ids zero = {0};
  const Ids one = {1};
  policy.OnRequest(0, zero, {});
  policy.OnFill(0, 0, 0, true);
  for (int i = 0; i < 9; ++i) policy.OnRequest(0, zero, {});
  policy.OnRequest(0, one, {});
  policy.OnFill(1, 0, 1, true);
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kEvictable), 1);  // 10 uses against 1
  // 300 turns later the ten uses weigh 10 * 2^(-300 / 64) = 0.4, and one recent use 1.
  const Ids two = {2};
  for (int i = 0; i < 300; ++i) policy.OnRequest(0, two, {});
  policy.OnRequest(0, one, {});
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kEvictable), 0);
}

TEST(S3FifoPolicy, NewcomersLeaveThroughTheSmallQueueUnlessUsedAgain) {
  S3FifoPolicy policy(1, 32, 4);
  const std::vector<SlotGuard> guards(4, SlotGuard::kEvictable);
  for (int slot = 0; slot < 4; ++slot) policy.OnFill(slot, 0, slot, true);
  policy.OnHit(0);
  policy.OnHit(0);  // the oldest has been used again: it moves to the main queue
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kEvictable), 1);
  policy.OnClear(1);
  // A key that was evicted from the small queue comes back into the main queue, and stays while the
  // small one has something to give.
  policy.OnFill(1, 0, 1, true);
  EXPECT_EQ(policy.ChooseVictim(guards, SlotGuard::kEvictable), 2);
}

}  // namespace
}  // namespace mference
