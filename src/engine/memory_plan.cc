#include "engine/memory_plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "experts/slot_memory.h"

namespace mference {
namespace {

constexpr int32_t kNarrowestChunk = 8;
constexpr int32_t kUsualChunk = 128;
constexpr int32_t kWidestChunk = 4096;
// Share of slots and scratch together that a wide chunk's scratch may take.
constexpr uint64_t kScratchShare = 8;

uint64_t SlotPoolBytes(const MemoryPlanInput& input, int slots) {
  return static_cast<uint64_t>(slots) * SlotBytes(input.slot_facts.blob_bytes);
}

int32_t WidestUsefulChunk(const MemoryPlanInput& input) {
  return static_cast<int32_t>(std::clamp<int64_t>(input.context, kNarrowestChunk, kWidestChunk));
}

// The widest chunk that leaves room for top_k slots, by the rule in the header; 0 if none does.
int32_t ChooseChunk(const MemoryPlanInput& input, uint64_t shared_bytes) {
  const uint64_t least_slots = SlotPoolBytes(input, input.slot_facts.top_k);
  if (shared_bytes < least_slots) return 0;
  const auto fits = [&](int32_t rows) {
    return input.scratch_bytes(rows) <= shared_bytes - least_slots;
  };
  if (input.chunk_rows > 0) return fits(input.chunk_rows) ? input.chunk_rows : 0;
  const int32_t widest = WidestUsefulChunk(input);
  int32_t rows = std::min(kUsualChunk, widest);
  while (rows > kNarrowestChunk && !fits(rows)) rows /= 2;
  if (!fits(rows)) return 0;
  while (rows < widest) {
    const int32_t wider = std::min(rows * 2, widest);
    if (!fits(wider) || input.scratch_bytes(wider) > shared_bytes / kScratchShare) break;
    rows = wider;
  }
  return rows;
}

[[noreturn]] void Refuse(const MemoryPlan& plan, const MemoryPlanInput& input) {
  std::string parts;
  for (const LedgerPart& part : plan.parts) {
    parts += fmt::format("{}, ", fmt::format("{} {}", part.name, FormatByteCount(part.bytes)));
  }
  // Rounded up to what a person would type: the next 16 MiB.
  const uint64_t suggestion = RoundUp(plan.smallest_budget_bytes, 16 * kMiB) / kMiB;
  Fail(ErrorCode::kOutOfBudget,
       "this model does not fit in {}: {}and at least {} expert slots of {} each; the smallest "
       "budget that works with a context of {} is --memory {}MiB",
       FormatByteCount(input.budget_bytes), parts, input.slot_facts.top_k,
       FormatByteCount(SlotBytes(input.slot_facts.blob_bytes)), input.context, suggestion);
}

}  // namespace

MemoryPlan PlanMemory(const MemoryPlanInput& input) {
  MemoryPlan plan;
  plan.budget_bytes = input.budget_bytes;
  plan.all_experts = input.slot_facts.moe_layers * input.slot_facts.experts_per_layer;
  plan.parts = input.fixed;
  plan.parts.push_back({"sequence state", input.state_bytes});
  uint64_t fixed_bytes = 0;
  for (const LedgerPart& part : plan.parts) fixed_bytes += part.bytes;
  const int32_t narrowest = input.chunk_rows > 0 ? input.chunk_rows : kNarrowestChunk;
  plan.smallest_budget_bytes =
      fixed_bytes + input.scratch_bytes(narrowest) + SlotPoolBytes(input, input.slot_facts.top_k);

  const uint64_t shared_bytes = input.budget_bytes - std::min(input.budget_bytes, fixed_bytes);
  plan.chunk_rows = ChooseChunk(input, shared_bytes);
  if (plan.chunk_rows == 0) Refuse(plan, input);
  const uint64_t scratch_bytes = input.scratch_bytes(plan.chunk_rows);
  plan.parts.push_back({"scratch", scratch_bytes});

  SlotFacts facts = input.slot_facts;
  facts.available_bytes = shared_bytes - scratch_bytes;
  plan.slots = SlotCount(input.slots, facts);
  plan.parts.push_back({"expert slots", SlotPoolBytes(input, plan.slots)});
  for (const LedgerPart& part : plan.parts) plan.planned_bytes += part.bytes;
  return plan;
}

uint64_t AutomaticBudget(const MachineMemory& machine) { return machine.usable_bytes() / 10 * 9; }

std::string DescribePlan(const MemoryPlan& plan) {
  std::string text;
  for (const LedgerPart& part : plan.parts) {
    text += fmt::format("  {:<16} {:>12}", part.name, FormatByteCount(part.bytes));
    if (part.name == "expert slots") {
      text += fmt::format("   {} of {} experts", plan.slots, plan.all_experts);
    } else if (part.name == "scratch") {
      text += fmt::format("   chunks of up to {} tokens", plan.chunk_rows);
    }
    text += '\n';
  }
  text += fmt::format("  {:<16} {:>12}   of a budget of {}\n", "total",
                      FormatByteCount(plan.planned_bytes), FormatByteCount(plan.budget_bytes));
  return text;
}

}  // namespace mference
