// The tags of DeepSeek's DSML. They are ordinary text: `<｜DSML｜NAME ...>` and `</｜DSML｜NAME>`,
// with U+FF5C bars. A damaged form without the first bar is read too.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace mference {

inline constexpr std::string_view kDsmlOpen = "<｜DSML｜";
inline constexpr std::string_view kDsmlClose = "</｜DSML｜";
inline constexpr std::string_view kDsmlDamagedOpen = "<DSML｜";
inline constexpr std::string_view kDsmlDamagedClose = "</DSML｜";
inline constexpr std::string_view kDsmlCalls = "tool_calls";
inline constexpr std::string_view kDsmlInvoke = "invoke";
inline constexpr std::string_view kDsmlParameter = "parameter";

// The longest tag without attributes, `</｜DSML｜tool_calls>`.
inline constexpr size_t kDsmlMaxPlainTagBytes = kDsmlClose.size() + kDsmlCalls.size() + 1;

struct DsmlTag {
  enum class Status {
    kNone,        // the text is no DSML tag
    kIncomplete,  // it may become one
    kBroken,      // it begins as one and cannot be finished: see `note`
    kComplete,
  };
  enum class Element { kCalls, kInvoke, kParameter };
  Status status = Status::kNone;
  Element element = Element::kCalls;
  bool closing = false;
  size_t size = 0;  // bytes of the whole tag
  const char* note = "";
  std::optional<std::string> name;
  std::optional<std::string> string;
};

// Reads the tag at the beginning of `text`. Attributes come in any order, in either kind of quotes;
// unknown ones are ignored.
DsmlTag ReadDsmlTag(std::string_view text);

}  // namespace mference
