// Shows an install's events: a redrawn line, plain lines, or JSON.
#pragma once

#include <chrono>

#include "cli/console.h"
#include "install/events.h"

namespace mference::cli {

enum class ProgressForm {
  kNone,
  kPeople,  // standard error: redrawn on a terminal, else one line per phase and every 10 s
  kJson,    // standard output, one object a line
};

class InstallProgress {
 public:
  InstallProgress(Console& console, ProgressForm form);
  // Also throws OutputClosed for kJson.
  void Show(const InstallEvent& event);
  // Takes the redrawn line away, before something else is printed.
  void Clear() { line_.Clear(); }

 private:
  using Clock = std::chrono::steady_clock;

  void ShowJson(const InstallEvent& event);
  void ShowProgress(const InstallEvent& event);

  Console& console_;
  const ProgressForm form_;
  ProgressLine line_;
  InstallPhase phase_ = InstallPhase::kDone;
  Clock::time_point phase_start_;
  Clock::time_point next_plain_line_;
};

// "42.1%  6.02/14.29 GB  reused 3.10 GB  88 MB/s  About 2 min remaining". The estimate
// appears after ten seconds and 32 MiB.
std::string DescribeProgress(const InstallEvent& event, double seconds);

}  // namespace mference::cli
