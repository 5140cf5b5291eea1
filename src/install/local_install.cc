#include "install/local_install.h"

#include "install/install_paths.h"
#include "install/local_source.h"

namespace mference {

InstallResult InstallLocal(const std::filesystem::path& directory, std::string_view name,
                           InstallOptions options) {
  const PinnedSource* named = FindPinned(name);
  if (named != nullptr) options.expected = named;
  if (options.output.empty()) {
    options.output = ModelPath(named != nullptr ? named->name : name);
  }
  LocalSource source(directory);
  return Install(source, options);
}

}  // namespace mference
