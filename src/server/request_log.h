// One line per event on standard error: `[2026-11-30T07:17:08Z] request ID EVENT name=value...`.
//
// Never the text of messages, arguments, headers or bodies.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace mference::server {

enum class LogLevel { kError, kInfo, kDebug };

// Thread-safe; every line is written with one call.
class RequestLog {
 public:
  // `write` gets whole lines; by default they go to standard error.
  explicit RequestLog(LogLevel level, std::function<void(std::string_view line)> write = {});

  template <typename... Args>
  void Error(std::string_view id, fmt::format_string<Args...> format, Args&&... args) {
    Line(LogLevel::kError, id, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Info(std::string_view id, fmt::format_string<Args...> format, Args&&... args) {
    Line(LogLevel::kInfo, id, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Debug(std::string_view id, fmt::format_string<Args...> format, Args&&... args) {
    Line(LogLevel::kDebug, id, fmt::format(format, std::forward<Args>(args)...));
  }

  // True the first time it is asked about `name`; always false once many names have been seen.
  bool FirstTime(const std::string& name);

 private:
  void Line(LogLevel level, std::string_view id, const std::string& text);

  const LogLevel level_;
  const std::function<void(std::string_view)> write_;
  std::mutex mutex_;
  std::set<std::string> seen_;
};

// Text from a client made safe for a log line or a header: printable ASCII, at most `bytes` long.
std::string Sanitise(std::string_view text, size_t bytes);

}  // namespace mference::server
