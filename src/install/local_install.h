// `mference install --from DIR NAME` in one call.
#pragma once

#include <filesystem>
#include <string_view>

#include "install/installer.h"

namespace mference {

// Installs the local snapshot in `directory` as model `name` (`options.output` is set here unless
// it was given). A pinned model's name stands for that checkpoint: the snapshot must be it. Any
// other name takes whatever family the snapshot is of, pinned or not.
InstallResult InstallLocal(const std::filesystem::path& directory, std::string_view name,
                           InstallOptions options);

}  // namespace mference
