// The token loop allocates nothing.
#include <gtest/gtest.h>

#include <memory>

#include "base/work_counts.h"
#include "experts/blob_fixture.h"
#include "experts/expert_io.h"
#include "experts/expert_store.h"

namespace mference {
namespace {

TEST(ExpertStoreAllocation, NoneAfterTheFirstUseOfALayer) {
  if (!CountedWork()) GTEST_SKIP() << "a sanitizer owns the allocator";
  const int64_t probe = CountedWork()->allocations;
  { const Ids heap = Range(1000); }
  ASSERT_GT(CountedWork()->allocations, probe) << "nothing is being counted";
  const BlobFiles files(2, 32, 16384);
  for (const ExpertIo mode : {ExpertIo::kBuffered, ExpertIo::kDirect}) {
    const IoChoice choice = ChooseIo(mode, 0, 0);
    MemoryLedger ledger(uint64_t{1} << 30);
    auto memory = std::make_unique<HostSlotMemory>(ledger, 9, files.blob_bytes());
    auto reader = MakeBlobReader(choice, {}, memory->ReadRegion(), memory->slot_bytes());
    ExpertStoreOptions options;
    options.top_k = 4;
    options.direct_io = choice.direct;
    ExpertStore store(files.Describe(), std::move(memory),
                      std::make_unique<NextUsePolicy>(2, 32, 9), std::move(reader), options);
    const Ids all = Range(32);
    int64_t before = 0;
    for (int round = 0; round < 12; ++round) {
      if (round == 2) before = CountedWork()->allocations;
      const int layer = round % 2;
      for (const StreamOrder order : {StreamOrder::kAscending, StreamOrder::kHitsFirst}) {
        const auto count = static_cast<size_t>(order == StreamOrder::kAscending ? 32 : 4);
        ExpertStream stream = store.Open(layer, std::span(all).first(count), order);
        store.Prefetch(1 - layer, std::span(all).subspan(static_cast<size_t>(round), 6), 2);
        ExpertLease lease;
        while (stream.Next(lease) == StreamNext::kReady) store.Release(lease);
      }
    }
    EXPECT_EQ(CountedWork()->allocations - before, 0) << store.DescribeIo();
    EXPECT_GT(store.counters().prefetched, 0u);
  }
}

}  // namespace
}  // namespace mference
