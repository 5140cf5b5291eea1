#include "experts/expert_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "experts/blob_fixture.h"
#include "experts/fault_reader.h"
#include "experts/pread_reader.h"

namespace mference {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

constexpr uint64_t kBlobBytes = 16384;

class ExpertStoreTest : public testing::Test {
 protected:
  static constexpr int kLayers = 3;
  static constexpr int kExperts = 128;

  // The store over a simulated disk; `disk` stays readable through the pointer.
  TestStore Simulated(int slots, FaultPlan plan = {}, ExpertStoreOptions options = {}) {
    auto reader = std::make_unique<FaultReader>(std::move(plan));
    disk_ = reader.get();
    return {files_, slots, std::move(reader), std::move(options)};
  }
  Served ServeAll(const TestStore& store, int layer, const Ids& ids,
                  StreamOrder order = StreamOrder::kHitsFirst) {
    return Serve(files_, *store.store, layer, ids, order);
  }

  BlobFiles files_{kLayers, kExperts, kBlobBytes};
  FaultReader* disk_ = nullptr;
};

TEST_F(ExpertStoreTest, HitsComeFirstThenMissesAsTheyLand) {
  FaultPlan plan;
  plan.delays = {{files_.Offset(4), 9}, {files_.Offset(5), 3}};
  TestStore store = Simulated(8, plan);
  EXPECT_EQ(ServeAll(store, 0, {1, 2, 3}).last, StreamNext::kEnd);

  // 4 was asked for before 5, whose read overtakes it.
  EXPECT_THAT(ServeAll(store, 0, {4, 3, 5, 1}).experts, ElementsAre(3, 1, 5, 4));
  const ExpertCounters counters = store->counters();
  EXPECT_EQ(counters.requests, 2u);
  EXPECT_EQ(counters.all_hit_requests, 0u);
  EXPECT_EQ(counters.hits, 2u);
  EXPECT_EQ(counters.misses, 5u);
  EXPECT_EQ(counters.reads, 5u);
  EXPECT_EQ(counters.bytes_read, 5 * kBlobBytes);
  EXPECT_EQ(counters.evictions, 0u);
  EXPECT_EQ(store->layer_counters()[0].hits, 2u);
  EXPECT_EQ(store->layer_counters()[0].misses, 5u);
  EXPECT_EQ(store->layer_counters()[1].misses, 0u);
}

TEST_F(ExpertStoreTest, OpenStartsTheReadsAndDoesNotWait) {
  FaultPlan plan;
  plan.max_delay = 100;
  TestStore store = Simulated(8, plan);
  const ExpertStream stream = store->Open(1, Ids{7, 3}, StreamOrder::kHitsFirst);
  EXPECT_THAT(disk_->submitted(), ElementsAre(files_.Offset(7), files_.Offset(3)));
}

TEST_F(ExpertStoreTest, TellsWhetherTheNextExpertIsThereAlready) {
  FaultPlan plan;
  plan.max_delay = 100;
  TestStore store = Simulated(8, plan);
  EXPECT_EQ(ServeAll(store, 0, {1, 2}).last, StreamNext::kEnd);
  ExpertStream stream = store->Open(0, Ids{2, 5, 1}, StreamOrder::kHitsFirst);
  std::vector<ExpertLease> leases(3);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(stream.HasReady());
    EXPECT_EQ(stream.Next(leases[i]), StreamNext::kReady);
  }
  EXPECT_EQ(stream.Next(leases[2]), StreamNext::kReady);  // waits
  EXPECT_FALSE(stream.HasReady());
  for (const ExpertLease& lease : leases) store->Release(lease);
}

TEST_F(ExpertStoreTest, AscendingNeverShowsTheOrderOfArrival) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    FaultPlan plan;
    plan.max_delay = 30;
    plan.seed = seed;
    TestStore store = Simulated(24, plan);
    ServeAll(store, 0, {5, 9, 90});
    const Ids all = Range(kExperts);
    const Served served = ServeAll(store, 0, all, StreamOrder::kAscending);
    EXPECT_EQ(served.last, StreamNext::kEnd);
    EXPECT_EQ(served.experts, all);
  }
}

TEST_F(ExpertStoreTest, AnyPoolServesAllExpertsOfALayer) {
  for (const int slots : {1, 2, 3, 8, 127, 128}) {
    FaultPlan plan;
    plan.max_delay = 5;
    TestStore store = Simulated(slots, plan);
    const Ids all = Range(kExperts);
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_EQ(ServeAll(store, layer, all, StreamOrder::kAscending).experts, all) << slots;
      EXPECT_THAT(ServeAll(store, layer, all).experts, UnorderedElementsAreArray(all)) << slots;
    }
  }
}

TEST_F(ExpertStoreTest, WhenAllSlotsHoldTheStreamTheLastOneIsGivenUpAndReadAgain) {
  TestStore store = Simulated(4);
  ServeAll(store, 0, {4, 5, 6, 7});
  const Ids ids = Range(8);
  EXPECT_EQ(ServeAll(store, 0, ids, StreamOrder::kAscending).experts, ids);
  EXPECT_GE(store->counters().rereads, 1u);
  EXPECT_EQ(store->counters().hits, 4u);
  EXPECT_EQ(store->counters().reads, store->counters().misses + store->counters().rereads);
}

TEST_F(ExpertStoreTest, ReadsRunAheadByABoundedWindow) {
  ExpertStoreOptions options;
  options.read_ahead = 3;
  TestStore store = Simulated(64, {}, options);
  ExpertStream stream = store->Open(0, Range(20), StreamOrder::kAscending);
  EXPECT_EQ(disk_->submitted().size(), 3u);
  ExpertLease lease;
  ASSERT_EQ(stream.Next(lease), StreamNext::kReady);
  ASSERT_EQ(stream.Next(lease), StreamNext::kReady);
  EXPECT_EQ(disk_->submitted().size(), 4u);  // the first delivery made room for one
}

TEST_F(ExpertStoreTest, LeasedSlotsAreNeverReused) {
  TestStore store = Simulated(8);
  ExpertStream stream = store->Open(0, Range(128), StreamOrder::kAscending);
  std::vector<ExpertLease> held(3);
  for (ExpertLease& lease : held) ASSERT_EQ(stream.Next(lease), StreamNext::kReady);
  ExpertLease lease;
  int delivered = 3;
  while (stream.Next(lease) == StreamNext::kReady) {
    ++delivered;
    store->Release(lease);
  }
  EXPECT_EQ(delivered, 128);
  for (const ExpertLease& kept : held) {
    EXPECT_TRUE(files_.Matches(kept.blob, 0, kept.expert));
    store->Release(kept);
  }
}

TEST_F(ExpertStoreTest, LeasesOutliveTheirStream) {
  TestStore store = Simulated(2);
  ExpertLease kept;
  {
    ExpertStream stream = store->Open(0, Ids{1}, StreamOrder::kHitsFirst);
    ASSERT_EQ(stream.Next(kept), StreamNext::kReady);
  }
  ServeAll(store, 1, Range(20));
  EXPECT_TRUE(files_.Matches(kept.blob, 0, 1));
  // Leased or not, it is a hit for others; both leases have to be released.
  ExpertStream again = store->Open(0, Ids{1}, StreamOrder::kHitsFirst);
  ExpertLease second;
  ASSERT_EQ(again.Next(second), StreamNext::kReady);
  EXPECT_EQ(second.slot, kept.slot);
  store->Release(kept);
  ServeAll(store, 1, Range(20));
  EXPECT_TRUE(files_.Matches(second.blob, 0, 1));
  store->Release(second);
}

TEST_F(ExpertStoreTest, WithEverySlotLeasedTheStreamIsBusyAndGoesOnAfterARelease) {
  for (const StreamOrder order : {StreamOrder::kHitsFirst, StreamOrder::kAscending}) {
    TestStore store = Simulated(2);
    ExpertStream stream = store->Open(0, Range(3), order);
    ExpertLease first;
    ExpertLease second;
    ExpertLease third;
    ASSERT_EQ(stream.Next(first), StreamNext::kReady);
    ASSERT_EQ(stream.Next(second), StreamNext::kReady);
    EXPECT_EQ(stream.Next(third), StreamNext::kBusy);
    EXPECT_EQ(stream.Next(third), StreamNext::kBusy);
    EXPECT_TRUE(files_.Matches(first.blob, 0, first.expert));
    EXPECT_TRUE(files_.Matches(second.blob, 0, second.expert));
    store->Release(second);
    ASSERT_EQ(stream.Next(third), StreamNext::kReady);
    EXPECT_EQ(third.slot, second.slot);
    EXPECT_EQ(stream.Next(third), StreamNext::kEnd);
    EXPECT_EQ(stream.Next(third), StreamNext::kEnd);
  }
}

TEST_F(ExpertStoreTest, ProbingDoesNotProtect) {
  TestStore store = Simulated(2);
  ServeAll(store, 0, {1});
  ServeAll(store, 0, {2});
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(store->IsReady(0, 1));
  ServeAll(store, 0, {3});
  EXPECT_FALSE(store->IsReady(0, 1));  // the least recent of two equal counts
  EXPECT_TRUE(store->IsReady(0, 2));
  EXPECT_EQ(store->counters().evictions, 1u);
}

TEST_F(ExpertStoreTest, UseCountsDecideAndSurviveEviction) {
  TestStore store = Simulated(2);
  ServeAll(store, 0, {1});
  ServeAll(store, 0, {1});
  for (const int32_t passing : {2, 3, 4}) ServeAll(store, 0, {passing});
  EXPECT_TRUE(store->IsReady(0, 1));
  ServeAll(store, 0, {2});
  ServeAll(store, 0, {2});  // three uses, although it had been evicted in between
  ServeAll(store, 0, {3});  // two uses now, as many as 1 has, but 1 is in the way
  EXPECT_FALSE(store->IsReady(0, 1));
  EXPECT_TRUE(store->IsReady(0, 2));
}

TEST_F(ExpertStoreTest, LayersShareThePoolAndDoNotMixUp) {
  TestStore store = Simulated(6);
  for (int round = 0; round < 3; ++round) {
    for (int layer = 0; layer < kLayers; ++layer) ServeAll(store, layer, {10, 11});
  }
  EXPECT_EQ(store->counters().misses, 6u);
  EXPECT_EQ(store->counters().hits, 12u);
  EXPECT_EQ(store->counters().all_hit_requests, 6u);
  for (const LayerCounters& layer : store->layer_counters()) {
    EXPECT_EQ(layer.hits, 4u);
    EXPECT_EQ(layer.misses, 2u);
  }
}

// ---- Failures -------------------------------------------------------------------------------

TEST_F(ExpertStoreTest, AReadThatFailsOnceIsRetried) {
  FaultPlan plan;
  plan.faults[files_.Offset(2)] = {{.error = EIO}};
  plan.faults[files_.Offset(3)] = {{.error = EAGAIN, .bytes_read = 4096}};
  TestStore store = Simulated(4, plan);
  EXPECT_THAT(ServeAll(store, 0, {1, 2, 3}, StreamOrder::kAscending).experts, ElementsAre(1, 2, 3));
  EXPECT_EQ(store->counters().retries, 2u);
  EXPECT_EQ(store->counters().failed_reads, 0u);
  EXPECT_EQ(store->counters().reads, 3u);
}

// Whatever the kernel says, and however much of the blob had arrived: one more attempt, and the
// bytes are right.
TEST_F(ExpertStoreTest, EveryKindOfFailureIsRetriedOnce) {
  for (const FaultPlan::Fault fault :
       {FaultPlan::Fault{.error = EIO}, FaultPlan::Fault{.error = EAGAIN},
        FaultPlan::Fault{.error = ECANCELED}, FaultPlan::Fault{.error = ETIMEDOUT},
        FaultPlan::Fault{.error = EIO, .bytes_read = 512}, FaultPlan::Fault{.bytes_read = 512}}) {
    FaultPlan plan;
    plan.faults[files_.Offset(5)] = {fault};
    plan.delays = {{files_.Offset(5), 4}};  // the others overtake it
    TestStore store = Simulated(8, plan);
    EXPECT_EQ(ServeAll(store, 0, {4, 5, 6}).last, StreamNext::kEnd) << fault.error;
    EXPECT_EQ(store->counters().retries, 1u) << fault.error;
    EXPECT_EQ(store->counters().failed_reads, 0u) << fault.error;
  }
}

TEST_F(ExpertStoreTest, AReadThatFailsTwiceSurfacesAndLeavesTheSlotEmpty) {
  for (const StreamOrder order : {StreamOrder::kHitsFirst, StreamOrder::kAscending}) {
    FaultPlan plan;
    plan.faults[files_.Offset(2)] = {{.error = EIO}, {.error = EIO}};
    TestStore store = Simulated(4, plan);
    const Served served = ServeAll(store, 1, {1, 2, 3}, order);
    EXPECT_EQ(served.last, StreamNext::kFailed);
    EXPECT_FALSE(store->IsReady(1, 2));
    EXPECT_EQ(store->last_error().code(), ErrorCode::kIo);
    const std::string message = store->last_error().what();
    EXPECT_THAT(message, HasSubstr("layer 1, expert 2"));
    EXPECT_THAT(message, HasSubstr(files_.Path(1).string()));
    EXPECT_THAT(message, HasSubstr("16384 bytes at offset 32768"));
    EXPECT_THAT(message, HasSubstr("Input/output error"));
    EXPECT_THROW(store->ThrowLastError(), Error);
    EXPECT_EQ(store->counters().failed_reads, 1u);
    // The store is whole: the same request succeeds when the disk does.
    EXPECT_THAT(ServeAll(store, 1, {1, 2, 3}, StreamOrder::kAscending).experts,
                ElementsAre(1, 2, 3));
  }
}

TEST_F(ExpertStoreTest, AFailedStreamStaysFailed) {
  FaultPlan plan;
  plan.faults[files_.Offset(0)] = {{.error = EIO}, {.error = EIO}};
  TestStore store = Simulated(4, plan);
  ExpertStream stream = store->Open(0, Ids{0}, StreamOrder::kHitsFirst);
  ExpertLease lease;
  EXPECT_EQ(stream.Next(lease), StreamNext::kFailed);
  EXPECT_EQ(ServeAll(store, 0, {0}).last, StreamNext::kEnd);
  EXPECT_EQ(stream.Next(lease), StreamNext::kFailed);
}

TEST_F(ExpertStoreTest, AnEarlyEndOfFileIsAnError) {
  FaultPlan plan;
  plan.faults[files_.Offset(2)] = {{.bytes_read = 100}, {.bytes_read = 100}};
  TestStore store = Simulated(4, plan);
  EXPECT_EQ(ServeAll(store, 0, {2}).last, StreamNext::kFailed);
  EXPECT_EQ(store->last_error().code(), ErrorCode::kSizeMismatch);
  EXPECT_THAT(store->last_error().what(), HasSubstr("ends at offset 32868"));
}

TEST_F(ExpertStoreTest, ATruncatedFileIsAnErrorAndOtherExpertsStillWork) {
  std::filesystem::resize_file(files_.Path(0), files_.Offset(100) + 512);
  for (const bool direct : {false, true}) {
    ExpertStoreOptions options;
    options.direct_io = direct;
    TestStore store(files_, 8, std::make_unique<PreadReader>(4, 16), options);
    EXPECT_EQ(ServeAll(store, 0, {99}).last, StreamNext::kEnd);
    EXPECT_EQ(ServeAll(store, 0, {100}).last, StreamNext::kFailed);
    EXPECT_EQ(store->last_error().code(), ErrorCode::kSizeMismatch) << store->last_error().what();
    EXPECT_EQ(ServeAll(store, 0, {101}).last, StreamNext::kFailed);
    EXPECT_EQ(ServeAll(store, 0, {98, 99}).last, StreamNext::kEnd);
  }
}

TEST_F(ExpertStoreTest, AFileMissingAtFirstUseFailsThatStreamOnly) {
  TestStore store = Simulated(8);
  const std::filesystem::path aside = files_.Path(1).string() + ".aside";
  std::filesystem::rename(files_.Path(1), aside);
  ServeAll(store, 0, {1, 2});
  EXPECT_EQ(ServeAll(store, 1, {1, 2}).last, StreamNext::kFailed);
  EXPECT_EQ(store->last_error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(store->last_error().what(), HasSubstr(files_.Path(1).string()));
  EXPECT_THAT(ServeAll(store, 0, {1, 2}).experts, ElementsAre(1, 2));
  std::filesystem::rename(aside, files_.Path(1));
  EXPECT_EQ(ServeAll(store, 1, {1, 2}).last, StreamNext::kEnd);
}

TEST_F(ExpertStoreTest, AFileThatCannotBeReadDirectlyAfterAllIsReadBuffered) {
  FaultPlan plan;
  plan.faults[files_.Offset(3)] = {{.error = EINVAL}};
  ExpertStoreOptions options;
  options.direct_io = true;
  TestStore store = Simulated(8, plan, options);
  EXPECT_EQ(ServeAll(store, 0, {3}).last, StreamNext::kEnd);
  EXPECT_THAT(store->DescribeIo(), HasSubstr("buffered ("));
}

// ---- Abandoned streams ----------------------------------------------------------------------

TEST_F(ExpertStoreTest, AnAbandonedStreamsReadsLandAndAreCached) {
  FaultPlan plan;
  plan.max_delay = 10;
  TestStore store = Simulated(8, plan);
  { const ExpertStream stream = store->Open(0, Ids{1, 2, 3}, StreamOrder::kHitsFirst); }
  // What is still in flight is joined, not read twice.
  EXPECT_THAT(ServeAll(store, 0, {1, 2, 3}, StreamOrder::kAscending).experts, ElementsAre(1, 2, 3));
  EXPECT_EQ(disk_->submitted().size(), 3u);
  const ExpertCounters counters = store->counters();
  EXPECT_EQ(counters.misses, 3u);
  EXPECT_EQ(counters.hits + counters.joins, 3u);
}

TEST_F(ExpertStoreTest, SlotsOfAbandonedReadsAreNotReusedUntilTheyLand) {
  FaultPlan plan;
  plan.delays = {{files_.Offset(1), 50}, {files_.Offset(2), 60}};
  TestStore store = Simulated(2, plan);
  { const ExpertStream stream = store->Open(0, Ids{1, 2}, StreamOrder::kHitsFirst); }
  // The whole pool is in flight: the next stream waits for it.
  EXPECT_THAT(ServeAll(store, 1, {5, 6}, StreamOrder::kAscending).experts, ElementsAre(5, 6));
  EXPECT_EQ(disk_->submitted().size(), 4u);
}

TEST_F(ExpertStoreTest, AFailureOfAnAbandonedReadIsNobodysError) {
  FaultPlan plan;
  plan.faults[files_.Offset(1)] = {{.error = EIO}, {.error = EIO}};
  plan.delays = {{files_.Offset(1), 3}};
  TestStore store = Simulated(4, plan);
  { const ExpertStream stream = store->Open(0, Ids{1}, StreamOrder::kHitsFirst); }
  for (const int32_t other : {5, 6, 7, 8, 9}) {
    EXPECT_EQ(ServeAll(store, 0, {other}).last, StreamNext::kEnd);
  }
  EXPECT_EQ(store->counters().failed_reads, 1u);
  EXPECT_EQ(ServeAll(store, 0, {1}).last, StreamNext::kEnd);
}

TEST_F(ExpertStoreTest, DestructionWaitsForReadsInFlight) {
  TestStore store(files_, 64, std::make_unique<PreadReader>(4, 64));
  const ExpertStream stream = store->Open(0, Range(64), StreamOrder::kHitsFirst);
}

// ---- Prediction -----------------------------------------------------------------------------

ExpertStoreOptions TopK(int top_k) {
  ExpertStoreOptions options;
  options.top_k = top_k;
  return options;
}

TEST_F(ExpertStoreTest, PrefetchReadsWithinItsBudgetAndIsConfirmed) {
  TestStore store = Simulated(16, {}, TopK(2));
  ServeAll(store, 1, {9});
  store->Prefetch(1, Ids{1, 2, 3}, 2);
  EXPECT_EQ(disk_->submitted().size(), 3u);  // 9, then 1 and 2; 3 is over the budget
  EXPECT_THAT(ServeAll(store, 1, {2, 3}, StreamOrder::kAscending).experts, ElementsAre(2, 3));
  const ExpertCounters counters = store->counters();
  EXPECT_EQ(counters.predicted, 3u);
  EXPECT_EQ(counters.prefetched, 2u);
  EXPECT_EQ(counters.confirmed, 1u);
  EXPECT_EQ(counters.misses, 2u);  // 9 and 3
}

TEST_F(ExpertStoreTest, PrefetchWithoutABudgetDoesNothingAndUnopenedLayersAreLeftAlone) {
  TestStore off = Simulated(16);
  ServeAll(off, 1, {9});
  off->Prefetch(1, Ids{1, 2}, 0);
  EXPECT_EQ(disk_->submitted().size(), 1u);
  TestStore on = Simulated(16, {}, TopK(2));
  on->Prefetch(1, Ids{1, 2}, 2);
  EXPECT_TRUE(disk_->submitted().empty());
}

TEST_F(ExpertStoreTest, PrefetchWaitsBehindDemandReads) {
  FaultPlan plan;
  plan.delays = {{files_.Offset(20), 5}};
  TestStore store = Simulated(16, plan, TopK(2));
  ServeAll(store, 1, {9});
  ExpertStream stream = store->Open(0, Ids{20, 21}, StreamOrder::kAscending);
  store->Prefetch(1, Ids{1, 2}, 2);
  EXPECT_EQ(disk_->submitted().size(), 3u);  // 9, 20, 21
  ExpertLease lease;
  ASSERT_EQ(stream.Next(lease), StreamNext::kReady);
  store->Release(lease);
  ASSERT_EQ(stream.Next(lease), StreamNext::kReady);
  store->Release(lease);
  EXPECT_EQ(disk_->submitted().size(), 5u);  // nothing demanded is outstanding any more
  EXPECT_EQ(stream.Next(lease), StreamNext::kEnd);
}

TEST_F(ExpertStoreTest, PredictedExpertsAreProtectedUntilTheirLayerRuns) {
  TestStore store = Simulated(6, {}, TopK(2));
  ServeAll(store, 0, {10});
  ServeAll(store, 1, {9});
  store->Prefetch(1, Ids{1, 2}, 2);
  ServeAll(store, 0, {10, 11, 12, 13, 14, 15});  // more than the four unprotected slots
  EXPECT_TRUE(store->IsReady(0, 15));
  store->ResetCounters();
  ServeAll(store, 1, {3});
  ServeAll(store, 1, {4});
  EXPECT_FALSE(store->IsReady(1, 1) && store->IsReady(1, 2));  // protected no longer
}

TEST_F(ExpertStoreTest, PrefetchLeavesTopKSlotsForTheDemand) {
  TestStore store = Simulated(4, {}, TopK(3));
  ServeAll(store, 1, {9});
  store->Prefetch(1, Ids{1, 2, 3, 4}, 4);
  EXPECT_EQ(store->counters().prefetched, 1u);
}

// What a wide chunk does: the whole next layer is hinted, and its reads begin when the current
// layer has none left.
TEST_F(ExpertStoreTest, AWholeLayerIsReadAheadByABoundedWindow) {
  TestStore store = Simulated(64, {}, TopK(2));
  ServeAll(store, 1, {60});
  const size_t before = disk_->submitted().size();
  ExpertStream stream = store->Open(0, Ids{1, 2, 3}, StreamOrder::kAscending);
  store->Prefetch(1, Range(32), 12);
  EXPECT_EQ(disk_->submitted().size(), before + 3);
  ExpertLease lease;
  while (stream.Next(lease) == StreamNext::kReady) store->Release(lease);
  EXPECT_EQ(disk_->submitted().size(), before + 3 + 12);
  EXPECT_THAT(ServeAll(store, 1, Range(32), StreamOrder::kAscending).experts,
              testing::ElementsAreArray(Range(32)));
  const ExpertCounters counters = store->counters();
  EXPECT_EQ(counters.prefetched, 12u);
  EXPECT_EQ(counters.confirmed, 12u);
  EXPECT_EQ(counters.reads, 1u + 3u + 32u);  // nothing is read twice
}

TEST_F(ExpertStoreTest, AFailedPrefetchIsSilentAndTheDemandTriesAgain) {
  FaultPlan plan;
  plan.faults[files_.Offset(1)] = {{.error = EIO}, {.error = EIO}};
  TestStore store = Simulated(8, plan, TopK(2));
  ServeAll(store, 1, {9});
  store->Prefetch(1, Ids{1}, 2);
  ServeAll(store, 0, {5});
  ServeAll(store, 0, {5});
  EXPECT_EQ(store->counters().failed_reads, 1u);
  EXPECT_THAT(ServeAll(store, 1, {1}).experts, ElementsAre(1));
}

// ---- Construction, misuse, hooks ------------------------------------------------------------

TEST_F(ExpertStoreTest, RefusesAPoolThatCannotHoldOneToken) {
  ExpertStoreOptions options;
  options.top_k = 8;
  EXPECT_THROW(Simulated(7, {}, options), Error);
  EXPECT_EQ(Simulated(8, {}, options)->slots(), 8);
}

TEST_F(ExpertStoreTest, MisuseIsReported) {
  TestStore store = Simulated(8);
  EXPECT_THROW((void)store->Open(-1, Ids{0}, StreamOrder::kHitsFirst), Error);
  EXPECT_THROW((void)store->Open(kLayers, Ids{0}, StreamOrder::kHitsFirst), Error);
  EXPECT_THROW((void)store->Open(0, Ids{}, StreamOrder::kHitsFirst), Error);
  EXPECT_THROW((void)store->Open(0, Ids{kExperts}, StreamOrder::kHitsFirst), Error);
  EXPECT_THROW((void)store->Open(0, Ids{-1}, StreamOrder::kHitsFirst), Error);
  EXPECT_THROW((void)store->Open(0, Ids{3, 4, 3}, StreamOrder::kHitsFirst), Error);
  EXPECT_THROW((void)store->Open(0, Ids{3, 4}, StreamOrder::kAscending, {.rows = 0}), Error);
  for (const Ids& choosing : {Ids{1}, Ids{1, 0}, Ids{5, 1}}) {
    EXPECT_THROW(
        (void)store->Open(0, Ids{3, 4}, StreamOrder::kAscending, {.rows = 4, .choosing = choosing}),
        Error);
  }
  EXPECT_THROW((void)store->last_error(), Error);
  EXPECT_THROW(store->Release(ExpertLease{}), Error);
  ExpertStream stream = store->Open(0, Ids{3}, StreamOrder::kHitsFirst);
  EXPECT_THROW((void)store->Open(0, Ids{4}, StreamOrder::kHitsFirst), Error);
  ExpertLease lease;
  ASSERT_EQ(stream.Next(lease), StreamNext::kReady);
  store->Release(lease);
  EXPECT_THROW(store->Release(lease), Error);
}

TEST_F(ExpertStoreTest, AStreamCanBeMoved) {
  TestStore store = Simulated(8);
  ExpertStream stream;
  ExpertLease lease;
  EXPECT_EQ(stream.Next(lease), StreamNext::kEnd);
  stream = store->Open(0, Ids{3}, StreamOrder::kHitsFirst);
  ExpertStream moved = std::move(stream);
  ASSERT_EQ(moved.Next(lease), StreamNext::kReady);
  EXPECT_EQ(moved.Next(lease), StreamNext::kEnd);
}

TEST_F(ExpertStoreTest, AStreamEndsWithItsLastDelivery) {
  TestStore store = Simulated(8);
  ExpertStream first = store->Open(0, Ids{3}, StreamOrder::kHitsFirst);
  ExpertLease lease;
  ASSERT_EQ(first.Next(lease), StreamNext::kReady);
  ExpertStream second = store->Open(0, Ids{3}, StreamOrder::kHitsFirst);
  EXPECT_EQ(first.Next(lease), StreamNext::kEnd);
  EXPECT_EQ(second.Next(lease), StreamNext::kReady);
}

TEST_F(ExpertStoreTest, TheHookSeesEveryRequest) {
  std::vector<std::pair<int, Ids>> trace;
  ExpertStoreOptions options;
  options.on_open = [&trace](int layer, std::span<const int32_t> ids) {
    trace.emplace_back(layer, Ids(ids.begin(), ids.end()));
  };
  TestStore store = Simulated(8, {}, options);
  ServeAll(store, 2, {7, 1});
  ServeAll(store, 0, {3});
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[0], (std::pair<int, Ids>(2, {7, 1})));
  EXPECT_EQ(trace[1], (std::pair<int, Ids>(0, {3})));
}

TEST_F(ExpertStoreTest, ResetClearsCountersButNotTheCache) {
  TestStore store = Simulated(8);
  ServeAll(store, 0, {1, 2});
  store->ResetCounters();
  EXPECT_EQ(store->counters().misses, 0u);
  EXPECT_EQ(store->layer_counters()[0].misses, 0u);
  ServeAll(store, 0, {1, 2});
  EXPECT_EQ(store->counters().hits, 2u);
  EXPECT_EQ(store->counters().all_hit_requests, 1u);
}

}  // namespace
}  // namespace mference
