// Where an install and everything around it lies, and the names models go by.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "install/file_system.h"

namespace mference {

// $MFERENCE_HOME, else $XDG_DATA_HOME/mference, else ~/.local/share/mference. kInvalidArgument when
// none of the three is set.
std::filesystem::path MferenceHome();
// Where installed models live: the home's `models`.
std::filesystem::path ModelsDirectory();
// Letters, digits, '.', '_' and '-', beginning with a letter or digit. kInvalidArgument.
void RequireModelName(std::string_view name);
// ModelsDirectory()/NAME.gturbo.
std::filesystem::path ModelPath(std::string_view name);

// `final` and its siblings.
struct InstallPaths {
  std::filesystem::path parent;
  std::filesystem::path final_directory;
  std::filesystem::path partial;     // all work in progress
  std::filesystem::path checkpoint;  // what of it is done
  std::filesystem::path lock;        // who is at it; left behind on purpose
  std::filesystem::path seal;        // the last checkpoint of what is in `final_directory`
  std::filesystem::path replaced;    // the old install, while a filesystem cannot swap

  // Creates the parent and resolves its symbolic links, so that every alias of a target means the
  // same lock. Throws kInvalidArgument for a name that cannot be, kInstallState ("unsafe installer
  // path") when something other than a file or directory has one of the names.
  static InstallPaths For(FileSystem& files, const std::filesystem::path& output);
};

// Takes the lock or throws kInstallState naming who holds it (process, host, since when). The lock
// of a dead process is free.
std::unique_ptr<FileLock> LockInstall(FileSystem& files, const InstallPaths& paths);

}  // namespace mference
