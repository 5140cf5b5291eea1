// A synthetic checkpoint as files in the source layout, for trying out installation itself.
#pragma once

#include <atomic>
#include <filesystem>

#include "install/events.h"
#include "synth/synthetic_source.h"

namespace mference {

// Writes every file of `source` into `directory`, which is created and must be empty; the index
// comes last, so that what was interrupted is no snapshot. Sends kCopying and kDone events. Throws
// kInstallState for a directory that has something in it, kDiskFull before anything is written if
// the space will not do, kCancelled.
void WriteSyntheticSnapshot(SyntheticSource& source, const std::filesystem::path& directory,
                            const InstallEventSink& on_event,
                            const std::atomic<bool>* cancelled = nullptr);

}  // namespace mference
