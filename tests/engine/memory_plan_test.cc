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
  // (2,147,483,648 - 32 MiB - 1,353,771,068 - 40 MiB - 319,815,680 - 40 MiB) / 3,358,720
  EXPECT_EQ(plan.slots, 106);
  EXPECT_LE(plan.planned_bytes, plan.budget_bytes);
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
    return 32 * kMiB + 1353771068 + 40 * kMiB + 319815680 + 8 * 160 * kKiB + 8 * 3358720;
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
