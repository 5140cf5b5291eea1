#include "cli/program.h"

#include <algorithm>
#include <csignal>
#include <string_view>

#include "base/error.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/interrupts.h"

namespace mference::cli {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

// Wrong input of the user's, as opposed to something that went wrong.
bool IsBadInput(ErrorCode code) {
  return code == ErrorCode::kInvalidArgument || code == ErrorCode::kContextFull ||
         code == ErrorCode::kMessagesInvalid;
}

int ExitCodeOf(ErrorCode code) {
  if (code == ErrorCode::kCancelled) {
    return 128 + (LastSignal() != 0 ? LastSignal() : SIGINT);
  }
  return IsBadInput(code) ? kExitUsage : kExitFailed;
}

int ReportUsage(Console& console, bool json, const CLI::App& program, const std::string& message) {
  ReportError(console, json, ErrorCodeName(ErrorCode::kInvalidArgument), message);
  if (!json) console.Note("\n{}", program.help());
  return kExitUsage;
}

void AddCommands(CommandSet& commands) {
  AddInstallCommand(commands);
  AddListCommand(commands);
  AddInfoCommand(commands);
  AddPlanCommand(commands);
  AddVerifyCommand(commands);
  AddRemoveCommand(commands);
  AddRunCommand(commands);
  AddChatCommand(commands);
  AddServeCommand(commands);
  AddTokenizeCommand(commands);
  AddRenderCommand(commands);
  AddParseCommand(commands);
  AddLogitsCommand(commands);
  AddPerplexityCommand(commands);
  AddBenchCommand(commands);
  AddReplayCommand(commands);
  AddSynthCommand(commands);
}

// False when help or the version was all that was wanted.
bool Parse(Console& console, CLI::App& program, int argc, const char* const* argv) {
  try {
    program.parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp&) {
    (void)console.TryWrite(program.help());
  } catch (const CLI::CallForVersion& version) {
    (void)console.TryWrite(std::string(version.what()) + "\n");
  }
  return false;
}

int RunParsed(Console& console, const CLI::App& program, const CommandSet& commands) {
  const std::vector<CLI::App*> chosen = program.get_subcommands();
  if (chosen.empty()) {
    for (const std::string& word : program.remaining()) {
      throw UsageError(word.front() == '-' ? fmt::format("unknown flag: {}", word)
                                           : fmt::format("unknown command: {}", word));
    }
    throw UsageError("a command is missing");
  }
  RefuseLeftovers(program);
  RefuseLeftovers(*chosen.front());
  return commands.BodyOf(chosen.front())(console);
}

}  // namespace

int RunProgram(int argc, const char* const* argv) {
  Console console;
  // Known before parsing, because parsing may fail.
  const bool json = std::any_of(argv + std::min(argc, 1), argv + argc, [](const char* word) {
    return std::string_view(word) == "--json";
  });

  CLI::App program("Runs very large mixture-of-experts language models on ordinary computers.",
                   "mference");
  program.set_version_flag("--version", std::string("mference ") + MFERENCE_VERSION,
                           "Print the version and exit");
  program.set_help_flag("-h,--help", "Print this help and exit");
  program.allow_extras();
  CommandSet commands(program);
  AddCommands(commands);

  try {
    InstallSignalHandlers();
    if (!Parse(console, program, argc, argv)) return 0;
    return RunParsed(console, program, commands);
  } catch (const CLI::ParseError& error) {
    return ReportUsage(console, json, program, DescribeParseError(error));
  } catch (const OutputClosed&) {
    return 0;
  } catch (const UsageError& error) {
    return ReportUsage(console, json, program, error.what());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled && !json) {
      console.Note("{}\n", error.what());  // as asked for: no error
    } else {
      ReportError(console, json, ErrorCodeName(error.code()), error.what());
    }
    return ExitCodeOf(error.code());
  } catch (const std::bad_alloc&) {
    ReportError(console, json, ErrorCodeName(ErrorCode::kOutOfBudget),
                "the system has no memory left; lower --memory or --context");
    return kExitFailed;
  } catch (const std::exception& error) {
    ReportError(console, json, ErrorCodeName(ErrorCode::kInternal), error.what());
    return kExitFailed;
  }
}

}  // namespace mference::cli
