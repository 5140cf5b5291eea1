// `mference chat`: a conversation, typed or piped, with a live context between turns.

#include <chrono>
#include <csignal>

#include "base/units.h"
#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/input.h"
#include "cli/interrupts.h"
#include "cli/load_flags.h"
#include "cli/model_argument.h"
#include "cli/prompt_cache_flags.h"
#include "cli/reply_printer.h"

namespace mference::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kExitInterrupted = 128 + SIGINT;
constexpr int kExitUnanswered = 2;  // as `run` with a prompt that does not fit
// A second Ctrl-C at the prompt within this time leaves.
constexpr std::chrono::seconds kSecondInterrupt{2};

struct ChatFlags {
  LoadFlags load;
  SamplingFlags sampling;
  std::vector<std::string> system;
  bool think = false;
  bool show_thinking = false;
  bool verbose_prompt = false;
};

constexpr const char* kHelp =
    R"(/clear, /reset              forget the conversation, keep the system message
/history                    show the messages
/retry                      answer the last message again
/undo                       take back the last turn
/system TEXT                set the system message (also /set system TEXT)
/set parameter NAME VALUE   temperature, top_k, top_p, min_p, repetition_penalty,
                            repeat_last_n, seed, max_new, stop
/set parameter stop         remove the stop strings
/show                       model, context, sampling
/stats                      figures of this chat
/think, /nothink            reasoning before the answer
/read FILE                  send a file's text as the next message
/help, /?                   this list
/quit, /exit, /bye          leave (Ctrl-D too)
A line that ends in \ goes on in the next one; """ begins and ends a longer message.
Ctrl-C ends a reply.
)";

enum class Next { kGoOn, kLeave };

class Chat {
 public:
  Chat(ChatFlags flags, Console& console)
      : flags_(std::move(flags)),
        console_(console),
        loaded_(LoadFromFlags(flags_.load)),
        conversation_(loaded_->text(), loaded_->session().context()) {
    std::string system;
    for (const std::string& line : flags_.system) system += (system.empty() ? "" : "\n") + line;
    conversation_.SetSystem(system);
    sampling_ = flags_.sampling.Over(loaded_->text().sampling_defaults());
  }

  int Run() {
    // Between replies Ctrl-C never ends the program at once.
    const InterruptScope idle(InterruptMode::kInput);
    ShowLoaded(flags_.load, *loaded_, console_);
    ShowSeed();
    Notice("Interactive chat. Commands: /clear, /history, /quit.\n");
    std::string message;
    while (exit_code_ < 0) {
      if (!ReadMessage(message)) return exit_code_ < 0 ? LeavingCode() : exit_code_;
      if (message.empty()) continue;
      // Text between triple quotes is a message whatever it begins with.
      if (!quoted_ && message.front() == '/') {
        if (Command(message) == Next::kLeave) return LeavingCode();
      } else {
        Turn(message);
      }
    }
    return exit_code_;
  }

 private:
  // A person has seen what went wrong; a script learns it here.
  int LeavingCode() const { return unanswered_ && !InputIsTerminal() ? kExitUnanswered : 0; }

  // What the user asked to see: one or more lines.
  void Say(std::string_view text) {
    if (flags_.load.json) {
      const Json note = {{"note", Trimmed(text)}};
      console_.Note("{}\n", note.dump(-1, ' ', false, Json::error_handler_t::replace));
    } else {
      console_.WriteError(text);
    }
  }
  // What nobody asked for.
  void Notice(std::string_view text) {
    if (!flags_.load.quiet) Say(text);
  }
  // What only a person at a keyboard needs.
  void Prompt(std::string_view text) {
    if (!flags_.load.quiet && !flags_.load.json) console_.WriteError(text);
  }

  void ShowSeed() {
    if (flags_.sampling.seed || sampling_.temperature == 0) return;
    Notice(fmt::format("seed: {}\n", sampling_.seed));
  }

  // One line, or LineStatus::kEnd. Handles Ctrl-C at the prompt.
  LineStatus ReadLine(const char* prompt, std::string* line) {
    const InterruptScope interrupts(InterruptMode::kInput);
    Prompt(console_.ForError(Style::kBold, prompt));
    while (true) {
      const LineStatus status = reader_.Next(line);
      if (status != LineStatus::kInterrupted) return status;
      if (LastSignal() != SIGINT) continue;
      const Clock::time_point now = Clock::now();
      if (last_interrupt_ && now - *last_interrupt_ < kSecondInterrupt) {
        exit_code_ = kExitInterrupted;
        return LineStatus::kEnd;
      }
      last_interrupt_ = now;
      Say("\n(Ctrl-C again, Ctrl-D or /quit leaves)\n");
      Prompt(console_.ForError(Style::kBold, prompt));
    }
  }

  // A whole message, trimmed; false at the end of input.
  bool ReadMessage(std::string& message) {
    constexpr std::string_view kQuotes = "\"\"\"";
    std::string line;
    Prompt("\n");
    quoted_ = false;
    if (ReadLine("you> ", &line) != LineStatus::kLine) {
      if (!flags_.load.json) console_.WriteError("\n");
      return false;
    }
    message = Trimmed(line);
    if (message.starts_with(kQuotes)) {
      quoted_ = true;
      message.erase(0, kQuotes.size());
      while (message.find(kQuotes) == std::string::npos) {
        if (ReadLine("...> ", &line) != LineStatus::kLine) break;
        message += "\n" + line;
      }
      message.resize(std::min(message.find(kQuotes), message.size()));
      message = Trimmed(message);
      return exit_code_ < 0;
    }
    while (message.ends_with('\\')) {
      message.back() = '\n';
      if (ReadLine("...> ", &line) != LineStatus::kLine) break;
      message += line;
    }
    message = Trimmed(message);
    return exit_code_ < 0;
  }

  PromptOptions Options() const {
    PromptOptions options;
    options.enable_thinking = flags_.think;
    options.now = LocalTime();
    return options;
  }

  void Turn(const std::string& message) {
    PreparedTurn turn;
    try {
      turn = conversation_.Begin(message, Options());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kContextFull && error.code() != ErrorCode::kMessagesInvalid) {
        throw;
      }
      ShowError(error.code(), error.what());
      unanswered_ = true;
      return;
    }
    if (turn.dropped_messages > 0) {
      Notice(fmt::format("note: dropped {} oldest message(s) to fit the context\n",
                         turn.dropped_messages));
    }
    if (flags_.verbose_prompt) PrintPrompt(console_, turn.rendered, turn.prompt);

    ReplyRequest request;
    request.prompt = turn.prompt;
    request.stream.start = DefaultReplyStart(loaded_->text().family(), flags_.think);
    request.stream.stops = flags_.sampling.stops;
    request.sampling = sampling_;
    request.max_new = flags_.sampling.max_new;
    request.show_thinking = flags_.show_thinking;
    const ReplyOutcome outcome = PrintReply(*loaded_, console_, request);
    if (outcome.output_closed || !console_.TryWrite("\n")) throw OutputClosed{};
    EndTurn(turn, outcome);
  }

  void EndTurn(const PreparedTurn& turn, const ReplyOutcome& outcome) {
    const GenerationResult& result = outcome.result;
    if (outcome.tool_call) {
      ShowError(ErrorCode::kMessagesInvalid,
                "the model attempted a tool call, but no tools were declared");
      unanswered_ = true;
      conversation_.Abandon();
    } else if (result.tokens.empty()) {
      conversation_.Abandon();  // cancelled before it said anything
    } else {
      conversation_.Finish(turn, result, outcome.reply.content);
    }
    ++turns_;
    prompt_tokens_ += result.prompt_tokens - result.reused_tokens;
    new_tokens_ += outcome.footer.new_tokens;
    seconds_ += result.prefill_seconds + result.decode_seconds;
    if (!flags_.load.quiet) PrintFooter(console_, outcome.footer, flags_.load.json);
    loaded_->SavePrompt();
    if (result.reason == StopReason::kCancelled && LastSignal() == SIGTERM) {
      exit_code_ = 128 + SIGTERM;
    }
  }

  void ShowError(ErrorCode code, std::string_view text) {
    ReportError(console_, flags_.load.json, ErrorCodeName(code), text);
  }

  Next Command(const std::string& line) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, space);
    const std::string rest(Trimmed(std::string_view(line).substr(space)));
    if (name == "/quit" || name == "/exit" || name == "/bye") return Next::kLeave;
    try {
      if (!Execute(name, rest)) {
        throw UsageError(fmt::format(
            "unknown command {}; try /clear, /history, or /quit (/help shows all)", name));
      }
    } catch (const UsageError& error) {
      ShowError(ErrorCode::kInvalidArgument, error.what());
    }
    return Next::kGoOn;
  }

  // False for an unknown command.
  bool Execute(const std::string& name, const std::string& rest) {
    if (name == "/help" || name == "/?") {
      Say(kHelp);
    } else if (name == "/clear" || name == "/reset") {
      conversation_.Clear();
      Say("history cleared\n");
    } else if (name == "/history") {
      for (const ChatMessage& message : conversation_.Messages()) {
        Say(fmt::format("[{}] {}\n", ChatRoleName(message.role), message.content));
      }
    } else if (name == "/retry") {
      Retry();
    } else if (name == "/undo") {
      Say(conversation_.Undo() ? "took back the last turn\n" : "there is nothing to take back\n");
    } else if (name == "/system") {
      SetSystem(rest);
    } else if (name == "/set") {
      Set(rest);
    } else if (name == "/show") {
      Show();
    } else if (name == "/stats") {
      Stats();
    } else if (name == "/think" || name == "/nothink") {
      flags_.think = name == "/think";
      Say(fmt::format("reasoning is {}\n", flags_.think ? "on" : "off"));
    } else if (name == "/read") {
      Read(rest);
    } else {
      return false;
    }
    return true;
  }

  void Retry() {
    const std::string message = conversation_.LastUserMessage();
    if (message.empty() || !conversation_.Undo()) {
      Say("there is nothing to answer again\n");
      return;
    }
    // The same seed would draw the same reply.
    sampling_.seed = flags_.sampling.seed ? sampling_.seed + 1 : RandomSeed();
    ShowSeed();
    Turn(message);
  }

  void Read(const std::string& path) {
    std::string text;
    try {
      text = Trimmed(ReadInput(path));
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
    if (text.empty()) throw UsageError(fmt::format("{} is empty", path));
    Turn(text);
  }

  void SetSystem(const std::string& text) {
    conversation_.SetSystem(text);
    Say(text.empty() ? "system message removed\n" : "system message set\n");
  }

  void Set(const std::string& rest) {
    const size_t space = std::min(rest.find(' '), rest.size());
    const std::string what = rest.substr(0, space);
    const std::string value(Trimmed(std::string_view(rest).substr(space)));
    if (what == "system") return SetSystem(value);
    const size_t split = std::min(value.find(' '), value.size());
    const std::string parameter = value.substr(0, split);
    if (what == "parameter" && value == "stop") {
      flags_.sampling.stops.clear();
      return Say("stop strings removed\n");
    }
    if (what != "parameter" || parameter.empty() || split == value.size()) {
      throw UsageError("expected /set parameter NAME VALUE or /set system TEXT");
    }
    const std::string text(Trimmed(std::string_view(value).substr(split)));
    try {
      SetSamplingFlag(flags_.sampling, parameter, text);
    } catch (const Error& error) {
      throw UsageError(fmt::format("{}: {}", parameter, error.what()));
    }
    const uint64_t seed = sampling_.seed;
    sampling_ = flags_.sampling.Over(loaded_->text().sampling_defaults());
    if (!flags_.sampling.seed) sampling_.seed = seed;
    Say(fmt::format("{} = {}\n", parameter, text));
  }

  void Show() {
    const ModelDirectory& directory = loaded_->directory();
    Say(fmt::format(
        "model {} ({}), context {} with {} tokens in use\n"
        "temperature {} top_k {} top_p {} min_p {} repetition_penalty {} repeat_last_n {} seed {} "
        "max_new {}\n",
        ModelNameOf(directory.path()), directory.manifest().model_id, loaded_->session().context(),
        loaded_->session().tokens().size(), sampling_.temperature, sampling_.top_k, sampling_.top_p,
        sampling_.min_p, sampling_.repetition_penalty, sampling_.repeat_last_n, sampling_.seed,
        flags_.sampling.max_new));
    for (const std::string& stop : flags_.sampling.stops) Say(fmt::format("stop {}\n", stop));
  }

  void Stats() {
    const ProcessMemory memory = ReadProcessMemory();
    Say(fmt::format(
        "{} turns, {} prompt tokens computed, {} tokens generated in {:.1f} s; memory {} now, {} "
        "at "
        "its peak\n",
        turns_, prompt_tokens_, new_tokens_, seconds_, FormatByteCount(memory.resident_bytes),
        FormatByteCount(memory.peak_resident_bytes)));
  }

  ChatFlags flags_;
  Console& console_;
  std::unique_ptr<LoadedModel> loaded_;
  Conversation conversation_;
  SamplingParams sampling_;
  LineReader reader_;
  bool quoted_ = false;  // the last message came between triple quotes
  std::optional<Clock::time_point> last_interrupt_;
  int exit_code_ = -1;  // >= 0: leave with it
  bool unanswered_ = false;

  int turns_ = 0;
  int64_t prompt_tokens_ = 0;
  int64_t new_tokens_ = 0;
  double seconds_ = 0;
};

}  // namespace

void AddChatCommand(CommandSet& commands) {
  const auto flags = std::make_shared<ChatFlags>();
  CLI::App& command =
      commands.Add("chat", "Talk with a model; messages may also come through a pipe",
                   [flags](Console& console) { return Chat(*flags, console).Run(); });
  flags->load.Declare(command);
  DeclarePromptCacheFlags(command, flags->load.options.prompt_cache);
  AddText(command, "--system", "TEXT", "System message; repeated ones are joined by newlines",
          flags->system);
  flags->sampling.Declare(command);
  AddSwitch(command, "--think", "Let the model reason before it answers", flags->think);
  AddSwitch(command, "--show-thinking", "Reasoning on standard error", flags->show_thinking);
  AddSwitch(command, "--verbose-prompt", "Each turn's rendered prompt and ids on standard error",
            flags->verbose_prompt);
}

}  // namespace mference::cli
