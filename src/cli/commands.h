// Every command of the program, one function each that declares its arguments and what it does.
#pragma once

#include "cli/command_line.h"

namespace mference::cli {

void AddInstallCommand(CommandSet& commands);
void AddListCommand(CommandSet& commands);
void AddInfoCommand(CommandSet& commands);
void AddPlanCommand(CommandSet& commands);
void AddVerifyCommand(CommandSet& commands);
void AddRemoveCommand(CommandSet& commands);
void AddRunCommand(CommandSet& commands);
void AddChatCommand(CommandSet& commands);
void AddServeCommand(CommandSet& commands);
// For tests and scripts.
void AddTokenizeCommand(CommandSet& commands);
void AddRenderCommand(CommandSet& commands);
void AddParseCommand(CommandSet& commands);
void AddLogitsCommand(CommandSet& commands);
void AddPerplexityCommand(CommandSet& commands);
void AddBenchCommand(CommandSet& commands);
void AddReplayCommand(CommandSet& commands);
void AddSynthCommand(CommandSet& commands);

}  // namespace mference::cli
