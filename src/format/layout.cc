#include "format/layout.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "format/json_pull.h"
#include "format/path_rules.h"

namespace mference {
namespace {

constexpr auto kCode = ErrorCode::kLayoutCorrupt;

struct MatrixField {
  const char* name;
  ExpertMatrix ExpertBlob::*member;
};

constexpr auto kMatrices = std::to_array<MatrixField>({
    {"gate", &ExpertBlob::gate},
    {"up", &ExpertBlob::up},
    {"down", &ExpertBlob::down},
});

// One of an expert's nine tensors, as written.
struct RawTensor {
  bool present = false;
  std::optional<uint64_t> offset;
  std::optional<uint64_t> size;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::optional<uint64_t> bits;
};

constexpr size_t kTensorsPerMatrix = 3;  // weights, scales, biases
constexpr auto kTensorNames =
    std::to_array<std::string_view>({"gate", "gate_scales", "gate_biases", "up", "up_scales",
                                     "up_biases", "down", "down_scales", "down_biases"});
using RawTensors = std::array<RawTensor, kTensorNames.size()>;

RawTensor ReadTensor(JsonPull& json) {
  constexpr size_t kMaxRank = 4;
  RawTensor tensor;
  tensor.present = true;
  json.Object([&](std::string_view key) {
    if (key == "offset") {
      tensor.offset = json.Uint();
    } else if (key == "size") {
      tensor.size = json.Uint();
    } else if (key == "dtype") {
      tensor.dtype = json.String(16);
    } else if (key == "shape") {
      tensor.shape.clear();
      json.Array([&](size_t index) {
        if (index >= kMaxRank) json.FailHere("a shape of too many dimensions");
        tensor.shape.push_back(json.Uint());
      });
    } else if (key == "bits") {
      tensor.bits = json.Uint();
    } else {
      json.Skip();
    }
  });
  if (!tensor.offset || !tensor.size || tensor.dtype.empty() || tensor.shape.size() != 2) {
    json.FailHere("a tensor without offset, size, dtype or a shape of two dimensions");
  }
  if (*tensor.size == 0) json.FailHere("a tensor of no bytes");
  return tensor;
}

bool ProductIs(std::initializer_list<uint64_t> factors, uint64_t expected) {
  uint64_t product = 1;
  for (const uint64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return false;
  }
  return product == expected;
}

// Bits and group follow from the sizes; what is written must agree.
ExpertMatrix MakeMatrix(std::span<const RawTensor, kTensorsPerMatrix> tensors,
                        const char* matrix_name, const JsonPull& json) {
  const RawTensor& weights = tensors[0];
  const RawTensor& scales = tensors[1];
  const RawTensor& biases = tensors[2];
  const auto require = [&](bool holds, std::string_view rule) {
    if (!holds) json.FailHere(fmt::format("'{}': {}", matrix_name, rule));
  };
  ExpertMatrix matrix;
  matrix.rows = weights.shape[0];
  matrix.columns = weights.shape[1];
  require(weights.dtype == "U32", "weights must be U32");
  for (const int bits : {2, 4}) {
    uint64_t weight_bits = 0;
    if (!__builtin_mul_overflow(*weights.size, uint64_t{8}, &weight_bits) &&
        ProductIs({matrix.rows, matrix.columns, static_cast<uint64_t>(bits)}, weight_bits)) {
      matrix.bits = bits;
      matrix.weights = {*weights.offset, *weights.size};
    }
  }
  require(matrix.weights.bytes > 0, fmt::format("{} bytes are not [{}, {}] codes of 2 or 4 bits",
                                                *weights.size, matrix.rows, matrix.columns));
  require(!weights.bits || *weights.bits == static_cast<uint64_t>(matrix.bits),
          fmt::format("'bits' disagrees with the size, which is that of {} bits", matrix.bits));
  const uint64_t groups = scales.shape[1];
  require(groups > 0 && matrix.columns % groups == 0,
          fmt::format("{} columns do not divide into {} groups", matrix.columns, groups));
  matrix.group_size = matrix.columns / groups;
  for (const RawTensor* companion : {&scales, &biases}) {
    require(companion->dtype == "BF16", "scales and biases must be BF16");
    require(
        companion->shape[0] == matrix.rows && companion->shape[1] == groups &&
            ProductIs({matrix.rows, groups, 2}, *companion->size),
        fmt::format("scales and biases must be BF16 [{}, {}], 2 bytes each", matrix.rows, groups));
  }
  matrix.scales = {*scales.offset, *scales.size};
  matrix.biases = {*biases.offset, *biases.size};
  return matrix;
}

ExpertBlob ReadBlob(JsonPull& json) {
  RawTensors tensors;
  json.Object([&](std::string_view key) {
    const auto found = std::find(kTensorNames.begin(), kTensorNames.end(), key);
    if (found == kTensorNames.end()) return json.Skip();
    tensors[static_cast<size_t>(found - kTensorNames.begin())] = ReadTensor(json);
  });
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].present) json.FailHere(fmt::format("'{}' is missing", kTensorNames[i]));
  }
  ExpertBlob blob;
  for (size_t i = 0; i < kMatrices.size(); ++i) {
    blob.*kMatrices[i].member =
        MakeMatrix(std::span<const RawTensor, kTensorsPerMatrix>(
                       tensors.data() + i * kTensorsPerMatrix, kTensorsPerMatrix),
                   kMatrices[i].name, json);
  }
  return blob;
}

std::vector<BlobSlice> SortedSlices(const ExpertBlob& blob) {
  std::vector<BlobSlice> slices;
  for (const MatrixField& field : kMatrices) {
    const ExpertMatrix& matrix = blob.*field.member;
    slices.insert(slices.end(), {matrix.weights, matrix.scales, matrix.biases});
  }
  std::sort(slices.begin(), slices.end(),
            [](const BlobSlice& a, const BlobSlice& b) { return a.offset < b.offset; });
  return slices;
}

// A layer as read, before the stride and the number of experts are known for sure.
struct RawLayer {
  std::optional<uint64_t> id;
  LayerLayout layout;                  // offsets in the order of the text
  std::vector<uint64_t> expert_ids;    // explicit ones
  std::optional<uint64_t> max_rank;    // greatest physicalRank
  std::optional<uint64_t> blob_bytes;  // `size` of every expert
};

void ReadExpert(JsonPull& json, RawLayer& layer) {
  std::optional<uint64_t> id;
  std::optional<uint64_t> offset;
  std::optional<uint64_t> size;
  std::optional<ExpertBlob> blob;
  json.Object([&](std::string_view key) {
    if (key == "expert") {
      if (!json.IsNull()) id = json.Uint();
    } else if (key == "physicalRank") {
      if (!json.IsNull()) layer.max_rank = std::max(layer.max_rank.value_or(0), json.Uint());
    } else if (key == "offset") {
      offset = json.Uint();
    } else if (key == "size") {
      size = json.Uint();
    } else if (key == "tensors") {
      blob = ReadBlob(json);
    } else {
      json.Skip();
    }
  });
  if (!offset || !size || !blob) json.FailHere("an expert without offset, size or tensors");
  // The runtime reads every expert of a layer by one set of slices.
  if (layer.layout.expert_offsets.empty()) {
    layer.layout.blob = *blob;
    layer.blob_bytes = *size;
  } else if (*blob != layer.layout.blob || *size != *layer.blob_bytes) {
    json.FailHere("an expert laid out otherwise than the first of its layer");
  }
  if (id) layer.expert_ids.push_back(*id);
  layer.layout.expert_offsets.push_back(*offset);
  if (!layer.expert_ids.empty() && layer.expert_ids.size() != layer.layout.expert_offsets.size()) {
    json.FailHere("expert ids must be given for all experts of a layer or for none");
  }
}

RawLayer ReadLayer(JsonPull& json) {
  constexpr size_t kMaxFileNameBytes = 255;
  RawLayer layer;
  bool has_experts = false;
  json.Object([&](std::string_view key) {
    if (key == "layer") {
      layer.id = json.Uint();
    } else if (key == "file") {
      layer.layout.file = json.String(kMaxFileNameBytes);
    } else if (key == "experts") {
      json.Array([&](size_t) { ReadExpert(json, layer); });
      has_experts = true;
    } else {
      json.Skip();
    }
  });
  if (!layer.id || layer.layout.file.empty() || !has_experts) {
    json.FailHere("a layer without 'layer', 'file' or 'experts'");
  }
  if (layer.layout.file.find('/') != std::string::npos || !PathProblem(layer.layout.file).empty() ||
      AsciiLower(layer.layout.file) == "layout.json") {
    json.FailHere(fmt::format("'{}' is not an acceptable name of a layer file", layer.layout.file));
  }
  return layer;
}

// Puts the offsets in the order of the expert ids and checks them, now that the totals are known.
void FinishLayer(RawLayer& layer, const Layout& layout, const std::string& name) {
  std::vector<uint64_t>& offsets = layer.layout.expert_offsets;
  const auto require = [&](bool holds, std::string_view rule) {
    if (!holds) Fail(kCode, "{}: layer {}: {}", name, *layer.id, rule);
  };
  if (offsets.empty()) return;
  const uint64_t count = layout.experts_per_layer;
  require(offsets.size() == count, fmt::format("{} experts instead of {}", offsets.size(), count));
  require(!layer.max_rank || *layer.max_rank < count, "a physicalRank out of range");
  if (!layer.expert_ids.empty()) {
    std::vector<uint64_t> by_id(count);
    std::vector<bool> seen(count);
    for (size_t i = 0; i < count; ++i) {
      const uint64_t id = layer.expert_ids[i];
      require(id < count && !seen[id], fmt::format("expert {} is out of range or repeated", id));
      seen[id] = true;
      by_id[id] = offsets[i];
    }
    offsets = std::move(by_id);
  }
  const uint64_t stride = layout.expert_stride;
  require(*layer.blob_bytes == stride,
          fmt::format("experts of {} bytes, but the stride is {}", *layer.blob_bytes, stride));
  std::vector<uint64_t> sorted = offsets;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    require(sorted[i] % kGturboPageBytes == 0,
            fmt::format("expert offset {} is not a multiple of 16384", sorted[i]));
    require(i == 0 || sorted[i] - sorted[i - 1] >= stride,
            fmt::format("experts overlap at offset {}", sorted[i]));
    require(sorted[i] <= UINT64_MAX - stride, "an expert ends beyond 2^64 bytes");
  }
  uint64_t end = 0;
  for (const BlobSlice& slice : SortedSlices(layer.layout.blob)) {
    require(slice.offset >= end, fmt::format("tensors overlap at blob offset {}", slice.offset));
    require(slice.offset <= stride && slice.bytes <= stride - slice.offset,
            fmt::format("a tensor at blob offset {} ends beyond the blob", slice.offset));
    end = slice.offset + slice.bytes;
  }
}

Layout Read(JsonPull& json, const std::string& name) {
  constexpr size_t kMaxLayers = 4096;
  Layout layout;
  std::optional<uint64_t> stride;
  std::optional<uint64_t> num_layers;
  std::optional<uint64_t> experts_per_layer;
  std::vector<RawLayer> layers;
  json.Object([&](std::string_view key) {
    if (key == "expertStride") {
      stride = json.Uint();
    } else if (key == "numLayers") {
      num_layers = json.Uint();
    } else if (key == "expertsPerLayer") {
      experts_per_layer = json.Uint();
    } else if (key == "layers") {
      json.Array([&](size_t) {
        if (layers.size() >= kMaxLayers) json.FailHere("too many layers");
        layers.push_back(ReadLayer(json));
      });
    } else {
      json.Skip();
    }
  });
  json.End();
  if (!stride || !num_layers || !experts_per_layer) {
    Fail(kCode, "{}: expertStride, numLayers or expertsPerLayer is missing", name);
  }
  if (layers.size() != *num_layers) {
    Fail(kCode, "{}: {} layers are described, but numLayers is {}", name, layers.size(),
         *num_layers);
  }
  layout.expert_stride = *stride;
  layout.experts_per_layer = *experts_per_layer;
  layout.layers.resize(layers.size());
  std::vector<bool> seen(layers.size());
  std::set<std::string> files;
  for (RawLayer& layer : layers) {
    if (*layer.id >= layers.size() || seen[*layer.id]) {
      Fail(kCode, "{}: layer {} is out of range or repeated", name, *layer.id);
    }
    if (!files.insert(AsciiLower(layer.layout.file)).second) {
      Fail(kCode, "{}: layer {}: another layer has the file '{}' too", name, *layer.id,
           layer.layout.file);
    }
    seen[*layer.id] = true;
    FinishLayer(layer, layout, name);
    layout.layers[*layer.id] = std::move(layer.layout);
  }
  return layout;
}

void WriteTensor(JsonWriter& json, std::string_view key, const BlobSlice& slice, DType dtype,
                 uint64_t rows, uint64_t columns, std::optional<int> bits) {
  json.Key(key);
  json.BeginObject();
  json.Key("offset");
  json.Uint(slice.offset);
  json.Key("size");
  json.Uint(slice.bytes);
  json.Key("dtype");
  json.String(DTypeName(dtype));
  json.Key("shape");
  json.BeginArray();
  json.Uint(rows);
  json.Uint(columns);
  json.EndArray();
  if (bits) {
    json.Key("bits");
    json.Int(*bits);
  }
  json.EndObject();
}

void WriteBlob(JsonWriter& json, const ExpertBlob& blob) {
  json.BeginObject();
  for (const MatrixField& field : kMatrices) {
    const ExpertMatrix& matrix = blob.*field.member;
    const std::string key = field.name;
    const uint64_t groups = matrix.columns / matrix.group_size;
    WriteTensor(json, key, matrix.weights, DType::kU32, matrix.rows, matrix.columns, matrix.bits);
    WriteTensor(json, key + "_scales", matrix.scales, DType::kBf16, matrix.rows, groups, {});
    WriteTensor(json, key + "_biases", matrix.biases, DType::kBf16, matrix.rows, groups, {});
  }
  json.EndObject();
}

}  // namespace

uint64_t PackExpertBlob(ExpertBlob& blob) {
  uint64_t end = 0;
  const auto place = [&end](BlobSlice& slice, uint64_t bytes) {
    slice = {end, bytes};
    end += bytes;
  };
  for (const MatrixField& field : kMatrices) {
    ExpertMatrix& matrix = blob.*field.member;
    const uint64_t companion_bytes = 2 * matrix.rows * (matrix.columns / matrix.group_size);
    place(matrix.weights, matrix.rows * matrix.columns * static_cast<uint64_t>(matrix.bits) / 8);
    place(matrix.scales, companion_bytes);
    place(matrix.biases, companion_bytes);
  }
  return end;
}

std::string Layout::LayerPath(int64_t layer) const {
  return fmt::format("{}/{}", kExpertsDirectory, layers.at(static_cast<size_t>(layer)).file);
}

Layout ReadLayout(const FileDescriptor& file, const std::string& name) {
  const uint64_t bytes = FileSize(file, name);
  if (bytes > kMaxLayoutBytes) {
    Fail(kCode, "{} has {} bytes, more than the {} allowed", name, bytes, kMaxLayoutBytes);
  }
  JsonPull json(file, bytes, name, kCode);
  return Read(json, name);
}

Layout ParseLayout(std::string_view text, const std::string& name) {
  JsonPull json(text, name, kCode);
  return Read(json, name);
}

void CheckLayout(const Layout& layout, const Manifest& manifest, const std::string& name) {
  if (layout.expert_stride != manifest.expert_stride ||
      layout.experts_per_layer != manifest.experts_per_layer ||
      layout.layers.size() != static_cast<uint64_t>(manifest.num_layers)) {
    Fail(kCode,
         "{}: {} layers of {} experts with stride {}, but the manifest says {} of {} with {}", name,
         layout.layers.size(), layout.experts_per_layer, layout.expert_stride, manifest.num_layers,
         manifest.experts_per_layer, manifest.expert_stride);
  }
  const auto hidden = static_cast<uint64_t>(manifest.arch.hidden_size);
  const auto intermediate = static_cast<uint64_t>(manifest.arch.moe_intermediate_size);
  for (int64_t id = 0; id < manifest.num_layers; ++id) {
    const LayerLayout& layer = layout.layers[static_cast<size_t>(id)];
    const auto require = [&, id](bool holds, std::string_view rule) {
      if (!holds) Fail(kCode, "{}: layer {}: {}", name, id, rule);
    };
    const auto record = manifest.files.find(layout.LayerPath(id));
    if (!manifest.HasRoutedExperts(id)) {
      require(layer.expert_offsets.empty(), "a dense layer with routed experts");
      require(record == manifest.files.end(), "a dense layer whose expert file is in the manifest");
      continue;
    }
    require(!layer.expert_offsets.empty(), "no experts in a layer that routes to some");
    for (const auto& [matrix, rows, columns] :
         {std::tuple(&layer.blob.gate, intermediate, hidden),
          std::tuple(&layer.blob.up, intermediate, hidden),
          std::tuple(&layer.blob.down, hidden, intermediate)}) {
      require(matrix->rows == rows && matrix->columns == columns,
              fmt::format("a matrix is [{}, {}] where the model has [{}, {}]", matrix->rows,
                          matrix->columns, rows, columns));
    }
    if (record == manifest.files.end()) continue;  // the first use of the layer reports it
    const uint64_t last =
        *std::max_element(layer.expert_offsets.begin(), layer.expert_offsets.end());
    require(last + layout.expert_stride <= record->second.size,
            fmt::format("an expert at offset {} ends beyond the {} bytes of {}", last,
                        record->second.size, layer.file));
  }
}

void WriteLayout(const Layout& layout, const TextSink& sink) {
  JsonWriter json(sink, JsonWriter::Style::kCompact);
  json.BeginObject();
  json.Key("expertStride");
  json.Uint(layout.expert_stride);
  json.Key("numLayers");
  json.Uint(layout.layers.size());
  json.Key("expertsPerLayer");
  json.Uint(layout.experts_per_layer);
  json.Key("layers");
  json.BeginArray();
  for (size_t id = 0; id < layout.layers.size(); ++id) {
    const LayerLayout& layer = layout.layers[id];
    json.BeginObject();
    json.Key("layer");
    json.Uint(id);
    json.Key("file");
    json.String(layer.file);
    json.Key("experts");
    json.BeginArray();
    for (size_t expert = 0; expert < layer.expert_offsets.size(); ++expert) {
      json.BeginObject();
      json.Key("expert");
      json.Uint(expert);
      json.Key("offset");
      json.Uint(layer.expert_offsets[expert]);
      json.Key("size");
      json.Uint(layout.expert_stride);
      json.Key("tensors");
      WriteBlob(json, layer.blob);
      json.EndObject();
    }
    json.EndArray();
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  json.Finish();
}

}  // namespace mference
