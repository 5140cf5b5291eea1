// Random streams, leases, abandonments, predictions and faults against the one thing that has to
// hold: a lease shows its expert's bytes from delivery to release, and nothing but them.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "experts/blob_fixture.h"
#include "experts/expert_store.h"
#include "experts/fault_reader.h"
#include "experts/pread_reader.h"
#include "experts/uring_reader.h"

namespace mference {
namespace {

constexpr uint64_t kBlobBytes = 16384;
constexpr int kLayers = 4;
constexpr int kExperts = 24;
constexpr int kTopK = 4;

struct SoakResult {
  uint64_t delivered = 0;
  uint64_t failed = 0;
};

class Soak {
 public:
  Soak(const BlobFiles& files, ExpertStore& store, uint32_t seed)
      : files_(files), store_(store), random_(seed) {}

  SoakResult Run(int requests) {
    for (int i = 0; i < requests; ++i) {
      Request();
      if (testing::Test::HasFailure()) return result_;
    }
    ReleaseDownTo(0);
    const ExpertCounters counters = store_.counters();
    EXPECT_EQ(counters.hits + counters.joins + counters.misses, asked_);
    EXPECT_EQ(counters.bytes_read, counters.reads * kBlobBytes);
    return result_;
  }

 private:
  int Draw(int bound) { return static_cast<int>(random_() % static_cast<uint32_t>(bound)); }

  void Request() {
    const int layer = Draw(kLayers);
    const bool prefill = Draw(4) == 0;
    Ids ids = Range(kExperts);
    std::shuffle(ids.begin(), ids.end(), random_);
    ids.resize(1 + static_cast<size_t>(Draw(prefill ? kExperts : kTopK)));
    if (prefill) std::sort(ids.begin(), ids.end());
    if (Draw(3) == 0) {
      Ids hints = Range(kExperts);
      std::shuffle(hints.begin(), hints.end(), random_);
      hints.resize(1 + static_cast<size_t>(Draw(6)));
      store_.Prefetch(Draw(kLayers), hints, Draw(4));
    }

    ExpertStream stream =
        store_.Open(layer, ids, prefill ? StreamOrder::kAscending : StreamOrder::kHitsFirst);
    asked_ += ids.size();
    const int abandon_after = Draw(8) == 0 ? Draw(static_cast<int>(ids.size())) : -1;
    Ids seen;
    ExpertLease lease;
    while (static_cast<int>(seen.size()) != abandon_after) {
      const StreamNext next = stream.Next(lease);
      if (next == StreamNext::kBusy) {
        ASSERT_FALSE(held_.empty());
        ReleaseDownTo(held_.size() - 1);
        continue;
      }
      if (next == StreamNext::kFailed) {
        ++result_.failed;
        return;
      }
      if (next == StreamNext::kEnd) {
        if (!prefill) std::sort(seen.begin(), seen.end());
        if (!prefill) std::sort(ids.begin(), ids.end());
        ASSERT_EQ(seen, ids);
        return;
      }
      ++result_.delivered;
      seen.push_back(lease.expert);
      held_.emplace_back(layer, lease);
      ASSERT_TRUE(files_.Matches(lease.blob, layer, lease.expert));
      // Releases come late and in any order.
      ReleaseDownTo(static_cast<size_t>(Draw(2 * kTopK)));
    }
  }

  void ReleaseDownTo(size_t keep) {
    while (held_.size() > keep) {
      std::swap(held_[random_() % held_.size()], held_.back());
      const auto& [layer, lease] = held_.back();
      ASSERT_TRUE(files_.Matches(lease.blob, layer, lease.expert)) << "changed under its lease";
      store_.Release(lease);
      held_.pop_back();
    }
  }

  const BlobFiles& files_;
  ExpertStore& store_;
  std::mt19937 random_;
  std::vector<std::pair<int, ExpertLease>> held_;
  uint64_t asked_ = 0;
  SoakResult result_;
};

ExpertStoreOptions SoakOptions(uint32_t seed) {
  ExpertStoreOptions options;
  options.top_k = kTopK;
  options.read_ahead = static_cast<int>(1 + seed % 7);
  return options;
}

class ExpertStoreSoak : public testing::TestWithParam<int> {
 protected:
  const int slots_ = GetParam();
  BlobFiles files_{kLayers, kExperts, kBlobBytes};
};

TEST_P(ExpertStoreSoak, SimulatedDiskWithDelaysAndErrors) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FaultPlan plan;
    plan.seed = seed;
    plan.max_delay = static_cast<int>(seed * 3);
    plan.error_rate = seed % 2 == 0 ? 0.1 : 0.0;
    plan.capacity = static_cast<int>(1 + seed % 5 * 4);
    TestStore store(files_, slots_, std::make_unique<FaultReader>(plan), SoakOptions(seed));
    const SoakResult result = Soak(files_, *store.store, seed).Run(300);
    if (HasFailure()) return;
    EXPECT_GT(result.delivered, 300u);
    if (seed % 2 == 1) {
      EXPECT_EQ(result.failed, 0u);
    } else {
      EXPECT_GT(store->counters().retries, 0u);
    }
  }
}

TEST_P(ExpertStoreSoak, PreadPool) {
  TestStore store(files_, slots_, std::make_unique<PreadReader>(4, 16), SoakOptions(3));
  EXPECT_EQ(Soak(files_, *store.store, 3).Run(400).failed, 0u);
}

TEST_P(ExpertStoreSoak, Uring) {
  MemoryLedger ledger(uint64_t{1} << 30);
  std::string refusal;
  auto memory = std::make_unique<HostSlotMemory>(ledger, slots_, kBlobBytes);
  UringOptions uring;
  uring.max_blobs = 12;
  uring.queue_depth = 4;
  uring.min_request_bytes = 4096;
  auto reader = MakeUringReader(uring, memory->ReadRegion(), memory->slot_bytes(), refusal);
  if (reader == nullptr) GTEST_SKIP() << refusal;
  ExpertStoreOptions options = SoakOptions(6);
  options.direct_io = true;
  ExpertStore store(files_.Describe(), std::move(memory),
                    std::make_unique<LfuPolicy>(kLayers, kExperts, slots_), std::move(reader),
                    options);
  EXPECT_EQ(Soak(files_, store, 6).Run(400).failed, 0u);
}

INSTANTIATE_TEST_SUITE_P(Slots, ExpertStoreSoak, testing::Values(kTopK, 5, 9, 30, 96));

}  // namespace
}  // namespace mference
