// Maple's resident tensors, in the order an install stores them.
#pragma once

#include <vector>

#include "format/arch_config.h"
#include "model/checkpoint_schema.h"
#include "model/maple/config.h"

namespace mference::maple {

std::vector<TensorSpec> ResidentTensors(const ArchConfig& arch);

}  // namespace mference::maple
