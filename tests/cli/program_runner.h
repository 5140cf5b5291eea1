// Runs the built program as a user would: arguments, pipes, signals, exit codes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mference::testing_support {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string out;
  std::string err;
};

// Variables that are set for the program besides the test's own.
using Environment = std::map<std::string, std::string>;

// A running program with pipes to all three streams.
class RunningProgram {
 public:
  // MFERENCE_HOME is a scratch folder of this test process.
  // `input`: a file for standard input; empty: a pipe that `Write` feeds.
  explicit RunningProgram(const std::vector<std::string>& arguments,
                          const std::filesystem::path& input = {},
                          const Environment& environment = {});
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  void Write(std::string_view text);
  void CloseInput();
  // Nobody reads its output any more.
  void CloseOutput();
  void Signal(int signal) const;

  // Reads until standard output (or error) has `text` after what earlier calls waited for; false
  // when the program ended first or did not write it for a minute.
  bool WaitForOutput(std::string_view text);
  bool WaitForError(std::string_view text);

  // Standard output so far.
  const std::string& output() const { return result_.out; }

  // Closes its input, reads everything and waits for the end.
  ProgramResult Finish();
  // The same without closing its input: for a program that ends of itself.
  ProgramResult WaitForExit();

 private:
  bool WaitFor(const std::string& stream, size_t& seen, std::string_view text);
  // Reads what there is; false when both streams have ended.
  bool Pump();

  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  int err_ = -1;
  size_t seen_out_ = 0;
  size_t seen_err_ = 0;
  ProgramResult result_;
};

// Runs to the end with `input` on standard input.
ProgramResult RunMference(const std::vector<std::string>& arguments, std::string_view input = "",
                          const Environment& environment = {});

// The same with standard input from a file.
ProgramResult RunMferenceOnFile(const std::vector<std::string>& arguments,
                                const std::filesystem::path& input);

// The MFERENCE_HOME of this process's runs, with the demo model installed as "demo".
const std::filesystem::path& DemoHome();

}  // namespace mference::testing_support
