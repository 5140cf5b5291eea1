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
// Share of slots and prefix cache together that the latter may take.
constexpr uint64_t kPromptCacheShare = 8;
constexpr int kLeastSlotsPerLayer = 16;
// Tables are left in the file where slots hold less than this share of the experts.
constexpr int kTightShare = 4;

uint64_t SlotPoolBytes(const MemoryPlanInput& input, int slots) {
  return static_cast<uint64_t>(slots) * SlotBytes(input.slot_facts.blob_bytes);
}

int32_t WidestUsefulChunk(const MemoryPlanInput& input) {
  return static_cast<int32_t>(std::clamp<int64_t>(input.context, kNarrowestChunk, kWidestChunk));
}

// The kernel keeps a page table of 4 KiB for each huge page of 2 MiB, and charges for it: 13 MB
// beside 6.4 GB of slots. No part of the ledger, but room that slots must leave.
constexpr uint64_t kBytesPerPageTableByte = 512;

uint64_t WithPageTables(uint64_t bytes) {
  return bytes + (bytes + kBytesPerPageTableByte - 1) / kBytesPerPageTableByte;
}

uint64_t WithoutPageTables(uint64_t bytes) {
  return bytes * kBytesPerPageTableByte / (kBytesPerPageTableByte + 1);
}

// The widest chunk that leaves room for top_k slots, by the rule in the header; 0 if none does.
int32_t ChooseChunk(const MemoryPlanInput& input, uint64_t shared_bytes) {
  const uint64_t least_slots = WithPageTables(SlotPoolBytes(input, input.slot_facts.top_k));
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

// The prefix cache's part of what it shares with the slots, by the rule in the header.
uint64_t PromptCacheBytes(const MemoryPlanInput& input, uint64_t available_bytes) {
  const SlotFacts& facts = input.slot_facts;
  const int all = facts.moe_layers * facts.experts_per_layer;
  int floor = kLeastSlotsPerLayer * facts.moe_layers;
  if (input.slots.kind == SlotRequest::Kind::kPerLayer) {
    floor = input.slots.per_layer * facts.moe_layers;
  } else if (input.slots.kind == SlotRequest::Kind::kResident) {
    floor = all;
  }
  const uint64_t floor_bytes = WithPageTables(SlotPoolBytes(input, std::min(floor, all)));
  if (available_bytes <= floor_bytes) return 0;
  const uint64_t bytes = std::min({input.prompt_cache_bytes, available_bytes - floor_bytes,
                                   available_bytes / kPromptCacheShare});
  return bytes < input.least_prompt_cache_bytes ? 0 : bytes;
}

[[noreturn]] void Refuse(const MemoryPlan& plan, const MemoryPlanInput& input) {
  std::string parts;
  for (const LedgerPart& part : plan.parts) {
    parts += fmt::format("{}, ", fmt::format("{} {}", part.name, FormatByteCount(part.bytes)));
  }
  Fail(ErrorCode::kOutOfBudget,
       "this model does not fit in {}: {}and at least {} expert slots of {} each; the smallest "
       "budget that works with a context of {} is --memory {}MiB",
       FormatByteCount(input.budget_bytes), parts, input.slot_facts.top_k,
       FormatByteCount(SlotBytes(input.slot_facts.blob_bytes)), input.context,
       plan.smallest_budget_mib());
}

// The plan with the tables where `input` has them.
MemoryPlan PlanParts(const MemoryPlanInput& input) {
  MemoryPlan plan;
  plan.budget_bytes = input.budget_bytes;
  plan.all_experts = input.slot_facts.moe_layers * input.slot_facts.experts_per_layer;
  plan.parts = input.fixed;
  plan.parts.push_back({"sequence state", input.state_bytes});
  uint64_t fixed_bytes = 0;
  for (const LedgerPart& part : plan.parts) fixed_bytes += part.bytes;
  const int32_t narrowest = input.chunk_rows > 0 ? input.chunk_rows : kNarrowestChunk;
  plan.smallest_budget_bytes = fixed_bytes + input.scratch_bytes(narrowest) +
                               WithPageTables(SlotPoolBytes(input, input.slot_facts.top_k));

  const uint64_t shared_bytes = input.budget_bytes - std::min(input.budget_bytes, fixed_bytes);
  plan.chunk_rows = ChooseChunk(input, shared_bytes);
  if (plan.chunk_rows == 0) Refuse(plan, input);
  const uint64_t scratch_bytes = input.scratch_bytes(plan.chunk_rows);
  plan.parts.push_back({"scratch", scratch_bytes});

  SlotFacts facts = input.slot_facts;
  plan.prompt_cache_bytes = PromptCacheBytes(input, shared_bytes - scratch_bytes);
  if (plan.prompt_cache_bytes > 0) plan.parts.push_back({"prompt cache", plan.prompt_cache_bytes});
  facts.available_bytes = WithoutPageTables(shared_bytes - scratch_bytes - plan.prompt_cache_bytes);
  plan.slots = SlotCount(input.slots, facts);
  plan.parts.push_back({"expert slots", SlotPoolBytes(input, plan.slots)});
  for (const LedgerPart& part : plan.parts) plan.planned_bytes += part.bytes;
  return plan;
}

}  // namespace

uint64_t MemoryPlan::smallest_budget_mib() const {
  return RoundUp(smallest_budget_bytes, kMiB) / kMiB;
}

MemoryPlan PlanMemory(const MemoryPlanInput& input) {
  if (input.table_bytes == 0) return PlanParts(input);
  try {
    MemoryPlan plan = PlanParts(input);
    const bool tight =
        input.slots.kind == SlotRequest::Kind::kAuto && plan.slots < plan.all_experts / kTightShare;
    if (!tight) {
      plan.smallest_budget_bytes -= input.table_bytes;
      return plan;
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfBudget) throw;
  }
  MemoryPlanInput reading = input;
  for (LedgerPart& part : reading.fixed) {
    if (part.name == "weights") part.bytes -= input.table_bytes;
  }
  MemoryPlan plan = PlanParts(reading);
  plan.tables_in_file_bytes = input.table_bytes;
  return plan;
}

int64_t AutomaticContext(const MemoryPlanInput& input, int64_t max_context,
                         const std::function<uint64_t(int64_t)>& state_bytes) {
  constexpr int64_t kContexts[] = {32768, 16384, 8192, 4096};
  constexpr int kSlotsPerLayer = 16;
  MemoryPlanInput attempt = input;
  for (const int64_t context : kContexts) {
    attempt.context = std::min(context, max_context);
    attempt.state_bytes = state_bytes(attempt.context);
    try {
      const MemoryPlan plan = PlanMemory(attempt);
      const int enough = std::min(kSlotsPerLayer * input.slot_facts.moe_layers, plan.all_experts);
      if (plan.slots >= enough) return attempt.context;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfBudget) throw;
    }
  }
  return attempt.context;
}

uint64_t AutomaticBudget(const MachineMemory& machine) { return machine.usable_bytes() / 10 * 9; }

std::string DescribePlan(const MemoryPlan& plan) {
  std::string text;
  for (const LedgerPart& part : plan.parts) {
    text += fmt::format("  {:<16} {:>12}", part.name, FormatByteCount(part.bytes));
    if (part.name == "expert slots") {
      text += fmt::format("   {} of {} experts", plan.slots, plan.all_experts);
    } else if (part.name == "weights" && plan.tables_in_file_bytes > 0) {
      text += fmt::format("   embedding rows ({}) read from the file",
                          FormatByteCount(plan.tables_in_file_bytes));
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
