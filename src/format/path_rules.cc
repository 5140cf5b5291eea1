#include "format/path_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace mference {

std::string AsciiLower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

bool IsSha256Hex(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
         });
}

std::string PathProblem(std::string_view path) {
  constexpr size_t kMaxPathBytes = 1024;
  if (path.empty()) return "an empty path";
  if (path.size() > kMaxPathBytes) return fmt::format("a path of {} bytes", path.size());
  for (const char c : path) {
    if (c < 0x20 || c > 0x7E || c == '\\') {
      return "a path with a character other than printable ASCII";
    }
  }
  if (path.front() == '/') return "an absolute path";
  std::string_view rest = path;
  while (true) {
    const size_t slash = rest.find('/');
    const std::string_view component = rest.substr(0, slash);
    if (component.empty()) return "a path with an empty component";
    if (component == "." || component == "..") {
      return fmt::format("a path with a '{}' component", component);
    }
    if (slash == std::string_view::npos) return "";
    rest = rest.substr(slash + 1);
  }
}

std::string PathSetProblem(const std::vector<std::string_view>& paths) {
  std::map<std::string, std::string_view> by_folded;
  for (const std::string_view path : paths) {
    const auto [other, is_new] = by_folded.emplace(AsciiLower(path), path);
    if (!is_new) return fmt::format("'{}' and '{}' differ only in case", other->second, path);
  }
  for (const auto& [folded, path] : by_folded) {
    for (size_t slash = folded.find('/'); slash != std::string::npos;
         slash = folded.find('/', slash + 1)) {
      const auto directory = by_folded.find(folded.substr(0, slash));
      if (directory != by_folded.end()) {
        return fmt::format("'{}' is a directory of '{}'", directory->second, path);
      }
    }
  }
  return "";
}

}  // namespace mference
