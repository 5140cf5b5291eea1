// Standard output and error as commands use them.
//
// Standard output carries results only (generated text, tables, JSON) and is not buffered; prompts,
// notices, progress and errors go to standard error. Colour appears only on a terminal and without
// NO_COLOR.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mference::cli {

// Thrown when whoever read standard output went away: the program ends quietly.
struct OutputClosed {};

enum class Style { kPlain, kBold, kDim, kRed };

class Console {
 public:
  Console();

  // Writes to standard output at once. False when its reader went away; throws kIo or kDiskFull for
  // any other failure.
  bool TryWrite(std::string_view text);
  // The same, but throws OutputClosed.
  void Write(std::string_view text);
  template <typename... Args>
  void Print(fmt::format_string<Args...> format, Args&&... args) {
    Write(fmt::format(format, std::forward<Args>(args)...));
  }

  // Writes to standard error; failures are ignored, there is nowhere to tell of them.
  void WriteError(std::string_view text);
  template <typename... Args>
  void Note(fmt::format_string<Args...> format, Args&&... args) {
    WriteError(fmt::format(format, std::forward<Args>(args)...));
  }

  bool output_is_terminal() const { return output_is_terminal_; }
  bool error_is_terminal() const { return error_is_terminal_; }

  // `text` in a style, for the stream it is meant for.
  std::string ForOutput(Style style, std::string_view text) const;
  std::string ForError(Style style, std::string_view text) const;

 private:
  bool output_is_terminal_;
  bool error_is_terminal_;
  bool colour_;
};

// An error on standard error: `error: MESSAGE`, or as a JSON line.
void ReportError(Console& console, bool json, std::string_view code, std::string_view message);

// Text columns, each as wide as its widest cell.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  // Columns that are numbers are right-aligned.
  void AlignRight(size_t column) { right_.push_back(column); }
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string Format() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> right_;
};

// One redrawn line on standard error: only on a terminal, only once something has taken a second,
// ten times a second at most.
class ProgressLine {
 public:
  explicit ProgressLine(Console& console);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // `text` is made only when it will be shown.
  template <typename MakeText>
  void Update(MakeText&& make_text) {
    if (Due()) Draw(make_text());
  }
  // Removes the line.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool Due();
  void Draw(const std::string& text);

  Console& console_;
  Clock::time_point next_;
  bool drawn_ = false;
};

// "[##########----------]", for progress lines.
std::string ProgressBar(uint64_t done, uint64_t total);

// "about 2 min", "40 s".
std::string FormatDuration(double seconds);

}  // namespace mference::cli
