// The memory plan: what each part of a loaded model gets of the budget the user stated.
//
// A pure function of sizes, so that `mference plan` can answer before anything is loaded, and the
// loader, which asks the same question, prints the same answer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/ledger.h"
#include "base/machine.h"
#include "experts/slot_count.h"

namespace mference {

struct MemoryPlanInput {
  uint64_t budget_bytes = 0;
  std::vector<LedgerPart> fixed;  // weights, tokenizer, program: what cannot shrink
  uint64_t state_bytes = 0;       // of one sequence of the asked context
  std::function<uint64_t(int32_t rows)> scratch_bytes;
  int64_t context = 0;
  int32_t chunk_rows = 0;  // 0: as large as pays within the budget
  // What the prefix cache can make use of, and the least that is worth having. It never takes slots
  // that leave fewer than 16 per layer (or than were asked for), nor more than an eighth of what it
  // shares with them.
  uint64_t prompt_cache_bytes = 0;
  uint64_t least_prompt_cache_bytes = 0;
  // Of the part "weights": tables whose rows may be read from the file instead.
  uint64_t table_bytes = 0;
  SlotRequest slots;
  SlotFacts slot_facts;  // available_bytes is ignored
};

struct MemoryPlan {
  uint64_t budget_bytes = 0;
  std::vector<LedgerPart> parts;  // everything, slots last
  uint64_t planned_bytes = 0;     // sum of the parts
  int32_t chunk_rows = 0;
  uint64_t prompt_cache_bytes = 0;
  uint64_t tables_in_file_bytes = 0;   // not held: rows are read as they are looked up; 0: all held
  int slots = 0;                       // of the one pool
  int all_experts = 0;                 // slots that would hold every expert
  uint64_t smallest_budget_bytes = 0;  // below it nothing fits: the narrowest chunk, top_k slots

  // The same as people are told it: whole MiB, rounded up, so that it works as a --memory.
  uint64_t smallest_budget_mib() const;
};

// Fits chunk width and slots into the budget. A chunk starts at 128 rows (fewer where the budget
// is tight) and doubles while its scratch takes at most an eighth of what slots and scratch share:
// every further chunk of a prompt reads the experts again. Tables are left in the file where
// memory is tight: a row costs three small reads per token, an expert that slots for the table's
// bytes would have held costs a large one. Throws kOutOfBudget naming the parts and
// the smallest budget that would do.
MemoryPlan PlanMemory(const MemoryPlanInput& input);

// LoadOptions::context for AutomaticContext.
inline constexpr int64_t kAutomaticContext = 0;

// The context behind `--context auto`: the largest of 4K, 8K, 16K and 32K tokens, up to
// `max_context`, that leaves at least 16 slots per layer; the smallest if none does.
// `state_bytes` says what a sequence of so many tokens takes; the input's own and its context do
// not matter. Throws nothing for want of memory: PlanMemory does, with the figures.
int64_t AutomaticContext(const MemoryPlanInput& input, int64_t max_context,
                         const std::function<uint64_t(int64_t context)>& state_bytes);

// The budget behind `--memory auto`: nine tenths of what machine and control group can give now, so
// that other programs keep working.
uint64_t AutomaticBudget(const MachineMemory& machine);

// Readable lines: part, size, and for slots their number.
std::string DescribePlan(const MemoryPlan& plan);

}  // namespace mference
