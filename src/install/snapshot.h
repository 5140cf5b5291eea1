// A source checkpoint's metadata: index, config, and where every tensor lies.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "format/arch_config.h"
#include "format/dtype.h"
#include "install/source.h"
#include "model/catalogue.h"
#include "model/quantization_rules.h"

namespace mference {

inline constexpr std::string_view kSourceIndexFile = "model.safetensors.index.json";
inline constexpr std::string_view kSourceConfigFile = "config.json";

struct SourceTensor {
  DType dtype = DType::kU32;
  std::vector<uint64_t> shape;  // as stored
  uint32_t shard = 0;           // into Snapshot::shards
  uint64_t offset = 0;          // absolute, in the shard
  uint64_t bytes = 0;
};

struct SourceShard {
  std::string name;
  ShardInfo info;
  uint64_t data_offset = 0;  // where the header ends
};

struct Snapshot {
  std::string index_sha256;
  std::string config_json;  // byte for byte: it is installed as it is
  Json config;
  const CheckpointSchema* schema = nullptr;
  const PinnedSource* pinned = nullptr;  // null: unpinned
  ArchConfig arch;
  QuantizationRules quantization;
  std::vector<SourceShard> shards;  // in order of first appearance over sorted tensor names
  std::map<std::string, SourceTensor, std::less<>> tensors;

  const SourceTensor* Find(std::string_view name) const {
    const auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : &found->second;
  }
};

// Reads index, config and every shard's header. `expected`, when given, is the pin that the user
// asked for: another index is kSourceInvalid. A pinned index whose config does not derive to the
// compiled baseline is kArchMismatch.
Snapshot LoadSnapshot(SnapshotSource& source, const PinnedSource* expected);

}  // namespace mference
