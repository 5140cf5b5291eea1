#include "install/events.h"

namespace mference {

const char* InstallPhaseName(InstallPhase phase) {
  switch (phase) {
    case InstallPhase::kMetadata:
      return "metadata";
    case InstallPhase::kVerifyingSource:
      return "verifying_source";
    case InstallPhase::kPlanning:
      return "planning";
    case InstallPhase::kCheckingDisk:
      return "checking_disk";
    case InstallPhase::kReservingOutput:
      return "reserving_output";
    case InstallPhase::kCheckingSaved:
      return "checking_saved";
    case InstallPhase::kCopying:
      return "copying";
    case InstallPhase::kHashing:
      return "hashing";
    case InstallPhase::kFinalizing:
      return "finalizing";
    case InstallPhase::kDone:
      return "done";
  }
  return "";
}

bool ProgressPace::IsDue(InstallPhase phase, uint64_t done, uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (done < total && phase == phase_ && now - last_ < std::chrono::milliseconds(100)) return false;
  phase_ = phase;
  last_ = now;
  return true;
}

}  // namespace mference
