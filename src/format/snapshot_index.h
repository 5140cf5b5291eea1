// `model.safetensors.index.json`: which shard of a source snapshot holds which tensor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mference {

constexpr uint64_t kMaxSnapshotIndexBytes = uint64_t{4} << 20;

struct SnapshotIndex {
  std::map<std::string, std::string, std::less<>> shard_of_tensor;  // the `weight_map`
  std::vector<std::string> shards;     // in order of first appearance over sorted tensor names
  std::optional<uint64_t> total_size;  // `metadata.total_size`, bytes
};

// Throws kMetadataTooLarge above the cap and kSourceInvalid for anything else that is wrong:
// malformed JSON, a tensor twice, no tensor at all, a shard name that is not a safe base name.
SnapshotIndex ParseSnapshotIndex(std::string_view json, const std::string& name);

// A plain ASCII base name ending in `.safetensors`: nothing that could leave a directory, be hidden
// or mean something to a URL.
bool IsSafeShardName(std::string_view name);

}  // namespace mference
