#include "server/request_log.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <chrono>

namespace mference::server {
namespace {

constexpr size_t kMaxSeenNames = 1024;

}  // namespace

RequestLog::RequestLog(LogLevel level, std::function<void(std::string_view)> write)
    : level_(level), write_(std::move(write)) {}

bool RequestLog::FirstTime(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return seen_.size() < kMaxSeenNames && seen_.insert(name).second;
}

void RequestLog::Line(LogLevel level, std::string_view id, const std::string& text) {
  if (level > level_) return;
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const std::string line =
      fmt::format("[{:%Y-%m-%dT%H:%M:%S}Z] {}{}{}\n", fmt::gmtime(now),
                  id.empty() ? "" : "request ", id, (id.empty() ? "" : " ") + text);
  if (write_) return write_(line);
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

std::string Sanitise(std::string_view text, size_t bytes) {
  std::string out;
  for (const char c : text.substr(0, bytes)) out += c > ' ' && c < '\x7f' && c != ',' ? c : '?';
  return out;
}

}  // namespace mference::server
