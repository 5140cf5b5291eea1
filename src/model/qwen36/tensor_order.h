// Qwen 3.6's resident tensors, in the order an install stores them.
#pragma once

#include <vector>

#include "format/arch_config.h"
#include "model/checkpoint_schema.h"
#include "model/qwen36/config.h"

namespace mference::qwen36 {

std::vector<TensorSpec> ResidentTensors(const ArchConfig& arch);

}  // namespace mference::qwen36
