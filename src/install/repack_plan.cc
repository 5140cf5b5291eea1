#include "install/repack_plan.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/sha256.h"
#include "base/units.h"

namespace mference {
namespace {

constexpr std::string_view kWeightSuffix = ".weight";
constexpr std::array<std::string_view, 3> kCompanionSuffixes = {".scales", ".biases", ".row_alpha"};
constexpr uint64_t kTernaryGroup = 64;  // of the affine layout that ternary tensors get

std::string_view ModuleOf(std::string_view tensor) {
  if (tensor.ends_with(kWeightSuffix)) tensor.remove_suffix(kWeightSuffix.size());
  return tensor;
}

std::string ShapeText(const std::vector<uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// A quantised source matrix, taken apart and checked. Stacked matrices have leading dimensions.
struct PackedMatrix {
  const SourceTensor* weight = nullptr;
  const SourceTensor* scales = nullptr;  // of a ternary matrix: its row_alpha
  const SourceTensor* biases = nullptr;  // of a ternary matrix: its row_alpha
  bool ternary = false;
  uint64_t columns = 0;  // logical
  int64_t bits = 0;
  uint64_t group_size = 0;
};

// Finds the tensors of modules and reads their encoding.
class MatrixReader {
 public:
  explicit MatrixReader(const Snapshot& snapshot) : snapshot_(snapshot) {}

  PackedMatrix Read(const std::string& module, Storage storage,
                    const std::vector<uint64_t>& shape) const {
    const SourceTensor& weight = Require(module + ".weight");
    if (weight.dtype != DType::kU32) {
      FailTensor(module + ".weight",
                 fmt::format("expected packed U32 codes, found {}", DTypeName(weight.dtype)));
    }
    return storage == Storage::kTernary ? ReadTernary(module, weight, shape)
                                        : ReadAffine(module, weight, shape);
  }

  const SourceTensor& Require(const std::string& name) const {
    const SourceTensor* tensor = snapshot_.Find(name);
    if (tensor == nullptr) FailTensor(name, "the checkpoint lacks it");
    return *tensor;
  }

  [[noreturn]] static void FailTensor(std::string_view name, std::string_view problem) {
    Fail(ErrorCode::kSourceInvalid, "source tensor {}: {}", name, problem);
  }

  void RequireShape(const std::string& name, const SourceTensor& tensor,
                    const std::vector<uint64_t>& shape) const {
    if (tensor.shape != shape) {
      FailTensor(name, fmt::format("expected shape {} from config.json, found {}", ShapeText(shape),
                                   ShapeText(tensor.shape)));
    }
  }

 private:
  void Forbid(const std::string& name) const {
    if (snapshot_.Find(name) != nullptr) {
      FailTensor(name, "does not belong beside the other parts of its matrix");
    }
  }

  PackedMatrix ReadAffine(const std::string& module, const SourceTensor& weight,
                          const std::vector<uint64_t>& shape) const {
    Forbid(module + ".row_alpha");
    PackedMatrix matrix{.weight = &weight,
                        .scales = &Require(module + ".scales"),
                        .biases = &Require(module + ".biases"),
                        .columns = shape.back()};
    const auto rule = snapshot_.quantization.For(module);
    if (!rule) FailTensor(module + ".weight", "config.json declares it as not quantised");
    matrix.bits = rule->bits;
    matrix.group_size = static_cast<uint64_t>(rule->group_size);
    const auto bits = static_cast<uint64_t>(rule->bits);
    if (matrix.columns * bits % 32 != 0 || matrix.columns % matrix.group_size != 0) {
      FailTensor(module + ".weight",
                 fmt::format("{} columns do not pack at {} bits in groups of {}", matrix.columns,
                             bits, matrix.group_size));
    }
    std::vector<uint64_t> packed = shape;
    packed.back() = matrix.columns * bits / 32;
    RequireShape(module + ".weight", weight, packed);
    std::vector<uint64_t> grouped = shape;
    grouped.back() = matrix.columns / matrix.group_size;
    for (const char* suffix : {".scales", ".biases"}) {
      const SourceTensor& companion = Require(module + suffix);
      RequireShape(module + suffix, companion, grouped);
      if (companion.dtype != DType::kBf16) {
        FailTensor(module + suffix,
                   fmt::format("expected BF16, found {}", DTypeName(companion.dtype)));
      }
    }
    return matrix;
  }

  PackedMatrix ReadTernary(const std::string& module, const SourceTensor& weight,
                           const std::vector<uint64_t>& shape) const {
    Forbid(module + ".scales");
    Forbid(module + ".biases");
    const SourceTensor& alpha = Require(module + ".row_alpha");
    const uint64_t columns = shape.back();
    if (columns % kTernaryGroup != 0) {
      FailTensor(module + ".weight",
                 fmt::format("{} columns are not a multiple of {}", columns, kTernaryGroup));
    }
    std::vector<uint64_t> packed = shape;
    packed.back() = columns / 16;
    RequireShape(module + ".weight", weight, packed);
    std::vector<uint64_t> rows(shape.begin(), shape.end() - 1);
    RequireShape(module + ".row_alpha", alpha, rows);
    if (alpha.dtype != DType::kBf16) {
      FailTensor(module + ".row_alpha",
                 fmt::format("expected BF16, found {}", DTypeName(alpha.dtype)));
    }
    return {.weight = &weight,
            .scales = &alpha,
            .biases = &alpha,
            .ternary = true,
            .columns = columns,
            .bits = 2,
            .group_size = kTernaryGroup};
  }

  const Snapshot& snapshot_;
};

Transform ScaleTransform(const PackedMatrix& matrix, bool negate) {
  if (!matrix.ternary) return {};
  return {.kind = TransformKind::kRepeatBf16,
          .repeat = static_cast<uint32_t>(matrix.columns / kTernaryGroup),
          .negate = negate};
}

std::vector<uint64_t> ToUnsigned(const std::vector<int64_t>& shape) {
  return {shape.begin(), shape.end()};
}

class Planner {
 public:
  explicit Planner(const Snapshot& snapshot) : snapshot_(snapshot), matrices_(snapshot) {
    plan_.quant = DefaultQuant();
  }

  RepackPlan Plan(uint64_t chunk_bytes) {
    PlanResident();
    PlanExperts();
    CheckQuant(plan_.quant, snapshot_.arch.family, std::string(kSourceConfigFile));
    FinishRanges(chunk_bytes);
    return std::move(plan_);
  }

 private:
  // What the format declares where no quantised tensor says otherwise (2.4).
  QuantConfig DefaultQuant() const {
    if (snapshot_.arch.family == Family::kMaple) {
      return {.embedding = AffineSlot(4),
              .attention = AffineSlot(4),
              .router = UnquantizedSlot(),
              .shared_expert = AbsentSlot(),
              .routed_expert = AffineSlot(2)};
    }
    return {.embedding = AffineSlot(4),
            .attention = AffineSlot(4),
            .router = AffineSlot(8),
            .shared_expert = AffineSlot(8),
            .routed_expert = AffineSlot(4)};
  }

  void NoteQuant(QuantRole role, int64_t bits) {
    switch (role) {
      case QuantRole::kNone:
        return;
      case QuantRole::kEmbedding:
        plan_.quant.embedding.weight_bits = bits;
        return;
      case QuantRole::kAttention:
        plan_.quant.attention.weight_bits = bits;
        return;
      case QuantRole::kRouter:
        plan_.quant.router.weight_bits = bits;
        return;
      case QuantRole::kSharedExpert:
        plan_.quant.shared_expert.weight_bits = bits;
        return;
    }
  }

  // The listed tensors in their order, and after those of each group and layer the ones that the
  // list does not know, by name.
  std::vector<TensorSpec> OrderedResidents() {
    std::vector<TensorSpec> specs = snapshot_.schema->resident_tensors(snapshot_.arch);
    std::set<std::string, std::less<>> listed;
    for (const TensorSpec& spec : specs) listed.insert(spec.name);
    for (const auto& [name, tensor] : snapshot_.tensors) {
      switch (FateOf(*snapshot_.schema, snapshot_.arch, name)) {
        case TensorFate::kUnknown:
          MatrixReader::FailTensor(
              name, fmt::format("unknown tensor prefix for family {}", snapshot_.schema->key));
        case TensorFate::kExcluded:
          plan_.excluded.push_back(name);
          break;
        case TensorFate::kRouted:
          routed_left_.insert(name);
          break;
        case TensorFate::kResident:
          if (!listed.contains(name) && !IsCompanion(name)) specs.push_back(Unlisted(name, tensor));
          break;
      }
    }
    std::stable_sort(specs.begin(), specs.end(), [](const TensorSpec& a, const TensorSpec& b) {
      return std::tie(a.group, a.layer) < std::tie(b.group, b.layer);
    });
    return specs;
  }

  bool IsCompanion(std::string_view name) const {
    return std::any_of(
        kCompanionSuffixes.begin(), kCompanionSuffixes.end(), [&](std::string_view suffix) {
          return name.ends_with(suffix) &&
                 snapshot_.Find(fmt::format(
                     "{}.weight", name.substr(0, name.size() - suffix.size()))) != nullptr;
        });
  }

  TensorSpec Unlisted(const std::string& name, const SourceTensor& tensor) const {
    const int64_t layer = LayerOf(*snapshot_.schema, name);
    TensorSpec spec{.name = name,
                    .shape = {tensor.shape.begin(), tensor.shape.end()},
                    .group = layer < 0 ? TensorGroup::kOther : TensorGroup::kLayer,
                    .layer = std::max<int64_t>(layer, 0)};
    switch (tensor.dtype) {
      case DType::kBf16:
        spec.storage = Storage::kBf16;
        return spec;
      case DType::kF32:
        spec.storage = Storage::kF32;
        return spec;
      case DType::kI64:
        spec.storage = Storage::kI64;
        return spec;
      case DType::kU32:
        break;
      case DType::kF16:
      case DType::kI32:
        MatrixReader::FailTensor(name,
                                 fmt::format("nothing here stores {}", DTypeName(tensor.dtype)));
    }
    const auto rule = snapshot_.quantization.For(ModuleOf(name));
    if (!rule || tensor.shape.empty()) MatrixReader::FailTensor(name, "not a packed matrix");
    spec.storage = Storage::kAffine;
    spec.shape.back() = spec.shape.back() * 32 / rule->bits;
    return spec;
  }

  void PlanResident() {
    struct Pending {
      ResidentTensor entry;
      PackedMatrix matrix;                  // of a quantised entry
      const SourceTensor* plain = nullptr;  // of any other
    };
    std::vector<Pending> pending;
    for (const TensorSpec& spec : OrderedResidents()) {
      Pending item;
      item.entry.name = spec.name;
      const std::vector<uint64_t> shape = ToUnsigned(spec.shape);
      if (shape.size() > item.entry.shape.size()) {
        MatrixReader::FailTensor(spec.name, "more than four dimensions");
      }
      std::transform(shape.begin(), shape.end(), item.entry.shape.begin(),
                     [](uint64_t size) { return static_cast<uint32_t>(size); });
      if (spec.storage == Storage::kAffine || spec.storage == Storage::kTernary) {
        item.matrix = matrices_.Read(std::string(ModuleOf(spec.name)), spec.storage, shape);
        item.entry.dtype = DType::kU32;
        item.entry.weight.bytes = item.matrix.weight->bytes * (item.matrix.ternary ? 2 : 1);
        item.entry.scales.bytes =
            item.matrix.scales->bytes * ScaleTransform(item.matrix, false).expansion();
        item.entry.biases.bytes = item.entry.scales.bytes;
        NoteQuant(spec.role, item.matrix.ternary ? 4 : item.matrix.bits);
      } else {
        item.plain = &matrices_.Require(spec.name);
        matrices_.RequireShape(spec.name, *item.plain, shape);
        RequireStorage(spec, item.plain->dtype);
        item.entry.dtype = item.plain->dtype;
        item.entry.weight.bytes = item.plain->bytes;
      }
      pending.push_back(std::move(item));
    }

    std::vector<ResidentTensor> entries;
    entries.reserve(pending.size());
    for (const Pending& item : pending) entries.push_back(item.entry);
    plan_.resident_index = PlanResidentIndex(std::move(entries));
    plan_.index_region = SerializeResidentIndex(plan_.resident_index);
    const uint32_t output =
        AddOutput(std::string(kWeightsFile),
                  plan_.resident_index.index_bytes + plan_.resident_index.resident_bytes);
    for (size_t i = 0; i < pending.size(); ++i) {
      const ResidentTensor& entry = plan_.resident_index.tensors[i];
      const PackedMatrix& matrix = pending[i].matrix;
      if (pending[i].plain != nullptr) {
        AddCopy(*pending[i].plain, output, entry.weight.offset);
        continue;
      }
      Transform widen;
      if (matrix.ternary) widen.kind = TransformKind::kInt2ToInt4;
      AddCopy(*matrix.weight, output, entry.weight.offset, widen, matrix.ternary);
      AddCopy(*matrix.scales, output, entry.scales.offset, ScaleTransform(matrix, false));
      AddCopy(*matrix.biases, output, entry.biases.offset, ScaleTransform(matrix, true));
    }
  }

  static void RequireStorage(const TensorSpec& spec, DType found) {
    const auto matches = [&] {
      switch (spec.storage) {
        case Storage::kBf16:
          return found == DType::kBf16;
        case Storage::kF32:
          return found == DType::kF32;
        case Storage::kI64:
          return found == DType::kI64;
        case Storage::kBf16OrF32:
          return found == DType::kBf16 || found == DType::kF32;
        case Storage::kAffine:
        case Storage::kTernary:
          return false;
      }
      return false;
    };
    if (!matches()) {
      MatrixReader::FailTensor(
          spec.name,
          fmt::format("{} is not the type this tensor has in the family", DTypeName(found)));
    }
  }

  // One matrix of every expert of a layer: [experts, rows, columns].
  PackedMatrix ReadRouted(int64_t layer, std::string_view name, uint64_t rows, uint64_t columns,
                          ExpertMatrix& matrix) {
    const std::string module = RoutedModule(*snapshot_.schema, layer, name);
    const PackedMatrix packed =
        matrices_.Read(module, snapshot_.schema->routed_storage,
                       {static_cast<uint64_t>(snapshot_.arch.num_experts), rows, columns});
    for (const std::string_view suffix : {".weight", ".scales", ".biases", ".row_alpha"}) {
      routed_left_.erase(fmt::format("{}{}", module, suffix));
    }
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.bits = static_cast<int>(packed.bits);
    matrix.group_size = packed.group_size;
    return packed;
  }

  void PlanExperts() {
    const ArchConfig& arch = snapshot_.arch;
    const auto hidden = static_cast<uint64_t>(arch.hidden_size);
    const auto width = static_cast<uint64_t>(arch.moe_intermediate_size);
    const auto experts = static_cast<uint64_t>(arch.num_experts);
    std::vector<std::array<PackedMatrix, 3>> sources(static_cast<size_t>(arch.num_layers));

    Layout& layout = plan_.layout;
    layout.experts_per_layer = experts;
    for (int64_t layer = 0; layer < arch.num_layers; ++layer) {
      LayerLayout& planned = layout.layers.emplace_back();
      planned.file = LayerFileName(layer);
      if (layer < arch.num_dense_layers) continue;
      auto& [gate, up, down] = sources[static_cast<size_t>(layer)];
      gate = ReadRouted(layer, "gate", width, hidden, planned.blob.gate);
      up = ReadRouted(layer, "up", width, hidden, planned.blob.up);
      down = ReadRouted(layer, "down", hidden, width, planned.blob.down);
      layout.expert_stride =
          std::max(layout.expert_stride, RoundUp(PackExpertBlob(planned.blob), kGturboPageBytes));
    }
    if (!routed_left_.empty()) {
      MatrixReader::FailTensor(*routed_left_.begin(), "not a part of this family's experts");
    }
    const LayerLayout& first = layout.layers[static_cast<size_t>(arch.num_dense_layers)];
    plan_.quant.routed_expert.weight_bits = first.blob.gate.bits;

    for (int64_t layer = arch.num_dense_layers; layer < arch.num_layers; ++layer) {
      LayerLayout& planned = layout.layers[static_cast<size_t>(layer)];
      const uint32_t output = AddOutput(layout.LayerPath(layer), experts * layout.expert_stride);
      for (uint64_t expert = 0; expert < experts; ++expert) {
        planned.expert_offsets.push_back(expert * layout.expert_stride);
      }
      const auto& [gate, up, down] = sources[static_cast<size_t>(layer)];
      AddExpertCopies(gate, planned.blob.gate, planned, output);
      AddExpertCopies(up, planned.blob.up, planned, output);
      AddExpertCopies(down, planned.blob.down, planned, output);
    }
  }

  void AddExpertCopies(const PackedMatrix& packed, const ExpertMatrix& matrix,
                       const LayerLayout& layer, uint32_t output) {
    const auto add = [&](const SourceTensor& tensor, const BlobSlice& slice,
                         const Transform& transform, bool ternary) {
      const uint64_t part = tensor.bytes / layer.expert_offsets.size();
      for (size_t expert = 0; expert < layer.expert_offsets.size(); ++expert) {
        copies_.push_back({.shard = tensor.shard,
                           .output = output,
                           .source_offset = tensor.offset + expert * part,
                           .source_bytes = part,
                           .output_offset = layer.expert_offsets[expert] + slice.offset,
                           .transform = transform,
                           .ternary = ternary});
      }
    };
    add(*packed.weight, matrix.weights, {}, packed.ternary);
    add(*packed.scales, matrix.scales, ScaleTransform(packed, false), false);
    add(*packed.biases, matrix.biases, ScaleTransform(packed, true), false);
  }

  uint32_t AddOutput(std::string path, uint64_t bytes) {
    outputs_.push_back({.path = std::move(path), .bytes = bytes});
    return static_cast<uint32_t>(outputs_.size() - 1);
  }

  void AddCopy(const SourceTensor& tensor, uint32_t output, uint64_t output_offset,
               const Transform& transform = {}, bool ternary = false) {
    copies_.push_back({.shard = tensor.shard,
                       .output = output,
                       .source_offset = tensor.offset,
                       .source_bytes = tensor.bytes,
                       .output_offset = output_offset,
                       .transform = transform,
                       .ternary = ternary});
  }

  void FinishRanges(uint64_t chunk_bytes) {
    // "model_weights.bin" and "packed_experts/layer_07.bin" were added in sorted order.
    std::vector<std::string> shards;
    for (const SourceShard& shard : snapshot_.shards) shards.push_back(shard.name);
    Sha256 hash;
    hash.Update(plan_.index_region);
    plan_.ranges = BuildRangePlan(std::move(shards), std::move(outputs_), copies_, hash.FinishHex(),
                                  chunk_bytes);
    plan_.fingerprint = PlanFingerprint(plan_.ranges);
  }

  const Snapshot& snapshot_;
  const MatrixReader matrices_;
  RepackPlan plan_;
  std::set<std::string, std::less<>> routed_left_;
  std::vector<PlannedOutput> outputs_;
  std::vector<ScalarCopy> copies_;
};

}  // namespace

RepackPlan PlanRepack(const Snapshot& snapshot, uint64_t chunk_bytes) {
  return Planner(snapshot).Plan(chunk_bytes);
}

Manifest MakeManifest(const Snapshot& snapshot, const RepackPlan& plan) {
  Manifest manifest;
  manifest.model_id = snapshot.pinned != nullptr ? std::string(snapshot.pinned->model_id)
                                                 : std::string(kUnpinnedModelId);
  manifest.source_snapshot_hash = "sha256:" + snapshot.index_sha256;
  manifest.arch = snapshot.arch;
  manifest.quant = plan.quant;
  manifest.experts_per_layer = plan.layout.experts_per_layer;
  manifest.num_layers = snapshot.arch.num_layers;
  manifest.expert_stride = plan.layout.expert_stride;
  manifest.bit_width_overrides_honored =
      static_cast<int64_t>(snapshot.quantization.override_count());
  return manifest;
}

}  // namespace mference
