// Expert files on disk whose every word says which expert it belongs to, and a store over them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/ledger.h"
#include "experts/blob_reader.h"
#include "experts/cache_policy.h"
#include "experts/expert_files.h"
#include "experts/expert_store.h"
#include "experts/slot_memory.h"

namespace mference {

// The word at `index` of an expert's blob: a hash, so that no two blobs agree anywhere by accident.
inline uint64_t BlobWord(int layer, int expert, size_t index) {
  uint64_t x = (static_cast<uint64_t>(layer) << 40) ^ (static_cast<uint64_t>(expert) << 24) ^ index;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;  // SplitMix64's finaliser
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A directory of layer files, removed at the end.
class BlobFiles {
 public:
  BlobFiles(int layers, int experts, uint64_t blob_bytes,
            const std::filesystem::path& parent = testing::TempDir())
      : layers_(layers), experts_(experts), blob_bytes_(blob_bytes) {
    std::string pattern = (parent / "experts_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "cannot create " << pattern;
    directory_ = pattern;
    std::vector<uint64_t> blob(blob_bytes / sizeof(uint64_t));
    for (int layer = 0; layer < layers; ++layer) {
      std::ofstream file(Path(layer), std::ios::binary);
      for (int expert = 0; expert < experts; ++expert) {
        for (size_t i = 0; i < blob.size(); ++i) blob[i] = BlobWord(layer, expert, i);
        file.write(reinterpret_cast<const char*>(blob.data()),
                   static_cast<std::streamsize>(blob_bytes));
      }
    }
  }
  ~BlobFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  BlobFiles(const BlobFiles&) = delete;
  BlobFiles& operator=(const BlobFiles&) = delete;

  std::filesystem::path Path(int layer) const {
    return directory_ / ("layer_" + std::to_string(layer) + ".bin");
  }
  uint64_t Offset(int expert) const { return static_cast<uint64_t>(expert) * blob_bytes_; }
  uint64_t blob_bytes() const { return blob_bytes_; }

  ExpertFiles Describe() const {
    return {.layers = layers_,
            .experts_per_layer = experts_,
            .blob_bytes = blob_bytes_,
            .open_layer = [this](int layer) {
              LayerFile file{.file = OpenForReading(Path(layer)),
                             .name = Path(layer).string(),
                             .blob_offsets = std::vector<uint64_t>(static_cast<size_t>(experts_))};
              for (int e = 0; e < experts_; ++e) {
                file.blob_offsets[static_cast<size_t>(e)] = Offset(e);
              }
              return file;
            }};
  }

  // Whether `blob` is, byte for byte, the expert's.
  bool Matches(const std::byte* blob, int layer, int expert) const {
    for (size_t i = 0; i < blob_bytes_ / sizeof(uint64_t); ++i) {
      uint64_t word = 0;
      std::memcpy(&word, blob + i * sizeof(word), sizeof(word));
      if (word != BlobWord(layer, expert, i)) return false;
    }
    return true;
  }

 private:
  int layers_;
  int experts_;
  uint64_t blob_bytes_;
  std::filesystem::path directory_;
};

// A store over `files` with host slots and the default policy.
struct TestStore {
  TestStore(const BlobFiles& files, int slots, std::unique_ptr<BlobReader> reader,
            ExpertStoreOptions options = {}) {
    const ExpertFiles description = files.Describe();
    store = std::make_unique<ExpertStore>(
        description, std::make_unique<HostSlotMemory>(ledger, slots, description.blob_bytes),
        std::make_unique<LfuPolicy>(description.layers, description.experts_per_layer, slots),
        std::move(reader), std::move(options));
  }
  ExpertStore* operator->() const { return store.get(); }

  MemoryLedger ledger{uint64_t{1} << 30};
  std::unique_ptr<ExpertStore> store;
};

using Ids = std::vector<int32_t>;

inline Ids Range(int32_t count) {
  Ids ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

struct Served {
  Ids experts;  // in order of delivery
  StreamNext last = StreamNext::kReady;
};

// Takes a whole stream, checks every blob, releases each lease at once.
inline Served Serve(const BlobFiles& files, ExpertStore& store, int layer, const Ids& ids,
                    StreamOrder order) {
  Served served;
  ExpertStream stream = store.Open(layer, ids, order);
  ExpertLease lease;
  while ((served.last = stream.Next(lease)) == StreamNext::kReady) {
    EXPECT_EQ(ids.at(static_cast<size_t>(lease.index)), lease.expert);
    EXPECT_TRUE(files.Matches(lease.blob, layer, lease.expert))
        << "layer " << layer << " expert " << lease.expert;
    served.experts.push_back(lease.expert);
    store.Release(lease);
  }
  return served;
}

}  // namespace mference
