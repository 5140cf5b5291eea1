#include "format/listed_file.h"

#include "base/sha256.h"

namespace mference {
namespace {

constexpr const char* kAdvice =
    "the file was damaged or changed after it was installed; repair or install the model again";

void RequireDigest(const std::string& found, const FileRecord& record, const std::string& name) {
  if (found == record.sha256) return;
  Fail(ErrorCode::kChecksumMismatch, "{}: SHA-256 is {}, expected {}; {}", name, found,
       record.sha256, kAdvice);
}

}  // namespace

ManifestText ReadManifestText(const DirectoryHandle& directory, uint64_t max_bytes) {
  FileDescriptor file;
  try {
    file = directory.OpenFile(kManifestFile);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMissingFile) throw;
    Fail(ErrorCode::kPartialInstall,
         "there is no manifest.json in {}: the install did not finish; resume or discard it",
         directory.path.string());
  }
  ManifestText text;
  text.json = ReadTextFile(file, max_bytes, directory.Name(kManifestFile));
  text.record = {text.json.size(), Sha256Hex(text.json)};
  return text;
}

const FileRecord& ListedRecord(const Manifest& manifest, std::string_view path) {
  const auto found = manifest.files.find(path);
  if (found == manifest.files.end()) {
    Fail(ErrorCode::kMissingFile, "the manifest does not list {}", path);
  }
  return found->second;
}

void RequireSize(const FileDescriptor& file, const FileRecord& record, const std::string& name,
                 ErrorCode code) {
  const uint64_t size = FileSize(file, name);
  if (size == record.size) return;
  Fail(code, "{} has {} bytes, but {} were installed; {}", name, size, record.size, kAdvice);
}

void RequireHash(const FileDescriptor& file, const FileRecord& record, const std::string& name,
                 const HashOptions& options) {
  RequireSize(file, record, name, ErrorCode::kChecksumMismatch);
  RequireDigest(HashFile(file, record.size, name, options), record, name);
}

std::string ReadListedText(const DirectoryHandle& directory, const Manifest& manifest,
                           std::string_view path, uint64_t max_bytes) {
  const FileRecord& record = ListedRecord(manifest, path);
  const FileDescriptor file = directory.OpenFile(path);
  const std::string name = directory.Name(path);
  std::string text = ReadTextFile(file, max_bytes, name);
  RequireDigest(Sha256Hex(text), record, name);
  return text;
}

}  // namespace mference
