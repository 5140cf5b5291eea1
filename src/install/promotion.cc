#include "install/promotion.h"

#include <algorithm>

#include "base/error.h"
#include "base/sha256.h"
#include "format/manifest.h"
#include "format/receipt.h"
#include "install/model_tree.h"

namespace mference {
namespace {

std::string ManifestHash(FileSystem& files, const std::filesystem::path& directory) {
  const std::filesystem::path manifest = directory / kManifestFile;
  if (files.Examine(manifest) != EntryType::kFile) return "";
  return Sha256Hex(ReadWholeFile(files, manifest, kMaxManifestBytes));
}

// The manifest hash that the seal names, or empty.
std::string SealedHash(FileSystem& files, const InstallPaths& paths) {
  if (files.Examine(paths.seal) != EntryType::kFile) return "";
  try {
    return ReadCheckpoint(files, paths.seal).manifest_sha256;
  } catch (const Error&) {
    return "";  // unreadable is as good as none: nothing is decided by it
  }
}

bool IsDirectory(FileSystem& files, const std::filesystem::path& path) {
  return files.Examine(path) == EntryType::kDirectory;
}

// From a sealed partial to the installed model.
void Swap(FileSystem& files, const InstallPaths& paths) {
  if (!IsDirectory(files, paths.final_directory)) {
    files.Rename(paths.partial, paths.final_directory);
    files.SyncDirectory(paths.parent);
    return;
  }
  if (files.Exchange(paths.partial, paths.final_directory)) {
    files.SyncDirectory(paths.parent);
    files.Rename(paths.partial, paths.replaced);  // the old install now
  } else {
    // Two steps, with the old install findable in between.
    files.Rename(paths.final_directory, paths.replaced);
    files.SyncDirectory(paths.parent);
    files.Rename(paths.partial, paths.final_directory);
  }
  files.SyncDirectory(paths.parent);
  RemoveTree(files, paths.replaced);
  files.SyncDirectory(paths.parent);
}

void Seal(FileSystem& files, const InstallPaths& paths, Checkpoint checkpoint) {
  checkpoint.manifest_sha256 = ManifestHash(files, paths.partial);
  WriteCheckpoint(files, paths.checkpoint, checkpoint);
  files.Rename(paths.checkpoint, paths.seal);
  files.SyncDirectory(paths.parent);
}

}  // namespace

bool IsCompleteInstall(FileSystem& files, const std::filesystem::path& directory,
                       const std::filesystem::path& final_path) {
  if (files.Examine(directory / kManifestFile) != EntryType::kFile ||
      files.Examine(directory / kReceiptFile) != EntryType::kFile) {
    return false;
  }
  try {
    const std::string manifest_json =
        ReadWholeFile(files, directory / kManifestFile, kMaxManifestBytes);
    const Manifest manifest = ParseManifest(manifest_json, std::string(kManifestFile));
    const Receipt receipt =
        ParseReceipt(ReadWholeFile(files, directory / kReceiptFile, kMaxReceiptBytes),
                     std::string(kReceiptFile));
    const std::string hash = Sha256Hex(manifest_json);
    CheckReceiptBinding(receipt, hash, final_path);
    CheckReceiptFiles(receipt, manifest, {.size = manifest_json.size(), .sha256 = hash});
    return std::all_of(manifest.files.begin(), manifest.files.end(), [&](const auto& entry) {
      const std::filesystem::path path = directory / entry.first;
      return files.Examine(path) == EntryType::kFile &&
             files.OpenFile(path, FileAccess::kRead)->Size() == entry.second.size;
    });
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo) throw;
    return false;
  }
}

void Promote(FileSystem& files, const InstallPaths& paths, Checkpoint checkpoint, bool overwrite) {
  if (!overwrite && IsDirectory(files, paths.final_directory)) {
    Fail(ErrorCode::kInstallState, "{} appeared while it was being installed",
         paths.final_directory.string());
  }
  Seal(files, paths, std::move(checkpoint));
  Swap(files, paths);
}

bool FinishInterruptedPromotion(FileSystem& files, const InstallPaths& paths) {
  const auto exists = [&](const std::filesystem::path& path) { return IsDirectory(files, path); };
  const bool has_checkpoint = files.Examine(paths.checkpoint) == EntryType::kFile;
  const std::string sealed = SealedHash(files, paths);
  const bool final_is_sealed = !sealed.empty() && exists(paths.final_directory) &&
                               ManifestHash(files, paths.final_directory) == sealed;

  bool promoted = false;
  if (exists(paths.partial) && !has_checkpoint) {
    const std::string partial_manifest = ManifestHash(files, paths.partial);
    if (final_is_sealed) {
      // With a manifest it is the old install, just exchanged; without, the beginning of another
      // install, which is not a promotion's business.
      if (!partial_manifest.empty()) {
        RemoveTree(files, paths.partial);
        files.SyncDirectory(paths.parent);
        promoted = true;
      }
    } else if ((sealed.empty() ? !exists(paths.final_directory) : partial_manifest == sealed) &&
               IsCompleteInstall(files, paths.partial, paths.final_directory)) {
      Swap(files, paths);
      promoted = true;
    }
  }
  // Only what a promotion leaves: another folder may have that name.
  if (LooksLikeModel(files, paths.replaced)) {
    if (exists(paths.final_directory)) {
      RemoveTree(files, paths.replaced);
      promoted = promoted || final_is_sealed;
    } else {
      files.Rename(paths.replaced, paths.final_directory);
    }
    files.SyncDirectory(paths.parent);
  }
  if (has_checkpoint && !exists(paths.partial)) {
    files.RemoveFile(paths.checkpoint);  // of something that was discarded
    files.SyncDirectory(paths.parent);
  }
  return promoted;
}

std::optional<Checkpoint> ReadSeal(FileSystem& files, const InstallPaths& paths) {
  const std::string sealed = SealedHash(files, paths);
  if (sealed.empty() || sealed != ManifestHash(files, paths.final_directory)) return std::nullopt;
  return ReadCheckpoint(files, paths.seal);
}

}  // namespace mference
