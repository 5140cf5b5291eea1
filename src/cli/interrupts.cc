#include "cli/interrupts.h"

#include <unistd.h>

#include <csignal>

#include "base/error.h"

namespace mference::cli {
namespace {

// Touched by the handler: lock-free, hence async-signal-safe.
std::atomic<InterruptMode> g_mode{InterruptMode::kExit};
CancelFlag g_cancel{false};
std::atomic<int> g_signal{0};
static_assert(std::atomic<InterruptMode>::is_always_lock_free);
static_assert(CancelFlag::is_always_lock_free && std::atomic<int>::is_always_lock_free);

[[noreturn]] void ExitNow(int signal) {
  (void)!::write(STDOUT_FILENO, "\n", 1);
  _exit(128 + signal);
}

void OnSignal(int signal) {
  const bool repeated = g_signal.exchange(signal) != 0;
  switch (g_mode.load()) {
    case InterruptMode::kExit:
      ExitNow(signal);
    case InterruptMode::kCancel:
      if (repeated) ExitNow(signal);
      g_cancel.store(true);
      return;
    case InterruptMode::kInput:
      if (signal == SIGTERM) ExitNow(signal);
      return;
  }
}

}  // namespace

void InstallSignalHandlers() {
  struct sigaction action {};
  action.sa_handler = OnSignal;  // without SA_RESTART: a read for input must return
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

InterruptScope::InterruptScope(InterruptMode mode) : previous_(g_mode.load()) {
  g_cancel.store(false);
  g_signal.store(0);
  g_mode.store(mode);
}

InterruptScope::~InterruptScope() { g_mode.store(previous_); }

const CancelFlag& CancelRequested() { return g_cancel; }

void ThrowIfCancelled() {
  if (g_cancel.load()) Fail(ErrorCode::kCancelled, "interrupted");
}

int LastSignal() { return g_signal.load(); }

}  // namespace mference::cli
