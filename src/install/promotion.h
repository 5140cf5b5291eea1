// Turning a finished partial directory into the installed model, so that a crash at any point
// leaves either a resumable partial or a complete model.
//
// The order: everything in the partial is flushed, the receipt last; the checkpoint becomes the
// seal (which names the new manifest), so from here on there is nothing left to resume; the
// directory is renamed, or swapped with the one it replaces; the old one goes. Whoever comes after
// a crash looks at what is there and finishes.
#pragma once

#include <cstdint>
#include <optional>

#include "install/checkpoint.h"
#include "install/file_system.h"
#include "install/install_paths.h"

namespace mference {

// Seals `checkpoint` and promotes the complete partial directory. `overwrite` says that an
// installed model may be there and is to be replaced.
void Promote(FileSystem& files, const InstallPaths& paths, Checkpoint checkpoint, bool overwrite);

// Finishes or tidies up what a crash left around a promotion. Returns whether the final directory
// is the result of a promotion that was finished now. Call under the lock before anything else.
bool FinishInterruptedPromotion(FileSystem& files, const InstallPaths& paths);

// Whether `directory` has a manifest, a receipt that binds to it under `final_path`, and every
// listed file at its size.
bool IsCompleteInstall(FileSystem& files, const std::filesystem::path& directory,
                       const std::filesystem::path& final_path);

// The seal beside an installed model; empty when there is none or it belongs to another manifest.
std::optional<Checkpoint> ReadSeal(FileSystem& files, const InstallPaths& paths);

}  // namespace mference
