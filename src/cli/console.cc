#include "cli/console.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "base/json.h"

namespace mference::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kProgressDelay = 1s;
constexpr auto kProgressInterval = 100ms;

const char* EscapeOf(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kBold:
      return "\x1b[1m";
    case Style::kDim:
      return "\x1b[2m";
    case Style::kRed:
      return "\x1b[31m";
  }
  return "";
}

std::string Styled(bool coloured, Style style, std::string_view text) {
  if (!coloured || style == Style::kPlain) return std::string(text);
  return fmt::format("{}{}\x1b[0m", EscapeOf(style), text);
}

// 0, or the errno of the failure.
int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

// Characters, not bytes: cells may hold UTF-8.
size_t WidthOf(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

Console::Console()
    : output_is_terminal_(isatty(STDOUT_FILENO) == 1),
      error_is_terminal_(isatty(STDERR_FILENO) == 1) {
  const char* no_colour = std::getenv("NO_COLOR");  // NOLINT(concurrency-mt-unsafe)
  colour_ = no_colour == nullptr || *no_colour == '\0';
}

bool Console::TryWrite(std::string_view text) {
  const int problem = WriteAll(STDOUT_FILENO, text);
  if (problem == 0) return true;
  if (problem == EPIPE) return false;
  if (problem == ENOSPC) Fail(ErrorCode::kDiskFull, "standard output: the disk is full");
  FailErrno("cannot write to standard output", problem);
}

void Console::Write(std::string_view text) {
  if (!TryWrite(text)) throw OutputClosed{};
}

void Console::WriteError(std::string_view text) { (void)WriteAll(STDERR_FILENO, text); }

std::string Console::ForOutput(Style style, std::string_view text) const {
  return Styled(colour_ && output_is_terminal_, style, text);
}

std::string Console::ForError(Style style, std::string_view text) const {
  return Styled(colour_ && error_is_terminal_, style, text);
}

std::string Table::Format() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], WidthOf(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - WidthOf(row[i]), ' ');
      const bool right = std::find(right_.begin(), right_.end(), i) != right_.end();
      line += i == 0 ? "" : "  ";
      line += right ? padding + row[i] : row[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

void ReportError(Console& console, bool json, std::string_view code, std::string_view message) {
  if (json) {
    const Json report = {{"error", {{"code", code}, {"message", message}}}};
    console.Note("{}\n", report.dump(-1, ' ', false, Json::error_handler_t::replace));
  } else {
    console.Note("{} {}\n", console.ForError(Style::kRed, "error:"), message);
  }
}

ProgressLine::ProgressLine(Console& console)
    : console_(console), next_(Clock::now() + kProgressDelay) {}

ProgressLine::~ProgressLine() { Clear(); }

bool ProgressLine::Due() {
  if (!console_.error_is_terminal() || Clock::now() < next_) return false;
  next_ = Clock::now() + kProgressInterval;
  return true;
}

void ProgressLine::Draw(const std::string& text) {
  drawn_ = true;
  console_.Note("\r\x1b[K{}", text);
}

void ProgressLine::Clear() {
  if (drawn_) console_.WriteError("\r\x1b[K");
  drawn_ = false;
}

std::string ProgressBar(uint64_t done, uint64_t total) {
  constexpr size_t kWidth = 24;
  const size_t filled =
      total == 0 ? 0
                 : static_cast<size_t>(kWidth * (static_cast<double>(std::min(done, total)) /
                                                 static_cast<double>(total)));
  return "[" + std::string(filled, '#') + std::string(kWidth - filled, '-') + "]";
}

std::string FormatDuration(double seconds) {
  if (seconds < 100) return fmt::format("{:.0f} s", seconds);
  if (seconds < 100 * 60) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

}  // namespace mference::cli
