// One file of a directory against its record in the manifest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "format/hash_file.h"
#include "format/manifest.h"

namespace mference {

// An open .gturbo directory: where files are opened, and its path for messages.
struct DirectoryHandle {
  std::filesystem::path path;
  FileDescriptor descriptor;

  // Throws kMissingFile or kIo, see OpenBeneath.
  FileDescriptor OpenFile(std::string_view relative) const {
    return OpenBeneath(descriptor, relative, path);
  }
  std::string Name(std::string_view relative) const { return (path / relative).string(); }
};

// The text and the record of manifest.json. Throws kPartialInstall when there is none,
// kMetadataTooLarge above `max_bytes`.
struct ManifestText {
  std::string json;
  FileRecord record;
};
ManifestText ReadManifestText(const DirectoryHandle& directory, uint64_t max_bytes);

// The record in `manifest.files`; kMissingFile when it is not listed.
const FileRecord& ListedRecord(const Manifest& manifest, std::string_view path);

// Throws Error(code) unless the open file has the recorded size.
void RequireSize(const FileDescriptor& file, const FileRecord& record, const std::string& name,
                 ErrorCode code);
// Throws kChecksumMismatch unless size and SHA-256 are the recorded ones.
void RequireHash(const FileDescriptor& file, const FileRecord& record, const std::string& name,
                 const HashOptions& options = {});
// Reads a listed file whole and checks it: kMissingFile, kMetadataTooLarge, kChecksumMismatch.
std::string ReadListedText(const DirectoryHandle& directory, const Manifest& manifest,
                           std::string_view path, uint64_t max_bytes);

}  // namespace mference
