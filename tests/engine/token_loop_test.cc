// The token loop needs no heap and no mutex, on no thread: counted while a golden model decodes.
#include <gtest/gtest.h>

#include <mutex>
#include <tuple>

#include "base/units.h"
#include "base/work_counts.h"
#include "engine/golden_model.h"

namespace mference {
namespace {

using testing_support::GoldenPath;
using testing_support::InstalledSnapshot;

class TokenLoopTest : public testing::TestWithParam<std::tuple<const char*, ExpertIo>> {};

TEST_P(TokenLoopTest, AllocatesAndLocksNothing) {
  if (!CountedWork()) GTEST_SKIP() << "a sanitizer owns the allocator";
  {
    const WorkCounts before = *CountedWork();
    std::mutex mutex;
    const std::scoped_lock lock(mutex);
    const std::vector<int> heap(1000);
    ASSERT_GT(CountedWork()->allocations, before.allocations) << "nothing is being counted";
    ASSERT_GT(CountedWork()->mutex_locks, before.mutex_locks) << "nothing is being counted";
  }
  const auto& [family, expert_io] = GetParam();
  LoadOptions options;
  options.path = InstalledSnapshot(GoldenPath(family) / "snapshot");
  options.expert_io = expert_io;
  options.memory_budget_bytes = kGiB;
  options.context = 64;
  options.threads = 2;
  // Fewer slots than experts: every token reads some.
  options.slots = {.kind = SlotRequest::Kind::kPerLayer, .per_layer = 1};
  const auto model = LoadedModel::Load(options);
  model->directory().FinishVerification();
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8};
  std::span<const float> logits = model->session().Prefill(prompt).logits;
  std::vector<int32_t> generated;
  generated.reserve(32);
  const SamplingParams sampling{.temperature = 1, .top_k = 8, .seed = 3};
  WorkCounts before;
  // Every layer file is opened with the first tokens.
  for (int i = 0; i < 32; ++i) {
    if (i == 8) before = *CountedWork();
    const int32_t id =
        model->sampler().Sample(logits, generated, static_cast<uint64_t>(i), sampling);
    ASSERT_GE(id, 0);
    generated.push_back(id);
    logits = model->session().Append(id);
  }
  EXPECT_EQ(CountedWork()->allocations - before.allocations, 0);
  EXPECT_EQ(CountedWork()->mutex_locks - before.mutex_locks, 0);
  EXPECT_GT(model->experts().counters().misses, 0u);
}

INSTANTIATE_TEST_SUITE_P(Families, TokenLoopTest,
                         testing::Combine(testing::Values("gemma4", "qwen3_5_moe"),
                                          testing::Values(ExpertIo::kBuffered, ExpertIo::kDirect)));

}  // namespace
}  // namespace mference
