// `verified-install.json`: proof that every file of a directory was hashed, where it lies now.
//
// The receipt is bound to the directory's absolute path and to its manifest: a moved or edited
// install must be verified again before it is trusted.
#pragma once

#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "format/manifest.h"

namespace mference {

constexpr uint64_t kMaxReceiptBytes = uint64_t{4} << 20;

// The spelling matters: the original's verify command keeps the provenance of these two only.
inline constexpr std::string_view kInstallToolVersion = "MferenceRepack";
inline constexpr std::string_view kVerifyToolVersion = "MferenceRepack verify-install";

struct Receipt {
  int64_t schema_version = 1;
  std::string manifest_sha256;
  std::string model_directory_path;  // see ReceiptPath
  std::optional<std::string> source_repo_id;
  std::optional<std::string> source_revision;
  std::string verification_timestamp;  // ISO 8601, UTC
  std::string tool_version;
  FileTable files;  // the manifest's, and manifest.json
};

// All of these throw kReceiptInvalid and say what to do.
Receipt ParseReceipt(std::string_view json, const std::string& name);
// Schema, manifest hash and path.
void CheckReceiptBinding(const Receipt& receipt, std::string_view manifest_sha256,
                         const std::filesystem::path& directory);
// Same files with the same sizes and hashes as the manifest, plus manifest.json itself.
void CheckReceiptFiles(const Receipt& receipt, const Manifest& manifest,
                       const FileRecord& manifest_record);

std::string ReceiptToJson(const Receipt& receipt);

// The receipt of a directory whose files were all verified. `directory` is where it will lie in the
// end, which need not be where it is being written.
Receipt MakeReceipt(const Manifest& manifest, std::string_view manifest_json,
                    const std::filesystem::path& directory, std::string_view tool_version,
                    std::time_t now);

// Absolute and lexically normalised, without a trailing slash; symbolic links are kept.
std::string ReceiptPath(const std::filesystem::path& directory);

// "2026-08-14T10:00:00Z".
std::string FormatTimestamp(std::time_t time);

}  // namespace mference
