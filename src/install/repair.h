// `mference verify --repair`: make an installed model whole again, fetching only what is damaged.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "format/verify_directory.h"
#include "install/events.h"
#include "install/source.h"

namespace mference {

struct RepairOptions {
  int threads = 2;  // of the verifications
  InstallEventSink on_event;
  const std::atomic<bool>* cancelled = nullptr;
};

struct RepairResult {
  VerifyReport report;                     // of the verification at the end; it wrote the receipt
  std::vector<std::string> damaged_files;  // that the first verification found, by path
  uint64_t fetched_ranges = 0;
  uint64_t fetched_bytes = 0;  // of ranges
};

// Where the model in `directory` came from, as its seal or else its receipt says; empty when
// neither does. Tells which source to open for a repair ("local/..." repositories need the snapshot
// again).
std::optional<SourceIdentity> SourceOfInstall(const std::filesystem::path& directory);

// Verifies, then replaces what is damaged with bytes of `source`, which must be the same revision.
// Ranges are compared with the digests that were recorded when the model was installed, so that
// only those that differ are fetched; without that record, all of a damaged file is. Ends with a
// full verification. A manifest that is itself damaged cannot be repaired: kManifestCorrupt and the
// like, or kInstallState for a source that is not the one; nothing is changed then.
RepairResult RepairInstall(const std::filesystem::path& directory, SnapshotSource& source,
                           const RepairOptions& options);

}  // namespace mference
