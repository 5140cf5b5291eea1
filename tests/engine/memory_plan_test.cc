// The figures are those of the family specification for Gemma 4: resident weights 1,353,771,068
// bytes, state 319,815,680 at 4K, 3,358,720 bytes a slot, 30 layers of 128 experts, top 8.
#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/units.h"

namespace mference {
namespace {

MemoryPlanInput Gemma4(uint64_t budget_bytes) {
  MemoryPlanInput input;
  input.budget_bytes = budget_bytes;
  input.fixed = {{"program", 32 * kMiB}, {"weights", 1353771068}, {"tokenizer", 40 * kMiB}};
  input.state_bytes = 319815680;
  input.scratch_bytes = [](int32_t rows) { return static_cast<uint64_t>(rows) * 160 * kKiB; };
  input.context = 4096;
  input.slot_facts = {.moe_layers = 30,
                      .experts_per_layer = 128,
                      .top_k = 8,
                      .blob_bytes = 3358720,
                      .available_bytes = 0};
  return input;
}

TEST(MemoryPlan, TwoGibibytesLeaveAboutAHundredSlots) {
  const MemoryPlan plan = PlanMemory(Gemma4(2 * kGiB));
  EXPECT_EQ(plan.chunk_rows, 256);  // 40 MiB of scratch, under an eighth of the 377 MiB shared
  // (2,147,483,648 - 32 MiB - 1,353,771,068 - 40 MiB - 319,815,680 - 40 MiB) / 3,358,720, less the
  // 513th part for page tables: 106.1 - 0.2
  EXPECT_EQ(plan.slots, 105);
  EXPECT_LE(plan.planned_bytes, plan.budget_bytes);
}

// Snapshots and parked conversations never take slots below 16 per layer, nor more than an eighth.
TEST(MemoryPlan, ThePromptCacheTakesWhatSlotsCanSpare) {
  constexpr uint64_t kSlot = 3358720;
  const auto plan_with = [](uint64_t budget_bytes, SlotRequest slots = {}) {
    MemoryPlanInput input = Gemma4(budget_bytes);
    input.prompt_cache_bytes = 2 * kGiB;
    input.least_prompt_cache_bytes = 100 * kMiB;
    input.slots = slots;
    return PlanMemory(input);
  };
  EXPECT_EQ(plan_with(2 * kGiB).prompt_cache_bytes, 0u);
  EXPECT_EQ(plan_with(2 * kGiB).slots, PlanMemory(Gemma4(2 * kGiB)).slots);

  const MemoryPlan roomy = plan_with(6 * kGiB);
  const uint64_t shared = roomy.prompt_cache_bytes + roomy.parts.back().bytes;
  EXPECT_NEAR(static_cast<double>(roomy.prompt_cache_bytes), static_cast<double>(shared) / 8,
              kSlot);
  EXPECT_LE(roomy.planned_bytes, roomy.budget_bytes);
  EXPECT_GE(roomy.slots, 16 * 30);

  // Where an eighth would leave fewer than 16 per layer, only what is above them.
  uint64_t budget = 3 * kGiB;
  while (plan_with(budget).prompt_cache_bytes == 0) budget += 16 * kMiB;
  const MemoryPlan least = plan_with(budget);
  EXPECT_GE(least.prompt_cache_bytes, 100 * kMiB);
  EXPECT_GE(least.slots, 16 * 30);

  // Slots that were asked for come first.
  const MemoryPlan asked =
      plan_with(6 * kGiB, {.kind = SlotRequest::Kind::kPerLayer, .per_layer = 32});
  EXPECT_EQ(asked.slots, 32 * 30);
  EXPECT_GT(asked.prompt_cache_bytes, 0u);
  EXPECT_EQ(plan_with(60 * kGiB).prompt_cache_bytes, 2 * kGiB) << "no more than is of use";
}

// The rows of an embedding that is not the head are read from the file where that buys slots that
// matter, and where nothing else would fit.
TEST(MemoryPlan, TablesStayInTheFileWhereMemoryIsTight) {
  constexpr uint64_t kTable = 286064640;
  const auto plan_with = [](uint64_t budget_bytes, SlotRequest slots = {}) {
    MemoryPlanInput input = Gemma4(budget_bytes);
    input.table_bytes = kTable;
    input.slots = slots;
    return PlanMemory(input);
  };
  const MemoryPlan tight = plan_with(2 * kGiB);
  EXPECT_EQ(tight.tables_in_file_bytes, kTable);
  EXPECT_GE(tight.slots, PlanMemory(Gemma4(2 * kGiB)).slots + 60);
  EXPECT_EQ(tight.parts[1].bytes, 1353771068 - kTable);
  EXPECT_LE(tight.planned_bytes, tight.budget_bytes);
  EXPECT_NE(DescribePlan(tight).find("embedding rows"), std::string::npos);

  const MemoryPlan roomy = plan_with(12 * kGiB);
  EXPECT_EQ(roomy.tables_in_file_bytes, 0u);
  EXPECT_EQ(roomy.slots, PlanMemory(Gemma4(12 * kGiB)).slots);
  EXPECT_EQ(roomy.smallest_budget_bytes, tight.smallest_budget_bytes);

  // The smallest budget is that without the table, and it works.
  EXPECT_EQ(plan_with(tight.smallest_budget_bytes).slots, 8);
  EXPECT_THROW(plan_with(tight.smallest_budget_bytes - 1), Error);
  // Slots that were asked for, which fit only without it.
  const SlotRequest eight{.kind = SlotRequest::Kind::kPerLayer, .per_layer = 8};
  EXPECT_EQ(plan_with(3 * kGiB, eight).tables_in_file_bytes, 0u);
  const uint64_t needed = plan_with(3 * kGiB, eight).planned_bytes - 100 * kMiB;
  EXPECT_EQ(plan_with(needed, eight).tables_in_file_bytes, kTable);
}

TEST(MemoryPlan, AmpleBudgetsHoldEveryExpertAndTheWholePrompt) {
  const MemoryPlan plan = PlanMemory(Gemma4(20 * kGiB));
  EXPECT_EQ(plan.slots, 30 * 128);
  EXPECT_EQ(plan.chunk_rows, 4096);
}

TEST(MemoryPlan, TheChunkNarrowsBeforeTheModelIsRefused) {
  MemoryPlanInput input = Gemma4(0);
  const uint64_t smallest = [&] {
    try {
      PlanMemory(input);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
    }
    return 32 * kMiB + 1353771068 + 40 * kMiB + 319815680 + 8 * 160 * kKiB + 8 * 3358720 +
           52480;  // page tables: 8 * 3,358,720 / 512
  }();
  input.budget_bytes = smallest;
  const MemoryPlan plan = PlanMemory(input);
  EXPECT_EQ(plan.chunk_rows, 8);
  EXPECT_EQ(plan.slots, 8);
  EXPECT_EQ(plan.smallest_budget_bytes, smallest);
  input.budget_bytes = smallest - 1;
  EXPECT_THROW(PlanMemory(input), Error);
}

TEST(MemoryPlan, TheRefusalNamesABudgetThatWorks) {
  try {
    PlanMemory(Gemma4(kGiB));
    FAIL() << "1 GiB cannot hold 1.26 GiB of weights";
  } catch (const Error& error) {
    const std::string message = error.what();
    const size_t at = message.find("--memory ");
    ASSERT_NE(at, std::string::npos) << message;
    const uint64_t suggestion = ParseByteCount(message.substr(at + 9));
    EXPECT_GE(PlanMemory(Gemma4(suggestion)).slots, 8);
  }
}

TEST(MemoryPlan, AnAskedForChunkOrSlotCountIsKeptOrRefused) {
  MemoryPlanInput input = Gemma4(2 * kGiB);
  input.chunk_rows = 64;
  EXPECT_EQ(PlanMemory(input).chunk_rows, 64);
  input.chunk_rows = 4096;  // 640 MiB of scratch
  EXPECT_THROW(PlanMemory(input), Error);
  input = Gemma4(4 * kGiB);
  input.slots = ParseSlotRequest("16");
  EXPECT_EQ(PlanMemory(input).slots, 480);
  input.slots = ParseSlotRequest("resident");
  EXPECT_THROW(PlanMemory(input), Error);
}

TEST(AutomaticBudget, LeavesATenthOfWhatCanBeHad) {
  EXPECT_EQ(AutomaticBudget({.total_bytes = 8000, .available_bytes = 5000}), 4500u);
  EXPECT_EQ(AutomaticBudget({.total_bytes = 8000,
                             .available_bytes = 5000,
                             .cgroup_limit_bytes = 2000,
                             .cgroup_used_bytes = 1000}),
            900u);
}

}  // namespace
}  // namespace mference
