#include "server/tailnet.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <vector>

#include "base/error.h"
#include "server/request_log.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace mference::server {
namespace {

constexpr size_t kMaxOutput = 4096;
constexpr size_t kMaxQuoted = 64;
constexpr int kNotFoundStatus = 127;

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && !IsSpace(text[i])) continue;
    if (i > begin) words.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return words;
}

// Four decimal parts without leading zeros; false for anything else.
bool ParseDottedQuad(std::string_view text, std::array<int, 4>* parts) {
  for (size_t i = 0; i < parts->size(); ++i) {
    const size_t dot = i + 1 < parts->size() ? text.find('.') : text.size();
    if (dot == std::string_view::npos) return false;
    const std::string_view part = text.substr(0, dot);
    if (part.empty() || part.size() > 3 || (part.size() > 1 && part[0] == '0')) return false;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), (*parts)[i]);
    if (error != std::errc() || end != part.data() + part.size()) return false;
    if ((*parts)[i] < 0 || (*parts)[i] > 255 || part[0] == '-') return false;
    text.remove_prefix(std::min(dot + 1, text.size()));
  }
  return true;
}

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 512> buffer;
  while (text.size() < kMaxOutput) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  return text;
}

}  // namespace

std::string ParseTailnetAddress(std::string_view output) {
  const std::vector<std::string_view> words = Words(output);
  const std::string quoted = Sanitise(output, kMaxQuoted);
  if (words.size() != 1) {
    Fail(ErrorCode::kInvalidArgument, "tailscale gave {} addresses where one was expected: '{}'",
         words.size(), quoted);
  }
  std::array<int, 4> parts{};
  if (!ParseDottedQuad(words[0], &parts)) {
    Fail(ErrorCode::kInvalidArgument, "tailscale gave what is no IPv4 address: '{}'", quoted);
  }
  if (parts[0] != 100 || parts[1] < 64 || parts[1] > 127) {
    Fail(ErrorCode::kInvalidArgument, "'{}' is not in the Tailnet's range 100.64.0.0/10", quoted);
  }
  return std::string(words[0]);
}

std::string FindTailnetAddress() {
  std::array<int, 2> ends = {-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) FailErrno("cannot make a pipe", errno);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string program = "tailscale";
  std::string command = "ip";
  std::string flag = "-4";
  char* const arguments[] = {program.data(), command.data(), flag.data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, "tailscale", &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  const std::string output = error == 0 ? ReadAll(ends[0]) : "";
  ::close(ends[0]);
  int status = 0;
  if (error == 0) {
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
  if (error != 0 || (WIFEXITED(status) && WEXITSTATUS(status) == kNotFoundStatus)) {
    Fail(ErrorCode::kNotFound, "--bind tailnet needs the program `tailscale`, which is not here");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    Fail(ErrorCode::kIo, "`tailscale ip -4` failed with status {}; is this machine in a Tailnet?",
         WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return ParseTailnetAddress(output);
}

}  // namespace mference::server
