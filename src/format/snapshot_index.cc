#include "format/snapshot_index.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "format/json_pull.h"

namespace mference {

bool IsSafeShardName(std::string_view name) {
  constexpr std::string_view kSuffix = ".safetensors";
  constexpr size_t kMaxNameBytes = 255;
  if (name.size() <= kSuffix.size() || name.size() > kMaxNameBytes) return false;
  if (!name.ends_with(kSuffix) || name.front() == '.' || name.front() == '-') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '-' || c == '_';
  });
}

SnapshotIndex ParseSnapshotIndex(std::string_view text, const std::string& name) {
  if (text.size() > kMaxSnapshotIndexBytes) {
    Fail(ErrorCode::kMetadataTooLarge, "{} has {} bytes, more than the {} allowed", name,
         text.size(), kMaxSnapshotIndexBytes);
  }
  constexpr size_t kMaxShardNameBytes = 255;
  SnapshotIndex index;
  JsonPull json(text, name, ErrorCode::kSourceInvalid);
  json.Object([&](std::string_view key) {
    if (key == "weight_map") {
      json.Object([&](std::string_view tensor_key) {
        const std::string tensor(tensor_key);
        std::string shard = json.String(kMaxShardNameBytes);
        if (!IsSafeShardName(shard)) {
          json.FailHere(fmt::format("'{}' is not an acceptable shard name", shard));
        }
        if (!index.shard_of_tensor.emplace(tensor, std::move(shard)).second) {
          json.FailHere("the tensor is listed twice");
        }
      });
    } else if (key == "metadata") {
      json.Object([&](std::string_view metadata_key) {
        if (metadata_key == "total_size") {
          index.total_size = json.Uint();
        } else {
          json.Skip();
        }
      });
    } else {
      json.Skip();
    }
  });
  json.End();
  if (index.shard_of_tensor.empty()) {
    Fail(ErrorCode::kSourceInvalid, "{}: no weight_map, or an empty one", name);
  }
  std::set<std::string_view> seen;
  for (const auto& [tensor, shard] : index.shard_of_tensor) {
    if (seen.insert(shard).second) index.shards.push_back(shard);
  }
  return index;
}

}  // namespace mference
