// What a token costs a model: bytes to read and operations to do, whatever computes it.
#pragma once

#include <cstdint>

#include "engine/loaded_model.h"

namespace mference::bench {

struct ModelWork {
  double resident_bytes = 0;   // read from memory for every step: all matrices and vectors
  double expert_bytes = 0;     // of one token's routed experts
  double operations = 0;       // of one token, without the head and attention; 2 per multiply-add
  double head_operations = 0;  // of one row of logits

  // Bytes of state that the token at `position` reads (and recurrent state it rewrites).
  static double StateBytes(const StateLayout& layout, int64_t position);
};

ModelWork WorkOf(LoadedModel& loaded);

}  // namespace mference::bench
