#include "cli/interrupts.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

#include "base/error.h"

namespace mference::cli {
namespace {

// Touched by the handler: lock-free, hence async-signal-safe.
std::atomic<InterruptMode> g_mode{InterruptMode::kExit};
CancelFlag g_cancel{false};
std::atomic<int> g_signal{0};
// A signal runs on whatever thread the kernel picks, so it does not reliably interrupt a read: in
// mode kInput the handler writes here, and `WaitForInput` polls the other end.
std::array<int, 2> g_wake = {-1, -1};
static_assert(std::atomic<InterruptMode>::is_always_lock_free);
static_assert(CancelFlag::is_always_lock_free && std::atomic<int>::is_always_lock_free);

// Whether standard error is a terminal, which has shown "^C" and wants a new line after it.
std::atomic<bool> g_on_terminal{false};

[[noreturn]] void ExitNow(int signal) {
  if (g_on_terminal.load()) (void)!::write(STDERR_FILENO, "\n", 1);
  _exit(128 + signal);
}

// Weights are mapped files. When one is cut short, or its disk fails, while it is in use, the
// kernel has nothing to show at an address and no call to fail: say so, and end.
void OnLostMapping(int) {
  constexpr std::string_view kMessage =
      "error: a mapped model file could not be read: it was truncated while in use, or its disk "
      "failed. Check it with `mference verify`.\n";
  (void)!::write(STDERR_FILENO, kMessage.data(), kMessage.size());
  _exit(1);
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
      (void)!::write(g_wake[1], "", 1);
      return;
    case InterruptMode::kServe:
      if (repeated) ExitNow(signal);
      (void)!::write(g_wake[1], "", 1);
      return;
  }
}

// Forgets wake-ups; true if there was one.
bool DrainWakePipe() {
  bool woken = false;
  std::array<char, 64> bytes;
  while (::read(g_wake[0], bytes.data(), bytes.size()) > 0) woken = true;
  return woken;
}

}  // namespace

void InstallSignalHandlers() {
  if (pipe2(g_wake.data(), O_CLOEXEC | O_NONBLOCK) != 0) FailErrno("cannot make a pipe", errno);
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  g_on_terminal.store(isatty(STDERR_FILENO) == 1);
  action.sa_handler = OnLostMapping;
  sigaction(SIGBUS, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
  sigaction(SIGXFSZ, &action, nullptr);  // the write fails instead, and says where
}

InterruptScope::InterruptScope(InterruptMode mode) : previous_(g_mode.load()) {
  g_cancel.store(false);
  g_signal.store(0);
  DrainWakePipe();
  g_mode.store(mode);
}

InterruptScope::~InterruptScope() { g_mode.store(previous_); }

// A negative `fd` is never ready.
bool WaitForInput(int fd) {
  std::array<pollfd, 2> waits = {pollfd{fd, POLLIN, 0}, pollfd{g_wake[0], POLLIN, 0}};
  while (::poll(waits.data(), waits.size(), -1) < 0) {
    if (errno != EINTR) FailErrno("cannot wait for input", errno);
  }
  // Not by `revents`: when input and a signal come together, poll may have looked at the pipe
  // before the handler wrote to it. A signal goes before input.
  return !DrainWakePipe();
}

void WaitForSignal() { (void)WaitForInput(-1); }

const CancelFlag& CancelRequested() { return g_cancel; }

void ThrowIfCancelled() {
  if (g_cancel.load()) Fail(ErrorCode::kCancelled, "interrupted");
}

int LastSignal() { return g_signal.load(); }

}  // namespace mference::cli
