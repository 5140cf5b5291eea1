// Is this directory a model? Asked before one is deleted or replaced, since a name on a command
// line can be anybody's folder.
#pragma once

#include <filesystem>

#include "install/file_system.h"

namespace mference {

// True for a model, also a damaged one or what is left of one: a directory (no link to one) whose
// entries all have names that an install gives, and which holds more than a `manifest.json` that
// is none of ours. True for an empty directory. Throws what `files` throws.
bool LooksLikeModel(FileSystem& files, const std::filesystem::path& directory);

}  // namespace mference
