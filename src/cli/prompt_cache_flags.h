// The flags that say what is kept of earlier prompts, for commands that hold conversations.
#pragma once

#include "cli/command_line.h"
#include "engine/loaded_model.h"

namespace mference::cli {

// --prompt-cache and its kin. Keeping prefixes in memory becomes the default; warnings and checks
// go to standard error unless the caller sets other receivers. `options` must outlive the parse.
void DeclarePromptCacheFlags(CLI::App& command, PromptCacheOptions& options);

}  // namespace mference::cli
