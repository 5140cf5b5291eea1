#include "cli/input.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/error.h"
#include "base/file.h"
#include "cli/interrupts.h"

namespace mference::cli {
namespace {

constexpr const char* kStandardInput = "standard input";

// Appends what one read gives; 0 at the end.
ssize_t ReadSome(int fd, const std::string& name, std::string& text) {
  std::array<char, 65536> buffer;
  ssize_t got = 0;
  do {
    got = ::read(fd, buffer.data(), buffer.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) FailErrno(fmt::format("cannot read {}", name), errno);
  text.append(buffer.data(), static_cast<size_t>(got));
  if (text.size() > kMaxInputBytes) {
    Fail(ErrorCode::kMetadataTooLarge, "{} is longer than {} bytes", name, kMaxInputBytes);
  }
  return got;
}

std::string ReadToEnd(int fd, const std::string& name) {
  std::string text;
  while (ReadSome(fd, name, text) != 0) {
  }
  return text;
}

}  // namespace

std::string ReadInput(const std::filesystem::path& path) {
  if (path == "-") return ReadToEnd(STDIN_FILENO, kStandardInput);
  std::error_code ignored;
  if (!std::filesystem::is_fifo(path, ignored)) return ReadTextFile(path, kMaxInputBytes);
  // What a shell makes of `<(...)`, or a named pipe, which waits for its writer.
  const FileDescriptor pipe(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!pipe.valid()) FailErrno(fmt::format("cannot open {}", path.string()), errno);
  return ReadToEnd(pipe.get(), path.string());
}

bool InputIsTerminal() { return isatty(STDIN_FILENO) == 1; }

LineStatus LineReader::Next(std::string* line) {
  size_t searched = 0;
  while (true) {
    const size_t end = pending_.find('\n', searched);
    if (end != std::string::npos) {
      line->assign(pending_, 0, end);
      pending_.erase(0, end + 1);
      break;
    }
    if (ended_) {
      if (pending_.empty()) return LineStatus::kEnd;
      line->swap(pending_);
      pending_.clear();
      break;
    }
    searched = pending_.size();
    if (!WaitForInput(STDIN_FILENO)) return LineStatus::kInterrupted;
    if (ReadSome(STDIN_FILENO, kStandardInput, pending_) == 0) ended_ = true;
  }
  if (line->ends_with('\r')) line->pop_back();
  return LineStatus::kLine;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace mference::cli
