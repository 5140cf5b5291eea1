// Routing traces: which experts every token chose in every layer, and how strongly.
//
// Recorded by any run (`--trace FILE`), replayed by the cache laboratory (replay.h). The file is
// little-endian and has no padding:
//
//   0   "MFROUTE1"
//   8   u32 layers, u32 experts_per_layer, u32 top_k, u32 routed_layers, u64 blob_bytes
//   32  routed_layers x u16: numbers of the layers that route, in the order in which they run
//   then step by step until the end of the file:
//       u32 rows
//       routed_layers x rows x top_k x u8 (u16 with more than 256 experts): experts, in ascending
//           order within a row
//       routed_layers x rows x top_k x u8: each weight as a share of its row's largest, in 1/255
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace mference {

struct RoutingTrace {
  int32_t layers = 0;  // of the expert store, dense ones included
  int32_t experts_per_layer = 0;
  int32_t top_k = 0;
  uint64_t blob_bytes = 0;
  std::vector<int32_t> routed_layers;

  // Of each step, in order. A step of r rows takes routed_layers * r * top_k entries of `experts`
  // and of `shares`, layer by layer, row by row.
  std::vector<int32_t> rows;
  std::vector<uint16_t> experts;
  std::vector<uint8_t> shares;

  int64_t tokens() const;
  size_t EntriesOf(int32_t step_rows) const {
    return routed_layers.size() * static_cast<size_t>(step_rows) * static_cast<size_t>(top_k);
  }
};

// Throws kIo or kDiskFull.
void WriteTrace(const std::filesystem::path& path, const RoutingTrace& trace);
// Throws kNotFound, kIo, or kInvalidArgument with the offset and the rule that the file breaks.
RoutingTrace ReadTrace(const std::filesystem::path& path);

// Builds a trace from what a probe sees, layer by layer. Not thread-safe.
class TraceBuilder {
 public:
  // `layers`, `experts_per_layer` and `blob_bytes` of the expert store.
  TraceBuilder(int32_t layers, int32_t experts_per_layer, uint64_t blob_bytes);

  // The routing of one layer in one step: `experts` and `weights` [rows, top_k]. Layers of a step
  // come in ascending order; a step whose layers are not all there at `Finish` is dropped.
  void Add(int32_t layer, int32_t top_k, std::span<const int32_t> experts,
           std::span<const float> weights);
  // The steps so far.
  RoutingTrace Finish();

 private:
  void CloseStep();

  RoutingTrace trace_;
  std::vector<int32_t> step_layers_;
  int32_t step_rows_ = 0;
  size_t step_begin_ = 0;  // entries before the open step
};

}  // namespace mference
