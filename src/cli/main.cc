#include <fcntl.h>
#include <unistd.h>

#include <initializer_list>

#include "cli/program.h"

namespace {

// A standard descriptor that is closed would be taken by the next file that is opened, and read or
// written in its place. Opened the wrong way round, it gives an error to whoever uses it.
void OccupyStandardDescriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is `fd`.
    if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  OccupyStandardDescriptors();
  return mference::cli::RunProgram(argc, argv);
}
