// The estimate for models that are not here, held to a model that is.
#include "engine/plan_estimate.h"

#include <gtest/gtest.h>

#include "base/units.h"
#include "engine/golden_model.h"
#include "model/catalogue.h"

namespace mference {
namespace {

using testing_support::InstalledSnapshot;

LoadOptions DemoOptions(int64_t context) {
  LoadOptions options;
  options.path = InstalledSnapshot(MFERENCE_DEMO_SNAPSHOT);
  options.memory_budget_bytes = kGiB;
  options.context = context;
  return options;
}

ModelSizes SizesOf(const LoadedModel& loaded) {
  const ModelDirectory& directory = loaded.directory();
  return {.arch = directory.manifest().arch,
          .weight_bytes =
              directory.resident_index().index_bytes + directory.resident_index().resident_bytes,
          .expert_stride = directory.layout().expert_stride};
}

// Exactly the blocks that Gemma 4's forward pass declares.
TEST(PlanEstimateTest, TheStateIsTheModels) {
  for (const int64_t context : {64, 1000, 4096}) {
    const auto loaded = LoadedModel::Load(DemoOptions(context));
    for (const ElementType type : {ElementType::kF16, ElementType::kF32}) {
      const uint64_t per_element = type == ElementType::kF32 ? 2 : 1;
      EXPECT_EQ(EstimateStateLayout(loaded->directory().manifest().arch, type).BytesFor(context),
                loaded->model().state_layout().BytesFor(context) * per_element)
          << context;
    }
  }
}

// Scratch is a rule of thumb: within a factor of two of what the backend asks for.
TEST(PlanEstimateTest, ScratchIsOfTheRightSize) {
  const auto loaded = LoadedModel::Load(DemoOptions(4096));
  const MemoryPlanInput estimate = EstimatePlanInput(SizesOf(*loaded), DemoOptions(4096));
  for (const int32_t rows : {1, 128, 1024, 4096}) {
    const auto actual = static_cast<double>(loaded->backend().ScratchBytes(rows));
    EXPECT_LT(static_cast<double>(estimate.scratch_bytes(rows)), 2 * actual) << rows;
    EXPECT_GT(static_cast<double>(estimate.scratch_bytes(rows)), actual / 2) << rows;
  }
}

// What an install says a model needs must do, so it errs upwards.
TEST(PlanEstimateTest, TheSmallestBudgetIsEnough) {
  const auto loaded = LoadedModel::Load(DemoOptions(4096));
  const MemoryPlan estimate = PlanMemory(EstimatePlanInput(SizesOf(*loaded), DemoOptions(4096)));
  EXPECT_GE(estimate.smallest_budget_bytes, loaded->plan().smallest_budget_bytes);
  EXPECT_LE(estimate.smallest_budget_mib(), loaded->plan().smallest_budget_mib() + 4);
  LoadOptions least = DemoOptions(4096);
  least.memory_budget_bytes = loaded->plan().smallest_budget_mib() * kMiB;
  EXPECT_NO_THROW(LoadedModel::Load(least));
  least.memory_budget_bytes = *least.memory_budget_bytes - kMiB;
  EXPECT_THROW(LoadedModel::Load(least), Error);
}

// What the catalogue says a model needs is about what planning finds.
TEST(PlanEstimateTest, EveryPinnedModelCanBePlanned) {
  for (const PinnedSource& source : PinnedSources()) {
    LoadOptions options;
    options.memory_budget_bytes = source.memory_bytes();
    options.context = 4096;
    const MemoryPlan plan = PlanMemory(EstimatePlanInput(
        {source.arch(), source.plan.weights_file_bytes, source.plan.expert_stride}, options));
    EXPECT_LE(plan.planned_bytes, source.memory_bytes()) << source.name;
    EXPECT_EQ(static_cast<uint64_t>(plan.all_experts) * source.plan.expert_stride,
              source.plan.pool_bytes())
        << source.name;
  }
}

}  // namespace
}  // namespace mference
