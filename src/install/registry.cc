#include "install/registry.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "format/manifest.h"
#include "install/checkpoint.h"
#include "install/install_paths.h"
#include "install/model_tree.h"
#include "model/catalogue.h"

namespace mference {
namespace {

constexpr std::string_view kModelSuffix = ".gturbo";
constexpr std::string_view kCheckpointSuffix = ".gturbo.resume.json";

InstalledModel Describe(const std::filesystem::path& directory, std::string name) {
  InstalledModel model;
  model.name = std::move(name);
  model.directory = directory;
  try {
    const std::filesystem::path path = directory / kManifestFile;
    if (!std::filesystem::exists(path)) {
      Fail(ErrorCode::kPartialInstall, "no {}: the install did not finish", kManifestFile);
    }
    const Manifest manifest = ParseManifest(ReadTextFile(path, kMaxManifestBytes), path.string());
    CheckManifestIdentity(manifest, path.string());
    model.model_id = manifest.model_id;
    model.family = manifest.arch.family;
    model.pinned = FindPinnedByModelId(manifest.model_id) != nullptr;
    for (const auto& [file, record] : manifest.files) model.bytes += record.size;
  } catch (const Error& error) {
    model.problem = error.what();
  }
  return model;
}

std::string InstalledNames(const ModelListing& listing) {
  std::string names;
  for (const InstalledModel& model : listing.installed) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", model.name);
  }
  return names.empty() ? "nothing is installed" : "installed: " + names;
}

}  // namespace

ModelListing ListModels(const std::filesystem::path& models) {
  ModelListing listing;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(models, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    if (file.ends_with(kModelSuffix) && entry->is_directory(error)) {
      listing.installed.push_back(
          Describe(entry->path(), file.substr(0, file.size() - kModelSuffix.size())));
    } else if (file.ends_with(kCheckpointSuffix)) {
      UnfinishedModel unfinished;
      unfinished.name = file.substr(0, file.size() - kCheckpointSuffix.size());
      try {
        const Checkpoint saved = ReadCheckpoint(PosixFiles(), entry->path());
        unfinished.repository = saved.source.repository;
        unfinished.completed_bytes = saved.completed_source_bytes();
        unfinished.total_bytes = saved.total_source_bytes;
      } catch (const Error&) {
        // Still unfinished; there is just nothing to say about it.
      }
      listing.unfinished.push_back(std::move(unfinished));
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    FailErrno(fmt::format("cannot list {}", models.string()), error.value());
  }
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  std::sort(listing.installed.begin(), listing.installed.end(), by_name);
  std::sort(listing.unfinished.begin(), listing.unfinished.end(), by_name);
  return listing;
}

std::filesystem::path ResolveInstalled(std::string_view model,
                                       const std::filesystem::path& models) {
  const bool is_path = model.find('/') != std::string_view::npos || model.ends_with(kModelSuffix);
  std::error_code error;
  if (is_path) {
    if (!std::filesystem::is_directory(model, error)) {
      Fail(ErrorCode::kNotFound, "{} is not a model directory", model);
    }
    return model;
  }
  std::vector<std::string> names = {std::string(model)};
  const PinnedSource* pinned = FindPinned(model);
  if (pinned != nullptr) names.emplace_back(pinned->name);
  for (const std::string& name : names) {
    std::filesystem::path path = models / (name + std::string(kModelSuffix));
    if (std::filesystem::is_directory(path, error)) return path;
  }
  if (std::filesystem::is_directory(model, error)) return model;
  const ModelListing listing = ListModels(models);
  for (const UnfinishedModel& unfinished : listing.unfinished) {
    if (std::find(names.begin(), names.end(), unfinished.name) == names.end()) continue;
    Fail(ErrorCode::kPartialInstall,
         "the install of {0} has not finished: the same `mference install` goes on, `mference "
         "install --discard {0}` removes what it saved",
         unfinished.name);
  }
  Fail(ErrorCode::kNotFound, "no model named '{}' ({}){}", model, InstalledNames(listing),
       pinned != nullptr ? fmt::format("; `mference install {}` fetches it", pinned->name) : "");
}

void RemoveModel(const std::filesystem::path& directory) {
  FileSystem& files = PosixFiles();
  const InstallPaths paths = InstallPaths::For(files, directory);
  const auto lock = LockInstall(files, paths);
  const bool installed = files.Examine(paths.final_directory) != EntryType::kNone;
  const bool unfinished = files.Examine(paths.partial) != EntryType::kNone;
  if (!installed && !unfinished) {
    Fail(ErrorCode::kNotFound, "there is no model at {}", paths.final_directory.string());
  }
  if (installed && !LooksLikeModel(files, paths.final_directory)) {
    Fail(ErrorCode::kNotFound,
         "{} is not a model directory, or holds more than a model: nothing was removed",
         paths.final_directory.string());
  }
  // The manifest first: what is left after a crash does not load as a model.
  const std::filesystem::path manifest = paths.final_directory / kManifestFile;
  if (files.Examine(manifest) != EntryType::kNone) {
    files.RemoveFile(manifest);
    files.SyncDirectory(paths.final_directory);
  }
  if (LooksLikeModel(files, paths.replaced)) RemoveTree(files, paths.replaced);
  for (const auto& path : {paths.seal, paths.checkpoint, paths.partial, paths.final_directory}) {
    RemoveTree(files, path);
  }
  files.SyncDirectory(paths.parent);
}

}  // namespace mference
