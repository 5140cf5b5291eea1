// SIGINT and SIGTERM: what they do depends on what the program is doing.
#pragma once

#include "engine/session.h"

namespace mference::cli {

enum class InterruptMode {
  kExit,    // nothing to save: a newline on standard output, then exit 128 + signal
  kCancel,  // work in progress: set the cancel flag; a second signal exits
  kInput,   // waiting for a line of input: `WaitForInput` returns; SIGTERM exits
  kServe,   // serving: `WaitForSignal` returns; a second signal exits
};

// Handles SIGINT and SIGTERM from now on, mode kExit; ignores SIGPIPE, so that writes fail instead.
void InstallSignalHandlers();

// Switches the mode for a scope. Entering kCancel and kInput clears what came before.
class InterruptScope {
 public:
  explicit InterruptScope(InterruptMode mode);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  InterruptMode previous_;
};

// Waits until `fd` can be read. False when a signal came instead, also one that came since the mode
// kInput was entered.
bool WaitForInput(int fd);
// Waits for a signal in mode kServe, or returns at once if one has come since it was entered.
void WaitForSignal();

// Set by a signal in mode kCancel.
const CancelFlag& CancelRequested();
// Throws kCancelled if it is set.
void ThrowIfCancelled();
// The last signal since the mode was entered; 0: none.
int LastSignal();

}  // namespace mference::cli
