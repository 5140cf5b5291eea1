// Qwen's tagged calls:
//
//   ws "<function=" NAME ">" NL { "<parameter=" KEY ">" NL VALUE NL "</parameter>" NL }
//   "</function>" ws
//
// The tags are ordinary text, so a value may contain them: it ends at the first closing tag after
// which the rest still parses. Values carry no types; the declared schema decides what they are.
#pragma once

#include <optional>
#include <string_view>
#include <variant>

#include "base/json.h"
#include "text/dialects/reply_parser.h"

namespace mference {

inline constexpr std::string_view kFunctionOpen = "<function=";
inline constexpr std::string_view kFunctionClose = "</function>";

// NAME, once `text` has all of it.
std::optional<std::string_view> QwenCallName(std::string_view text);

// `parameters` is the schema of the tool that the call names, null where there is none. `depth`
// limits the arguments, their object counted.
std::variant<ParsedCall, CallProblem> ReadQwenCall(std::string_view text, const Json* parameters,
                                                   size_t depth);

}  // namespace mference
