#include "cli/install_progress.h"

#include "base/json.h"
#include "base/units.h"

namespace mference::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kPlainInterval = 10s;
// Before this much a rate, or an estimate of the rest, says nothing.
constexpr double kSecondsForRate = 1.0;
constexpr double kSecondsForEstimate = 10.0;
constexpr uint64_t kBytesForEstimate = 32 * kMiB;

const char* KindName(InstallEvent::Kind kind) {
  switch (kind) {
    case InstallEvent::Kind::kPhase:
      return "phase";
    case InstallEvent::Kind::kProgress:
      return "progress";
    case InstallEvent::Kind::kRetry:
      return "retry";
    case InstallEvent::Kind::kWarning:
      return "warning";
  }
  return "unknown";
}

// What a phase is to people; empty for those that take no time.
const char* PhaseTitle(InstallPhase phase) {
  switch (phase) {
    case InstallPhase::kMetadata:
      return "reading the checkpoint's headers";
    case InstallPhase::kVerifyingSource:
      return "verifying the source";
    case InstallPhase::kReservingOutput:
      return "reserving space";
    case InstallPhase::kCheckingSaved:
      return "checking what is there";
    case InstallPhase::kCopying:
      return "copying";
    case InstallPhase::kHashing:
      return "hashing";
    case InstallPhase::kFinalizing:
      return "finishing";
    case InstallPhase::kPlanning:
    case InstallPhase::kCheckingDisk:
    case InstallPhase::kDone:
      return "";
  }
  return "";
}

double Gigabytes(uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

// As coarse as the estimate is.
std::string DescribeRemaining(double seconds) {
  if (seconds < 60) return "Less than a minute remaining";
  if (seconds < 3600) return fmt::format("About {:.0f} min remaining", seconds / 60);
  if (seconds <= 24 * 3600) return fmt::format("About {:.0f} hr remaining", seconds / 3600);
  return "More than a day remaining";
}

}  // namespace

std::string DescribeProgress(const InstallEvent& event, double seconds) {
  const uint64_t done = event.reused_bytes + event.fresh_bytes;
  const double share = event.total_bytes == 0
                           ? 1.0
                           : static_cast<double>(done) / static_cast<double>(event.total_bytes);
  std::string text = fmt::format("{:5.1f}%  {:.2f}/{:.2f} GB", share * 100, Gigabytes(done),
                                 Gigabytes(event.total_bytes));
  if (event.reused_bytes > 0)
    text += fmt::format("  reused {:.2f} GB", Gigabytes(event.reused_bytes));
  if (seconds >= kSecondsForRate && event.fresh_bytes > 0) {
    const double rate = static_cast<double>(event.fresh_bytes) / seconds;
    text += fmt::format("  {:.0f} MB/s", rate / 1e6);
    if (done < event.total_bytes && seconds >= kSecondsForEstimate &&
        event.fresh_bytes >= kBytesForEstimate) {
      text += "  " + DescribeRemaining(static_cast<double>(event.total_bytes - done) / rate);
    }
  }
  return text;
}

InstallProgress::InstallProgress(Console& console, ProgressForm form)
    : console_(console), form_(form), line_(console) {}

void InstallProgress::Show(const InstallEvent& event) {
  if (form_ == ProgressForm::kJson) return ShowJson(event);
  switch (event.kind) {
    case InstallEvent::Kind::kRetry:
    case InstallEvent::Kind::kWarning:
      line_.Clear();
      console_.Note("{}: {}\n", KindName(event.kind), event.message);
      return;
    case InstallEvent::Kind::kPhase:
    case InstallEvent::Kind::kProgress:
      if (form_ == ProgressForm::kPeople) ShowProgress(event);
      return;
  }
}

void InstallProgress::ShowProgress(const InstallEvent& event) {
  const Clock::time_point now = Clock::now();
  const std::string title = PhaseTitle(event.phase);
  if (event.phase != phase_) {
    phase_ = event.phase;
    phase_start_ = now;
    next_plain_line_ = now + kPlainInterval;
    line_.Clear();
    if (!title.empty() && !console_.error_is_terminal()) console_.Note("{}\n", title);
  }
  if (event.kind != InstallEvent::Kind::kProgress || event.total_bytes == 0) return;
  const double seconds = std::chrono::duration<double>(now - phase_start_).count();
  line_.Update([&] { return fmt::format("{}  {}", title, DescribeProgress(event, seconds)); });
  if (!console_.error_is_terminal() && now >= next_plain_line_) {
    next_plain_line_ = now + kPlainInterval;
    console_.Note("{}\n", DescribeProgress(event, seconds));
  }
}

void InstallProgress::ShowJson(const InstallEvent& event) {
  Json line = {{"event", KindName(event.kind)}, {"phase", InstallPhaseName(event.phase)}};
  if (event.kind == InstallEvent::Kind::kProgress) {
    line["reused_bytes"] = event.reused_bytes;
    line["fresh_bytes"] = event.fresh_bytes;
    line["total_bytes"] = event.total_bytes;
  }
  if (!event.file.empty()) line["file"] = event.file;
  if (!event.message.empty()) line["message"] = event.message;
  console_.Write(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace mference::cli
