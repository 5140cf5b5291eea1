#include "cli/command_line.h"

#include <charconv>
#include <cmath>

namespace mference::cli {
namespace {

// "-p,--prompt" and "--context,--max-context" are named by the first long one.
std::string FirstName(const std::string& names) {
  const size_t begin = names.find("--");
  return names.substr(begin, names.find(',', begin) - begin);
}

}  // namespace

CLI::App& CommandSet::Add(const std::string& name, const std::string& description,
                          CommandBody body) {
  CLI::App* command = program_.add_subcommand(name, description);
  command->allow_extras();
  bodies_[command] = std::move(body);
  return *command;
}

void AddParsed(CLI::App& command, const std::string& names, const std::string& placeholder,
               const std::string& help, std::function<void(const std::string&)> parse,
               bool repeatable) {
  const auto take = [name = FirstName(names),
                     parse = std::move(parse)](const CLI::results_t& values) {
    for (const std::string& value : values) {
      try {
        parse(value);
      } catch (const Error& error) {
        throw UsageError(fmt::format("invalid value for {}: {} ({})", name, value, error.what()));
      }
    }
    return true;
  };
  command.add_option(names, take, help)
      ->type_name(placeholder)
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(repeatable ? CLI::MultiOptionPolicy::TakeAll
                                       : CLI::MultiOptionPolicy::TakeLast);
}

void AddText(CLI::App& command, const std::string& names, const std::string& placeholder,
             const std::string& help, std::string& target) {
  AddParsed(command, names, placeholder, help, [&target](const std::string& v) { target = v; });
}

void AddText(CLI::App& command, const std::string& names, const std::string& placeholder,
             const std::string& help, std::optional<std::string>& target) {
  AddParsed(command, names, placeholder, help, [&target](const std::string& v) { target = v; });
}

void AddText(CLI::App& command, const std::string& names, const std::string& placeholder,
             const std::string& help, std::vector<std::string>& target) {
  AddParsed(
      command, names, placeholder, help, [&target](const std::string& v) { target.push_back(v); },
      /*repeatable=*/true);
}

void AddPath(CLI::App& command, const std::string& names, const std::string& placeholder,
             const std::string& help, std::filesystem::path& target) {
  AddParsed(command, names, placeholder, help, [&target](const std::string& v) {
    if (v.empty()) Fail(ErrorCode::kInvalidArgument, "a path cannot be empty");
    target = v;
  });
}

void AddInteger(CLI::App& command, const std::string& names, const std::string& placeholder,
                const std::string& help, std::optional<int64_t>& target, int64_t least,
                int64_t most) {
  AddParsed(command, names, placeholder, help, [&target, least, most](const std::string& v) {
    target = ParseInteger(v, least, most);
  });
}

void AddSwitch(CLI::App& command, const std::string& names, const std::string& help, bool& target) {
  command.add_flag(names, target, help);
}

void AddPositional(CLI::App& command, const std::string& name, const std::string& help,
                   std::string& target) {
  command.add_option(name, target, help)->type_name("");
}

void Require(const std::string& value, const std::string& name) {
  if (value.empty()) throw UsageError(fmt::format("required argument missing: {}", name));
}

int64_t ParseInteger(const std::string& text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    if (most == INT64_MAX) {
      Fail(ErrorCode::kInvalidArgument, "expected a whole number of at least {}", least);
    }
    Fail(ErrorCode::kInvalidArgument, "expected a whole number from {} to {}", least, most);
  }
  return value;
}

uint64_t ParseUnsigned(const std::string& text) {
  uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) {
    Fail(ErrorCode::kInvalidArgument, "expected a whole number from 0 to {}", UINT64_MAX);
  }
  return value;
}

float ParseReal(const std::string& text, const std::function<bool(float)>& accepts,
                const char* range) {
  float value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || !std::isfinite(value) ||
      !accepts(value)) {
    Fail(ErrorCode::kInvalidArgument, "expected a number {}", range);
  }
  return value;
}

std::string DescribeParseError(const CLI::ParseError& error) {
  std::string text = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return fmt::format("missing value for {}", text.substr(0, text.find(':')));
  }
  return text;
}

void RefuseLeftovers(const CLI::App& command) {
  for (const std::string& leftover : command.remaining()) {
    if (leftover.size() > 1 && leftover.front() == '-') {
      throw UsageError(fmt::format("unknown flag: {}", leftover.substr(0, leftover.find('='))));
    }
    throw UsageError(fmt::format("unexpected argument: {}", leftover));
  }
}

}  // namespace mference::cli
