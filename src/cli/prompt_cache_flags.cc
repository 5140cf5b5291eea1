#include "cli/prompt_cache_flags.h"

#include "base/units.h"
#include "cli/console.h"

namespace mference::cli {
namespace {

PromptCacheOptions::Memory ParseMode(const std::string& text) {
  if (text == "off") return PromptCacheOptions::Memory::kOff;
  if (text == "auto") return PromptCacheOptions::Memory::kAuto;
  Fail(ErrorCode::kInvalidArgument, "expected off or auto");
}

}  // namespace

void DeclarePromptCacheFlags(CLI::App& command, PromptCacheOptions& options) {
  options.memory = PromptCacheOptions::Memory::kAuto;
  options.on_warning = [](const std::string& message) { Console().Note("warning: {}\n", message); };
  options.on_check = [](const PrefillCheck& check) { Console().Note("{}\n", check.Message()); };
  AddParsed(command, "--prompt-cache-mode", "MODE",
            "State of earlier prompts in memory, besides the live conversation's: auto (default: "
            "what the budget can spare) or off",
            [&options](const std::string& text) { options.memory = ParseMode(text); });
  AddPath(command, "--prompt-cache", "DIR",
          "Keep the state of conversations in this directory, so that they go on after a restart",
          options.directory);
  AddParsed(command, "--prompt-cache-limit", "SIZE",
            "Most bytes in it (8GiB); what was used longest ago goes first",
            [&options](const std::string& text) { options.limit_bytes = ParseByteCount(text); });
  AddSwitch(command, "--prompt-cache-clear", "Empty it first", options.clear);
  AddSwitch(command, "--prompt-cache-verify",
            "Compute every prompt that reuses something from nothing too, and compare: slow, and "
            "takes a second sequence state of memory",
            options.verify);
}

}  // namespace mference::cli
