// The program `mference`: its commands, and what every one of them has in common.
#pragma once

namespace mference::cli {

// Parses the command line, runs the command and returns the exit code: 0 done, 1 failed, 2 bad
// arguments (or a prompt that is empty or does not fit), 130 and 143 after SIGINT and SIGTERM.
// Installs signal handlers; call it once per process.
int RunProgram(int argc, const char* const* argv);

}  // namespace mference::cli
