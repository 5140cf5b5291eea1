// `packed_experts/layout.json`: where each routed expert lies in the layer files.
//
// The text repeats nine tensors for every expert (22 MB for Qwen 3.6), but within a layer they are
// all alike. In memory a layer is one set of nine slices and one offset per expert; the text is
// read and written as a stream.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "format/dtype.h"
#include "format/json_writer.h"
#include "format/manifest.h"

namespace mference {

constexpr uint64_t kMaxLayoutBytes = uint64_t{64} << 20;

// A byte range of an expert's blob.
struct BlobSlice {
  uint64_t offset = 0;
  uint64_t bytes = 0;

  bool operator==(const BlobSlice&) const = default;
};

// One affine matrix of an expert. scales and biases are BF16 [rows, columns / group_size].
struct ExpertMatrix {
  uint64_t rows = 0;
  uint64_t columns = 0;     // logical
  int bits = 4;             // 2 or 4
  uint64_t group_size = 0;  // columns that share a scale; the real one, from the sizes
  BlobSlice weights;
  BlobSlice scales;
  BlobSlice biases;

  bool operator==(const ExpertMatrix&) const = default;
};

struct ExpertBlob {
  ExpertMatrix gate;  // [moe_intermediate, hidden]
  ExpertMatrix up;    // [moe_intermediate, hidden]
  ExpertMatrix down;  // [hidden, moe_intermediate]

  bool operator==(const ExpertBlob&) const = default;
};

// Packs gate, up and down tightly in that order (weights, scales, biases of each), as the format
// does. Takes rows, columns, bits and group size; returns the bytes of the blob before padding.
uint64_t PackExpertBlob(ExpertBlob& blob);

struct LayerLayout {
  std::string file;                      // base name, also for layers that have none
  ExpertBlob blob;                       // meaningless without experts
  std::vector<uint64_t> expert_offsets;  // [expert id], bytes in the file; empty: a dense layer
};

struct Layout {
  uint64_t expert_stride = 0;  // bytes from one blob to the next, and the size of a blob
  uint64_t experts_per_layer = 0;
  std::vector<LayerLayout> layers;  // [num_layers]

  // "packed_experts/layer_07.bin", as in `manifest.files`.
  std::string LayerPath(int64_t layer) const;
};

// Reads and checks everything that layout.json alone can say. Throws kLayoutCorrupt with layer,
// expert and rule. Memory stays within a megabyte or so, whatever the text.
Layout ReadLayout(const FileDescriptor& file, const std::string& name);
Layout ParseLayout(std::string_view json, const std::string& name);

// Against the manifest: dimensions, dense layers, matrix shapes, ranges inside the listed files.
// Throws kLayoutCorrupt.
void CheckLayout(const Layout& layout, const Manifest& manifest, const std::string& name);

// Streams the text, one expert at a time.
void WriteLayout(const Layout& layout, const TextSink& sink);

}  // namespace mference
