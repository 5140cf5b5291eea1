// Calls that are one JSON object: a member `name` and a member that holds the arguments.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "text/dialects/literal_reader.h"
#include "text/dialects/reply_parser.h"

namespace mference {

struct JsonCallForm {
  std::span<const std::string_view> argument_keys;  // any one of them, exactly one
  bool unique_keys = false;
  bool string_arguments = false;  // a JSON string that holds the object is accepted
  size_t depth = 64;              // of the arguments
};

inline constexpr std::string_view kMapleArgumentKeys[] = {"arguments", "parameters"};
inline constexpr std::string_view kInklingArgumentKeys[] = {"args"};

class JsonCallReader {
 public:
  explicit JsonCallReader(const JsonCallForm& form);

  void Push(std::string_view text) { reader_.Push(text); }

  // What is settled so far: the name, and the arguments if they are an object.
  std::optional<std::string> Name() const;
  std::string_view ArgumentsSoFar() const;

  // The end of the call's text.
  std::variant<ParsedCall, CallProblem> Finish();

 private:
  bool IsArgumentKey(std::string_view key) const;
  std::variant<ParsedCall, CallProblem> ReadStringArguments(ParsedCall call,
                                                            std::string_view quoted) const;

  JsonCallForm form_;
  LiteralReader reader_;
};

CallProblem ToProblem(const LiteralError& error, size_t offset);

}  // namespace mference
