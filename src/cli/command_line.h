// A thin layer over CLI11: options whose refusals read alike, and subcommands as functions.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/console.h"

namespace mference::cli {

// Arguments that make no sense: exit 2, with the usage of the command.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ErrorCode::kInvalidArgument, message) {}
};

// Runs a parsed command; returns the exit code.
using CommandBody = std::function<int(Console& console)>;

class CommandSet {
 public:
  explicit CommandSet(CLI::App& program) : program_(program) {}

  CLI::App& Add(const std::string& name, const std::string& description, CommandBody body);
  const CommandBody& BodyOf(const CLI::App* command) const { return bodies_.at(command); }

 private:
  CLI::App& program_;
  std::map<const CLI::App*, CommandBody> bodies_;
};

// An option with a value, which is always the next argument (or follows '='). `parse` throws
// `Error` to refuse it, which becomes `invalid value for --NAME: VALUE (why)`. Given again, the
// last one counts, unless `repeatable`.
void AddParsed(CLI::App& command, const std::string& names, const std::string& placeholder,
               const std::string& help, std::function<void(const std::string&)> parse,
               bool repeatable = false);

void AddText(CLI::App& command, const std::string& names, const std::string& placeholder,
             const std::string& help, std::string& target);
void AddText(CLI::App& command, const std::string& names, const std::string& placeholder,
             const std::string& help, std::optional<std::string>& target);
void AddText(CLI::App& command, const std::string& names, const std::string& placeholder,
             const std::string& help, std::vector<std::string>& target);
void AddPath(CLI::App& command, const std::string& names, const std::string& placeholder,
             const std::string& help, std::filesystem::path& target);
// Whole numbers from `least` to `most`.
void AddInteger(CLI::App& command, const std::string& names, const std::string& placeholder,
                const std::string& help, std::optional<int64_t>& target, int64_t least,
                int64_t most = INT64_MAX);
void AddSwitch(CLI::App& command, const std::string& names, const std::string& help, bool& target);
// A positional argument that may be left out as far as CLI11 is concerned; see `Require`.
void AddPositional(CLI::App& command, const std::string& name, const std::string& help,
                   std::string& target);

// Throws UsageError `required argument missing: NAME` for an empty one.
void Require(const std::string& value, const std::string& name);

// The whole text as a number, or Error(kInvalidArgument).
int64_t ParseInteger(const std::string& text, int64_t least, int64_t most);
uint64_t ParseUnsigned(const std::string& text);
float ParseReal(const std::string& text, const std::function<bool(float)>& accepts,
                const char* range);

// What a failed CLI11 parse means, in one line.
std::string DescribeParseError(const CLI::ParseError& error);
// Throws UsageError if the command line has anything that no option took.
void RefuseLeftovers(const CLI::App& command);

}  // namespace mference::cli
