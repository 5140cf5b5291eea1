// What an install says while it works: plain facts that a progress bar, a log or a web page shows.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace mference {

enum class InstallPhase {
  kMetadata,         // index, config and shard headers
  kVerifyingSource,  // hashing local shards against their published digests
  kPlanning,
  kCheckingDisk,
  kReservingOutput,
  kCheckingSaved,  // digesting what is there: of an interrupted install, or of damaged files
  kCopying,        // the payload
  kHashing,        // outputs that were not hashed on the way
  kFinalizing,     // sidecars, manifest, promotion
  kDone,
};

// The stable name in `--json` output, e.g. "copying".
const char* InstallPhaseName(InstallPhase phase);

struct InstallEvent {
  enum class Kind { kPhase, kProgress, kRetry, kWarning };

  Kind kind = Kind::kPhase;
  InstallPhase phase = InstallPhase::kMetadata;
  // Byte counts of the phase. `reused` were there from an earlier run, `fresh` are this run's;
  // their sum never falls, whatever is retried.
  uint64_t reused_bytes = 0;
  uint64_t fresh_bytes = 0;
  uint64_t total_bytes = 0;
  std::string file{};     // what is being read or hashed; may be empty
  std::string message{};  // for people; of kRetry and kWarning
};

// Called from one thread at a time. May throw to stop the install (state is kept).
using InstallEventSink = std::function<void(const InstallEvent&)>;

// Thins out progress, since a sink may draw or write a line for each event.
class ProgressPace {
 public:
  // True ten times a second, for the first progress of a phase, and when `done` reaches `total`.
  bool IsDue(InstallPhase phase, uint64_t done, uint64_t total);

 private:
  InstallPhase phase_ = InstallPhase::kDone;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace mference
