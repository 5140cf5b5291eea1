// Generates one reply and shows it as it comes.
#pragma once

#include <optional>
#include <span>

#include "cli/console.h"
#include "cli/footer.h"
#include "engine/loaded_model.h"
#include "engine/reply_stream.h"

namespace mference::cli {

struct ReplyRequest {
  std::span<const TokenId> prompt;
  ReplyStreamOptions stream;
  SamplingParams sampling;
  int64_t max_new = 1024;
  bool show_thinking = false;  // reasoning, dimmed, on standard error
};

struct ReplyOutcome {
  GenerationResult result;
  FooterFacts footer;
  Reply reply;                 // what was shown
  bool tool_call = false;      // the model tried to call a tool; none are declared
  bool output_closed = false;  // the reader of standard output went away
};

// Throws kContextFull when the prompt leaves no room, and what generating throws. Ctrl-C ends the
// reply with StopReason::kCancelled.
ReplyOutcome PrintReply(LoadedModel& loaded, Console& console, const ReplyRequest& request);

// The footer as a line, or as JSON.
void PrintFooter(Console& console, const FooterFacts& facts, bool json);

// The prompt's text and ids on standard error, for `--verbose-prompt`.
void PrintPrompt(Console& console, std::string_view text, std::span<const TokenId> ids);

// The current local time, for templates that print it.
std::tm LocalTime();

}  // namespace mference::cli
