// `mference run`: one completion of a raw prompt, or one reply to a conversation in a file.

#include <csignal>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/interrupts.h"
#include "cli/load_flags.h"
#include "cli/reply_printer.h"
#include "text/framing/conversation.h"

namespace mference::cli {
namespace {

struct RunFlags {
  LoadFlags load;
  SamplingFlags sampling;
  std::optional<std::string> prompt;
  std::filesystem::path prompt_file;
  std::filesystem::path messages_file;
  bool think = false;
  bool show_thinking = false;
  bool verbose_prompt = false;
  std::filesystem::path trace;
};

// What to answer, read before anything is loaded.
struct RunInput {
  std::string raw;
  std::vector<ChatMessage> messages;  // empty: a raw prompt
};

// An array of {"role", "content"}, strings only: what plain framing can show.
std::vector<ChatMessage> ReadMessages(const std::filesystem::path& path) {
  const std::string name = path == "-" ? "standard input" : path.string();
  const std::string text = ReadInput(path);
  const Json document = ParseJson(text, name, ErrorCode::kMessagesInvalid);
  const JsonReader list(document, name, ErrorCode::kMessagesInvalid);
  if (list.ArraySize() == 0) list.FailHere("expected at least one message, found none");
  for (size_t i = 0; i < list.ArraySize(); ++i) {
    const JsonReader message = list.At(i);
    message.RequireObject();
    message.At("role").String();
    message.At("content").String();
    for (const auto& [key, value] : message.value().items()) {
      if (key != "role" && key != "content") {
        message.FailHere(fmt::format("expected role and content only, found the key \"{}\"", key));
      }
    }
  }
  return ParseMessages(jinja::ParseJsonValue(text, name, ErrorCode::kMessagesInvalid,
                                             jinja::NumberStyle::kAsWritten, jinja::Origin::kData));
}

RunInput ReadRunInput(const RunFlags& flags) {
  std::vector<const char*> modes;
  if (flags.prompt) modes.push_back("--prompt");
  if (!flags.prompt_file.empty()) modes.push_back("--prompt-file");
  if (!flags.messages_file.empty()) modes.push_back("--messages-file");
  if (modes.size() > 1) {
    throw UsageError(fmt::format("{} and {} are mutually exclusive", modes[0], modes[1]));
  }
  if (modes.empty() && InputIsTerminal()) {
    throw UsageError(
        "one of --prompt, --prompt-file, --messages-file or a prompt on standard input is required "
        "(`mference chat` is for conversations)");
  }
  RunInput input;
  if (!flags.messages_file.empty()) {
    input.messages = ReadMessages(flags.messages_file);
    return input;
  }
  if (flags.prompt) {
    input.raw = *flags.prompt;
  } else {
    input.raw = ReadInput(flags.prompt_file.empty() ? "-" : flags.prompt_file);
  }
  if (input.raw.empty()) Fail(ErrorCode::kInvalidArgument, "the prompt is empty");
  return input;
}

int Run(const RunFlags& flags, Console& console) {
  const RunInput input = ReadRunInput(flags);
  const std::unique_ptr<LoadedModel> loaded = LoadFromFlags(flags.load);
  ShowLoaded(flags.load, *loaded, console);
  const TextLayer& text = loaded->text();

  ReplyRequest request;
  request.stream.stops = flags.sampling.stops;
  request.sampling = flags.sampling.Over(text.sampling_defaults());
  request.max_new = flags.sampling.max_new;
  request.show_thinking = flags.show_thinking;
  std::vector<TokenId> ids;
  std::string prompt_text = input.raw;
  if (input.messages.empty()) {
    request.stream.raw = true;
    ids = text.EncodeRaw(input.raw);
  } else {
    PromptOptions options;
    options.enable_thinking = flags.think;
    options.now = LocalTime();
    const Prompt prompt = text.renderer().Render(input.messages, {}, options);
    request.stream.start = DefaultReplyStart(text.family(), flags.think);
    ids = text.EncodePrompt(prompt);
    prompt_text = prompt.text;
  }
  request.prompt = ids;
  if (flags.verbose_prompt) PrintPrompt(console, prompt_text, ids);
  if (!flags.load.quiet && !flags.sampling.seed && request.sampling.temperature > 0) {
    console.WriteError(flags.load.json ? Json{{"seed", request.sampling.seed}}.dump() + "\n"
                                       : fmt::format("seed: {}\n", request.sampling.seed));
  }

  const std::unique_ptr<TraceRecorder> trace = StartTrace(flags.trace, *loaded);
  const ReplyOutcome outcome = PrintReply(*loaded, console, request);
  if (trace) trace->Write();
  if (outcome.output_closed) return 0;
  const bool cancelled = outcome.result.reason == StopReason::kCancelled;
  if (cancelled && !console.TryWrite("\n")) return 0;
  if (!flags.load.quiet) {
    if (!flags.load.json) console.WriteError("\n");
    PrintFooter(console, outcome.footer, flags.load.json);
  }
  if (cancelled) return 128 + LastSignal();
  if (outcome.tool_call) {
    Fail(ErrorCode::kMalformedToolCall,
         "the model attempted a tool call, but no tools were declared");
  }
  return 0;
}

}  // namespace

void AddRunCommand(CommandSet& commands) {
  const auto flags = std::make_shared<RunFlags>();
  CLI::App& command = commands.Add("run", "Complete a raw prompt, or answer a messages file",
                                   [flags](Console& console) { return Run(*flags, console); });
  flags->load.Declare(command);
  AddText(command, "-p,--prompt", "TEXT", "Complete this text as it is, without chat framing",
          flags->prompt);
  AddPath(command, "--prompt-file", "FILE", "The same from a file; - is standard input",
          flags->prompt_file);
  AddPath(command, "--messages-file", "FILE",
          "Answer a JSON array of {\"role\", \"content\"}; - is standard input",
          flags->messages_file);
  flags->sampling.Declare(command);
  AddSwitch(command, "--think", "Let the model reason before it answers a messages file",
            flags->think);
  AddSwitch(command, "--show-thinking", "Reasoning on standard error", flags->show_thinking);
  AddTraceFlag(command, flags->trace);
  AddSwitch(command, "--verbose-prompt", "The rendered prompt and its ids on standard error",
            flags->verbose_prompt);
}

}  // namespace mference::cli
