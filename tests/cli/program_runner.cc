#include "cli/program_runner.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it undeclared

namespace mference::testing_support {
namespace {

constexpr std::chrono::seconds kPatience{60};

// A scratch folder that goes with the process.
class ScratchHome {
 public:
  ScratchHome() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mference-cli-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
    setenv("MFERENCE_HOME", path_.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): before any thread
    unsetenv("MFERENCE_MODEL");                 // NOLINT(concurrency-mt-unsafe)
    signal(SIGPIPE, SIG_IGN);                   // a program that ends early must not end the test
  }
  ~ScratchHome() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

const ScratchHome& Home() {
  static const ScratchHome home;
  return home;
}

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
    read = ends[0];
    write = ends[1];
  }
  int read = -1;
  int write = -1;
};

void CloseOnce(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

}  // namespace

RunningProgram::RunningProgram(const std::vector<std::string>& arguments,
                               const std::filesystem::path& input, const Environment& environment) {
  Home();
  std::vector<std::string> words = {MFERENCE_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> envp;
  for (std::string& variable : variables) envp.push_back(variable.data());
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!environment.contains(std::string(text.substr(0, text.find('='))))) {
      envp.push_back(*variable);
    }
  }
  envp.push_back(nullptr);

  const Pipe in;
  const Pipe out;
  const Pipe err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (input.empty()) {
    posix_spawn_file_actions_adddup2(&actions, in.read, STDIN_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, input.c_str(), O_RDONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&actions, out.write, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write, STDERR_FILENO);
  const int problem =
      posix_spawn(&pid_, MFERENCE_PROGRAM, &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  close(in.read);
  close(out.write);
  close(err.write);
  in_ = in.write;
  out_ = out.read;
  err_ = err.read;
  if (problem != 0) throw std::runtime_error("cannot start " MFERENCE_PROGRAM);
}

RunningProgram::~RunningProgram() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  CloseOnce(in_);
  CloseOnce(out_);
  CloseOnce(err_);
}

void RunningProgram::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(in_, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void RunningProgram::CloseInput() { CloseOnce(in_); }
void RunningProgram::CloseOutput() { CloseOnce(out_); }
void RunningProgram::Signal(int signal) const { kill(pid_, signal); }

bool RunningProgram::WaitForOutput(std::string_view text) {
  return WaitFor(result_.out, seen_out_, text);
}
bool RunningProgram::WaitForError(std::string_view text) {
  return WaitFor(result_.err, seen_err_, text);
}

bool RunningProgram::WaitFor(const std::string& stream, size_t& seen, std::string_view text) {
  while (true) {
    const size_t at = stream.find(text, seen);
    if (at != std::string::npos) {
      seen = at + text.size();
      return true;
    }
    if (!Pump()) return false;
  }
}

bool RunningProgram::Pump() {
  std::array<pollfd, 2> polled = {pollfd{out_, POLLIN, 0}, pollfd{err_, POLLIN, 0}};
  if (out_ < 0 && err_ < 0) return false;
  if (poll(polled.data(), polled.size(), static_cast<int>(kPatience.count()) * 1000) <= 0) {
    ADD_FAILURE() << "the program says nothing; so far:\n" << result_.out << "\n" << result_.err;
    kill(pid_, SIGKILL);
    return false;
  }
  const auto take = [](const pollfd& ready, int& fd, std::string& text) {
    if (fd < 0 || ready.revents == 0) return;
    std::array<char, 4096> buffer;
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got > 0) {
      text.append(buffer.data(), static_cast<size_t>(got));
    } else {
      CloseOnce(fd);
    }
  };
  take(polled[0], out_, result_.out);
  take(polled[1], err_, result_.err);
  return out_ >= 0 || err_ >= 0;
}

ProgramResult RunningProgram::Finish() {
  CloseInput();
  return WaitForExit();
}

ProgramResult RunningProgram::WaitForExit() {
  while (Pump()) {
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  result_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result_;
}

ProgramResult RunMference(const std::vector<std::string>& arguments, std::string_view input,
                          const Environment& environment) {
  RunningProgram program(arguments, {}, environment);
  program.Write(input);
  return program.Finish();
}

ProgramResult RunMferenceOnFile(const std::vector<std::string>& arguments,
                                const std::filesystem::path& input) {
  return RunningProgram(arguments, input).Finish();
}

const std::filesystem::path& DemoHome() {
  static const bool installed = [] {
    const ProgramResult result =
        RunMference({"install", "--from", MFERENCE_DEMO_SNAPSHOT, "demo", "--quiet"});
    if (result.exit_code != 0) throw std::runtime_error("the demo does not install: " + result.err);
    return true;
  }();
  (void)installed;
  return Home().path();
}

}  // namespace mference::testing_support
