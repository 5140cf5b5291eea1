// DeepSeek-V4-Flash's resident tensors, in the order an install stores them.
#pragma once

#include <vector>

#include "format/arch_config.h"
#include "model/checkpoint_schema.h"
#include "model/deepseek_v4/config.h"

namespace mference::deepseek_v4 {

std::vector<TensorSpec> ResidentTensors(const ArchConfig& arch);

}  // namespace mference::deepseek_v4
