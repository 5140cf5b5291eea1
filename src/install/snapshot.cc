#include "install/snapshot.h"

#include <algorithm>

#include "base/error.h"
#include "base/sha256.h"
#include "format/safetensors.h"
#include "format/snapshot_index.h"

namespace mference {
namespace {

std::string ReadRequired(SnapshotSource& source, std::string_view name, uint64_t max_bytes) {
  std::optional<std::string> text = source.ReadFile(std::string(name), max_bytes);
  if (!text) {
    Fail(ErrorCode::kSourceInvalid, "the source has no {}: this is not a checkpoint in MLX layout",
         name);
  }
  return *std::move(text);
}

SafetensorsHeader ReadHeader(SnapshotSource& source, SourceShard& shard) {
  const std::string prefix = source.ReadBytes(shard.name, 0, kSafetensorsPrefixBytes);
  const uint64_t length = SafetensorsHeader::ParseLength(
      std::as_bytes(std::span(prefix).first<kSafetensorsPrefixBytes>()), shard.info.bytes,
      shard.name);
  shard.data_offset = kSafetensorsPrefixBytes + length;
  return SafetensorsHeader::Parse(source.ReadBytes(shard.name, kSafetensorsPrefixBytes, length),
                                  shard.info.bytes, shard.name);
}

void ReadTensors(const SnapshotIndex& index, uint32_t shard, const SafetensorsHeader& header,
                 Snapshot& snapshot) {
  const std::string& shard_name = snapshot.shards[shard].name;
  for (const SafetensorsTensor& tensor : header.tensors()) {
    const auto listed = index.shard_of_tensor.find(tensor.name);
    if (listed == index.shard_of_tensor.end() || listed->second != shard_name) continue;
    snapshot.tensors.emplace(tensor.name, SourceTensor{.dtype = tensor.dtype,
                                                       .shape = tensor.shape,
                                                       .shard = shard,
                                                       .offset = tensor.offset,
                                                       .bytes = tensor.bytes});
  }
}

}  // namespace

Snapshot LoadSnapshot(SnapshotSource& source, const PinnedSource* expected) {
  Snapshot snapshot;
  const std::string index_json = ReadRequired(source, kSourceIndexFile, kMaxSnapshotIndexBytes);
  snapshot.config_json = ReadRequired(source, kSourceConfigFile, kMaxConfigBytes);
  snapshot.index_sha256 = Sha256Hex(index_json);
  snapshot.pinned = FindPinnedByIndex(snapshot.index_sha256);
  if (expected != nullptr && snapshot.pinned != expected) {
    Fail(ErrorCode::kSourceInvalid,
         "source fingerprint {} for {} is not that of {} ({}); a checkpoint that is not pinned "
         "needs a name of its own",
         snapshot.index_sha256, kSourceIndexFile, expected->name, expected->index_sha256);
  }

  snapshot.config = ParseConfig(snapshot.config_json, std::string(kSourceConfigFile));
  const JsonReader config(snapshot.config, std::string(kSourceConfigFile),
                          ErrorCode::kSourceInvalid);
  snapshot.schema = &SchemaForConfig(config);
  snapshot.arch = snapshot.schema->derive_arch(config);
  snapshot.quantization = QuantizationRules::Read(config);
  if (snapshot.pinned != nullptr) {
    CheckArch({.config = snapshot.arch, .omitted = {}}, snapshot.pinned->arch(),
              std::string(kSourceConfigFile));
  }

  const SnapshotIndex index = ParseSnapshotIndex(index_json, std::string(kSourceIndexFile));
  for (const std::string& name : index.shards) {
    snapshot.shards.push_back({.name = name, .info = source.Examine(name)});
    const auto position = static_cast<uint32_t>(snapshot.shards.size() - 1);
    ReadTensors(index, position, ReadHeader(source, snapshot.shards.back()), snapshot);
  }
  for (const auto& [tensor, shard] : index.shard_of_tensor) {
    if (snapshot.Find(tensor) == nullptr) {
      Fail(ErrorCode::kSourceInvalid, "{} lists {} in {}, which does not hold it", kSourceIndexFile,
           tensor, shard);
    }
  }
  return snapshot;
}

}  // namespace mference
