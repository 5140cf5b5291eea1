// config.json of a synthetic checkpoint: what the family's loader derives `arch` from.
#pragma once

#include <string>

#include "format/arch_config.h"

namespace mference {

// In the published layout, quantisation rules included. kInvalidArgument for a family that cannot
// be written here.
std::string SyntheticConfigJson(const ArchConfig& arch);

// Samples, so that a reply does not end in a circle.
std::string SyntheticGenerationConfigJson(const ArchConfig& arch);

}  // namespace mference
