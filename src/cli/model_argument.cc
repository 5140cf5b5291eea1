#include "cli/model_argument.h"

#include <cstdlib>

#include "base/error.h"
#include "install/install_paths.h"
#include "install/registry.h"

namespace mference::cli {
namespace {

std::filesystem::path OnlyInstalled() {
  ModelListing listing = ListModels(ModelsDirectory());
  std::erase_if(listing.installed, [](const InstalledModel& m) { return !m.problem.empty(); });
  if (listing.installed.size() == 1) return listing.installed.front().directory;
  if (listing.installed.empty()) {
    Fail(ErrorCode::kNotFound,
         "no model is installed in {}; `mference list --available` shows what there is",
         ModelsDirectory().string());
  }
  std::string names;
  for (const InstalledModel& model : listing.installed) {
    names += (names.empty() ? "" : ", ") + model.name;
  }
  Fail(ErrorCode::kInvalidArgument, "several models are installed, so name one: {}", names);
}

}  // namespace

std::filesystem::path ResolveModelPath(const std::string& argument) {
  if (!argument.empty()) return ResolveInstalled(argument, ModelsDirectory());
  const char* preset = std::getenv("MFERENCE_MODEL");  // NOLINT(concurrency-mt-unsafe)
  if (preset != nullptr && *preset != '\0') return ResolveInstalled(preset, ModelsDirectory());
  return OnlyInstalled();
}

std::string ModelNameOf(const std::filesystem::path& directory) {
  const std::filesystem::path normal = std::filesystem::absolute(directory).lexically_normal();
  const std::filesystem::path name = (normal.has_filename() ? normal : normal.parent_path());
  return name.extension() == ".gturbo" ? name.stem().string() : name.filename().string();
}

}  // namespace mference::cli
