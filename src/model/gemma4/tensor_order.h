// Gemma 4's resident tensors, in the order an install stores them.
#pragma once

#include <vector>

#include "format/arch_config.h"
#include "model/checkpoint_schema.h"
#include "model/gemma4/config.h"

namespace mference::gemma4 {

std::vector<TensorSpec> ResidentTensors(const ArchConfig& arch);

}  // namespace mference::gemma4
