// Which relative paths a directory's metadata may name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mference {

// Why `path` is not an acceptable key of `manifest.files`, or empty. Relative, normalised, without
// empty, `.` or `..` components. Only printable ASCII without a backslash: every name of the format
// is, and it makes "unique whatever the file system folds" a matter of ASCII case.
std::string PathProblem(std::string_view path);

// Why the keys cannot live together on any file system, or empty: two that differ only in case, or
// one that is a directory of another.
std::string PathSetProblem(const std::vector<std::string_view>& paths);

// `text` with A-Z in lower case.
std::string AsciiLower(std::string_view text);

// 64 hex digits of either case.
bool IsSha256Hex(std::string_view text);

}  // namespace mference
