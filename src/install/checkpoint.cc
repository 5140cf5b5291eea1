#include "install/checkpoint.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "format/json_writer.h"
#include "format/path_rules.h"

namespace mference {
namespace {

constexpr int64_t kSchema = 1;

std::string ReadHex(const JsonReader& field, size_t digits) {
  std::string text = field.String();
  const bool hex = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  });
  if (text.size() != digits || !hex) {
    field.FailHere(
        fmt::format("expected {} hex digits; the saved download can only be discarded", digits));
  }
  return text;
}

std::string ReadNonEmpty(const JsonReader& field) {
  std::string text = field.String();
  if (text.empty()) field.FailHere("is empty; the saved download can only be discarded");
  return text;
}

uint64_t ReadPositive(const JsonReader& field) {
  const uint64_t value = field.Uint();
  if (value == 0) field.FailHere("is zero; the saved download can only be discarded");
  return value;
}

}  // namespace

uint64_t Checkpoint::completed_source_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, range] : completed) bytes += range.source_bytes;
  return bytes;
}

uint64_t Checkpoint::completed_destination_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, range] : completed) bytes += range.destination_bytes;
  return bytes;
}

Checkpoint ParseCheckpoint(std::string_view json, const std::string& name) {
  if (json.size() > kMaxCheckpointBytes) {
    Fail(ErrorCode::kInstallState,
         "{} has {} bytes, more than the {} allowed; it can only be "
         "discarded",
         name, json.size(), kMaxCheckpointBytes);
  }
  const Json document = ParseJson(json, name, ErrorCode::kInstallState);
  const JsonReader root(document, name, ErrorCode::kInstallState);
  if (root.At("schema").Int() != kSchema) {
    root.At("schema").FailHere("expected 1; the saved download can only be discarded");
  }
  Checkpoint checkpoint;
  checkpoint.source = {.repository = ReadNonEmpty(root.At("repoID")),
                       .requested_revision = ReadNonEmpty(root.At("requestedRevision")),
                       .commit = ReadHex(root.At("resolvedCommit"), 40)};
  checkpoint.source_index_sha256 = ReadHex(root.At("sourceIndexSHA256"), 64);
  checkpoint.plan_fingerprint = ReadHex(root.At("planFingerprint"), 64);
  checkpoint.total_source_bytes = ReadPositive(root.At("totalSourceBytes"));
  if (root.Has("chunkBytes")) checkpoint.chunk_bytes = ReadPositive(root.At("chunkBytes"));
  if (root.Has("manifestSha256")) {
    checkpoint.manifest_sha256 = ReadHex(root.At("manifestSha256"), 64);
  }

  if (root.Has("sourceDigests")) {
    const JsonReader digests = root.At("sourceDigests");
    const JsonReader verified = digests.At("verified");
    for (size_t i = 0; i < verified.ArraySize(); ++i) {
      checkpoint.source_progress.verified_shards.insert(verified.At(i).String());
    }
    checkpoint.source_progress.shard = digests.At("shard").String();
    checkpoint.source_progress.hash_state = digests.At("state").String();
  }

  uint64_t source_bytes = 0;
  uint64_t destination_bytes = 0;
  const JsonReader ranges = root.At("completedRanges");
  for (size_t i = 0; i < ranges.ArraySize(); ++i) {
    const JsonReader entry = ranges.At(i);
    CompletedRange range{.destination_digest = ReadHex(entry.At("destinationDigest"), 64),
                         .source_bytes = ReadPositive(entry.At("sourceBytes")),
                         .destination_bytes = ReadPositive(entry.At("destinationBytes"))};
    if (__builtin_add_overflow(source_bytes, range.source_bytes, &source_bytes) ||
        __builtin_add_overflow(destination_bytes, range.destination_bytes, &destination_bytes) ||
        source_bytes > checkpoint.total_source_bytes) {
      entry.FailHere("more bytes than the source has; the saved download can only be discarded");
    }
    const std::string id = ReadNonEmpty(entry.At("id"));
    if (!checkpoint.completed.emplace(id, std::move(range)).second) {
      entry.At("id").FailHere("appears twice; the saved download can only be discarded");
    }
  }
  return checkpoint;
}

std::string CheckpointToJson(const Checkpoint& checkpoint) {
  std::string text;
  JsonWriter json([&text](std::string_view piece) { text += piece; }, JsonWriter::Style::kCompact);
  const auto string = [&json](std::string_view key, std::string_view value) {
    json.Key(key);
    json.String(value);
  };
  const auto number = [&json](std::string_view key, uint64_t value) {
    json.Key(key);
    json.Uint(value);
  };
  json.BeginObject();
  number("chunkBytes", checkpoint.chunk_bytes);
  json.Key("completedRanges");
  json.BeginArray();
  for (const auto& [id, range] : checkpoint.completed) {
    json.BeginObject();
    number("destinationBytes", range.destination_bytes);
    string("destinationDigest", range.destination_digest);
    string("id", id);
    number("sourceBytes", range.source_bytes);
    json.EndObject();
  }
  json.EndArray();
  if (!checkpoint.manifest_sha256.empty()) string("manifestSha256", checkpoint.manifest_sha256);
  string("planFingerprint", checkpoint.plan_fingerprint);
  string("repoID", checkpoint.source.repository);
  string("requestedRevision", checkpoint.source.requested_revision);
  string("resolvedCommit", checkpoint.source.commit);
  json.Key("schema");
  json.Int(kSchema);
  json.Key("sourceDigests");
  json.BeginObject();
  string("shard", checkpoint.source_progress.shard);
  string("state", checkpoint.source_progress.hash_state);
  json.Key("verified");
  json.BeginArray();
  for (const std::string& shard : checkpoint.source_progress.verified_shards) json.String(shard);
  json.EndArray();
  json.EndObject();
  string("sourceIndexSHA256", checkpoint.source_index_sha256);
  number("totalSourceBytes", checkpoint.total_source_bytes);
  json.EndObject();
  json.Finish();
  return text;
}

Checkpoint ReadCheckpoint(FileSystem& files, const FileSystem::Path& path) {
  return ParseCheckpoint(ReadWholeFile(files, path, kMaxCheckpointBytes), path.string());
}

void WriteCheckpoint(FileSystem& files, const FileSystem::Path& path,
                     const Checkpoint& checkpoint) {
  ReplaceFile(files, path, CheckpointToJson(checkpoint), 0600);
}

}  // namespace mference
