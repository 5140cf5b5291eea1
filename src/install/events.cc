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

}  // namespace mference
