#include "format/receipt.h"

#include <fmt/chrono.h>

#include "base/error.h"
#include "base/sha256.h"
#include "format/path_rules.h"

namespace mference {
namespace {

constexpr auto kCode = ErrorCode::kReceiptInvalid;
constexpr const char* kAdvice = "run `mference verify` to check the files and renew it";

}  // namespace

std::string ReceiptPath(const std::filesystem::path& directory) {
  std::string path = std::filesystem::absolute(directory).lexically_normal().string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string FormatTimestamp(std::time_t time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(time));
}

Receipt ParseReceipt(std::string_view text, const std::string& name) {
  const Json document = ParseJson(text, name, kCode);
  const JsonReader root(document, name, kCode);
  Receipt receipt;
  receipt.schema_version = root.At("schemaVersion").Int();
  receipt.manifest_sha256 = AsciiLower(root.At("manifestSha256").String());
  receipt.model_directory_path = root.At("modelDirectoryPath").String();
  if (root.Has("sourceRepoID")) receipt.source_repo_id = root.At("sourceRepoID").String();
  if (root.Has("sourceRevision")) receipt.source_revision = root.At("sourceRevision").String();
  receipt.verification_timestamp = root.At("verificationTimestamp").String();
  receipt.tool_version = root.At("toolVersion").String();
  receipt.files = ParseFileTable(root.At("files"), /*allow_manifest=*/true);
  return receipt;
}

void CheckReceiptBinding(const Receipt& receipt, std::string_view manifest_sha256,
                         const std::filesystem::path& directory) {
  if (receipt.schema_version != 1) {
    Fail(kCode, "the receipt has schema version {}, not 1; {}", receipt.schema_version, kAdvice);
  }
  if (receipt.manifest_sha256 != manifest_sha256) {
    Fail(kCode, "the receipt is for another manifest ({}, this one is {}); {}",
         receipt.manifest_sha256, manifest_sha256, kAdvice);
  }
  const std::string path = ReceiptPath(directory);
  if (receipt.model_directory_path != path) {
    Fail(kCode, "the receipt is for {}, but the model was opened as {}: it was moved or copied; {}",
         receipt.model_directory_path, path, kAdvice);
  }
}

void CheckReceiptFiles(const Receipt& receipt, const Manifest& manifest,
                       const FileRecord& manifest_record) {
  FileTable expected = manifest.files;
  expected.emplace(kManifestFile, manifest_record);
  for (const auto& [path, record] : expected) {
    const auto found = receipt.files.find(path);
    if (found == receipt.files.end()) {
      Fail(kCode, "the receipt does not list {}; {}", path, kAdvice);
    }
    if (found->second != record) {
      Fail(kCode, "the receipt has {} with {} bytes and SHA-256 {}, expected {} and {}; {}", path,
           found->second.size, found->second.sha256, record.size, record.sha256, kAdvice);
    }
  }
  for (const auto& [path, record] : receipt.files) {
    if (!expected.contains(path)) {
      Fail(kCode, "the receipt lists {}, which the manifest does not; {}", path, kAdvice);
    }
  }
}

std::string ReceiptToJson(const Receipt& receipt) {
  std::string text;
  JsonWriter json([&text](std::string_view piece) { text += piece; });
  json.BeginObject();
  json.Key("schemaVersion");
  json.Int(receipt.schema_version);
  json.Key("manifestSha256");
  json.String(receipt.manifest_sha256);
  json.Key("modelDirectoryPath");
  json.String(receipt.model_directory_path);
  if (receipt.source_repo_id) {
    json.Key("sourceRepoID");
    json.String(*receipt.source_repo_id);
  }
  if (receipt.source_revision) {
    json.Key("sourceRevision");
    json.String(*receipt.source_revision);
  }
  json.Key("verificationTimestamp");
  json.String(receipt.verification_timestamp);
  json.Key("toolVersion");
  json.String(receipt.tool_version);
  json.Key("files");
  WriteFileTable(receipt.files, json);
  json.EndObject();
  json.Finish();
  return text;
}

Receipt MakeReceipt(const Manifest& manifest, std::string_view manifest_json,
                    const std::filesystem::path& directory, std::string_view tool_version,
                    std::time_t now) {
  Receipt receipt;
  receipt.manifest_sha256 = Sha256Hex(manifest_json);
  receipt.model_directory_path = ReceiptPath(directory);
  receipt.verification_timestamp = FormatTimestamp(now);
  receipt.tool_version = tool_version;
  receipt.files = manifest.files;
  receipt.files.emplace(kManifestFile, FileRecord{manifest_json.size(), receipt.manifest_sha256});
  return receipt;
}

}  // namespace mference
