// A memory plan for a model that is not here: from the numbers of its architecture alone.
//
// Close to what loading would plan, not equal to it: the sequence state follows the family's blocks
// (tests hold it to a loaded model), scratch and tokenizer are rules of thumb.
#pragma once

#include <cstdint>

#include "backend/sequence_state.h"
#include "engine/loaded_model.h"
#include "engine/memory_plan.h"
#include "format/arch_config.h"

namespace mference {

struct ModelSizes {
  ArchConfig arch;
  uint64_t weight_bytes = 0;  // model_weights.bin
  uint64_t expert_stride = 0;
};

// What a sequence of `arch` remembers, with keys and values of `kv_type`.
StateLayout EstimateStateLayout(const ArchConfig& arch, ElementType kv_type);

// The input of PlanMemory for `options`, whose path is not looked at.
MemoryPlanInput EstimatePlanInput(const ModelSizes& sizes, const LoadOptions& options);

}  // namespace mference
