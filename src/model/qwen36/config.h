// Qwen 3.6's config.json: the architecture it describes, or why it cannot be run.
#pragma once

#include "base/json.h"
#include "format/arch_config.h"

namespace mference::qwen36 {

// Throws the reader's error (kSourceInvalid when the catalogue calls) naming the field for a config
// that this family's forward pass could not honour.
ArchConfig DeriveArch(const JsonReader& config);

}  // namespace mference::qwen36
