#include "install/model_tree.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "format/manifest.h"

namespace mference {
namespace {

constexpr std::array kTopLevelNames = {kManifestFile, kReceiptFile, kWeightsFile, kExpertsDirectory,
                                       kTokenizerDirectory};

bool HasOurManifest(FileSystem& files, const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kManifestFile;
  if (files.Examine(path) != EntryType::kFile) return false;
  try {
    (void)ParseManifest(ReadWholeFile(files, path, kMaxManifestBytes), path.string());
    return true;
  } catch (const Error&) {
    return false;  // no manifest of ours, whatever else it is
  }
}

}  // namespace

bool LooksLikeModel(FileSystem& files, const std::filesystem::path& directory) {
  if (files.Examine(directory) != EntryType::kDirectory) return false;
  const std::vector<std::string> names = files.List(directory);
  const bool ours = std::all_of(names.begin(), names.end(), [](const std::string& name) {
    return std::find(kTopLevelNames.begin(), kTopLevelNames.end(), name) != kTopLevelNames.end();
  });
  const bool only_a_manifest = names.size() == 1 && names.front() == kManifestFile;
  return ours && (!only_a_manifest || HasOurManifest(files, directory));
}

}  // namespace mference
