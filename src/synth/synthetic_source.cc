#include "synth/synthetic_source.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/units.h"
#include "format/dtype.h"
#include "install/snapshot.h"
#include "model/catalogue.h"
#include "synth/config_json.h"
#include "synth/tokenizer_json.h"

namespace mference {
namespace {

constexpr int64_t kMaxLayers = 100;  // layer files have two-digit names
constexpr double kMaxSkew = 4;
constexpr size_t kStreamTile = 512 * kKiB;
// Raised whenever the same options give other bytes.
constexpr int kGeneration = 1;

// A small file, in memory.
class MemoryRange final : public FetchedRange {
 public:
  explicit MemoryRange(const std::string& content) : content_(content) {}
  uint64_t bytes() const override { return content_.size(); }
  void ReadAt(uint64_t offset, std::span<std::byte> out) override {
    Check(offset <= content_.size() && out.size() <= content_.size() - offset,
          "a read beyond the end of a file");
    std::memcpy(out.data(), content_.data() + offset, out.size());
  }

 private:
  const std::string& content_;
};

void RequireSound(const SynthOptions& options) {
  const ArchConfig& arch = options.arch;
  if (!(options.experts_skew >= 0 && options.experts_skew <= kMaxSkew)) {
    Fail(ErrorCode::kInvalidArgument, "the skew of experts is 0 to {}, not {}", kMaxSkew,
         options.experts_skew);
  }
  for (const TensorSpec& spec : SchemaOf(arch.family).resident_tensors(arch)) {
    if (spec.storage == Storage::kAffine && spec.shape.back() % int64_t{kSynthGroup} != 0) {
      Fail(ErrorCode::kInvalidArgument, "{} has {} columns, which is no multiple of {}", spec.name,
           spec.shape.back(), kSynthGroup);
    }
  }
  if (arch.moe_intermediate_size % int64_t{kSynthGroup} != 0) {
    Fail(ErrorCode::kInvalidArgument, "experts of width {}, which is no multiple of {}",
         arch.moe_intermediate_size, kSynthGroup);
  }
}

}  // namespace

// A safetensors file: its header, and tensors back to back.
class SyntheticSource::Shard {
 public:
  // Adding is for construction only; `Finish` ends it.
  void Add(std::string name, DType dtype, const std::vector<uint64_t>& shape,
           std::unique_ptr<TensorContent> content) {
    uint64_t bytes = ElementBytes(dtype);
    for (const uint64_t size : shape) bytes *= size;
    header_json_[name] = {{"dtype", DTypeName(dtype)},
                          {"shape", shape},
                          {"data_offsets", {data_bytes_, data_bytes_ + bytes}}};
    tensors_.push_back({std::move(name), data_bytes_, bytes, std::move(content)});
    data_bytes_ += bytes;
  }
  void AddMatrix(const std::string& module, const std::vector<int64_t>& shape,
                 const AffineStatistics& statistics) {
    std::vector<uint64_t> packed(shape.begin(), shape.end());
    std::vector<uint64_t> grouped = packed;
    packed.back() = packed.back() * static_cast<uint64_t>(statistics.bits) / 32;
    grouped.back() /= kSynthGroup;
    Add(module + ".weight", DType::kU32, packed, AffineCodes(statistics));
    Add(module + ".scales", DType::kBf16, grouped, AffineScales(statistics));
    Add(module + ".biases", DType::kBf16, grouped, AffineBiases(statistics));
  }
  void Finish(std::string name) {
    name_ = std::move(name);
    std::string json = header_json_.dump();
    json.resize(RoundUp(json.size(), 8), ' ');
    const uint64_t length = json.size();
    header_.resize(sizeof(length));
    std::memcpy(header_.data(), &length, sizeof(length));
    header_ += json;
    header_json_ = nullptr;
  }

  const std::string& name() const { return name_; }
  uint64_t bytes() const { return header_.size() + data_bytes_; }
  uint64_t data_bytes() const { return data_bytes_; }
  template <typename Visit>
  void ForEachTensor(const Visit& visit) const {
    for (const Tensor& tensor : tensors_) visit(tensor.name);
  }

  void Read(uint64_t offset, std::span<std::byte> out) const {
    Check(offset <= bytes() && out.size() <= bytes() - offset, "a read beyond the end of a shard");
    if (offset < header_.size()) {
      const size_t count = std::min<uint64_t>(header_.size() - offset, out.size());
      std::memcpy(out.data(), header_.data() + offset, count);
      out = out.subspan(count);
      offset += count;
    }
    if (out.empty()) return;
    offset -= header_.size();
    auto tensor = std::prev(std::upper_bound(
        tensors_.begin(), tensors_.end(), offset,
        [](uint64_t position, const Tensor& candidate) { return position < candidate.offset; }));
    while (!out.empty()) {
      const uint64_t within = offset - tensor->offset;
      const auto part = out.first(std::min<uint64_t>(tensor->bytes - within, out.size()));
      tensor->content->Fill(within, part);
      out = out.subspan(part.size());
      offset += part.size();
      ++tensor;
    }
  }

 private:
  struct Tensor {
    std::string name;
    uint64_t offset = 0;  // in the data
    uint64_t bytes = 0;
    std::unique_ptr<TensorContent> content;
  };

  std::string name_;
  Json header_json_ = Json::object();
  std::string header_;
  std::vector<Tensor> tensors_;
  uint64_t data_bytes_ = 0;
};

namespace {

template <typename Shard>
class ShardRange final : public FetchedRange {
 public:
  ShardRange(const Shard& shard, const RangeRequest& request)
      : shard_(shard), offset_(request.offset), bytes_(request.bytes) {}
  uint64_t bytes() const override { return bytes_; }
  void ReadAt(uint64_t offset, std::span<std::byte> out) override {
    shard_.Read(offset_ + offset, out);
  }

 private:
  const Shard& shard_;
  const uint64_t offset_;
  const uint64_t bytes_;
};

}  // namespace

ArchConfig SyntheticArch(std::string_view family, std::optional<int64_t> layers) {
  const PinnedSource* pinned = FindPinned(family);
  if (pinned == nullptr) {
    Fail(ErrorCode::kInvalidArgument, "'{}' is not the name of a family", family);
  }
  ArchConfig arch = pinned->arch();
  if (layers) {
    if (*layers < 1 || *layers > kMaxLayers) {
      Fail(ErrorCode::kInvalidArgument, "a checkpoint has 1 to {} layers, not {}", kMaxLayers,
           *layers);
    }
    const std::vector<LayerKind> pattern = arch.layer_kinds;
    arch.num_layers = *layers;
    arch.layer_kinds.clear();
    for (size_t i = 0; i < static_cast<size_t>(*layers); ++i) {
      arch.layer_kinds.push_back(pattern[i % pattern.size()]);
    }
  }
  StopTokenIds(arch);  // refuses the other families
  return arch;
}

SyntheticSource::SyntheticSource(const SynthOptions& options) : options_(options) {
  RequireSound(options_);
  const ArchConfig& arch = options_.arch;
  const CheckpointSchema& schema = SchemaOf(arch.family);
  const SynthStatistics statistics(options_);
  files_["config.json"] = SyntheticConfigJson(arch);
  files_["generation_config.json"] = SyntheticGenerationConfigJson(arch);
  files_["tokenizer_config.json"] = SyntheticTokenizerConfigJson(arch);
  files_["tokenizer.json"] = SyntheticTokenizerJson(arch, options_.seed);

  // A shard for what is outside the layers, and one for each layer.
  for (int64_t i = 0; i <= arch.num_layers; ++i) shards_.push_back(std::make_unique<Shard>());
  for (const TensorSpec& spec : schema.resident_tensors(arch)) {
    Shard& shard =
        *shards_[spec.group == TensorGroup::kLayer ? static_cast<size_t>(spec.layer) + 1 : 0];
    if (spec.storage == Storage::kAffine) {
      const std::string module = spec.name.substr(0, spec.name.rfind('.'));
      shard.AddMatrix(module, spec.shape, statistics.Matrix(spec));
    } else {
      shard.Add(spec.name, DType::kBf16, {spec.shape.begin(), spec.shape.end()},
                Bf16Vector(statistics.Vector(spec)));
    }
  }
  for (int64_t layer = 0; layer < arch.num_layers; ++layer) {
    Shard& shard = *shards_[static_cast<size_t>(layer) + 1];
    const auto add = [&](std::string_view matrix, int64_t rows, int64_t columns) {
      shard.AddMatrix(RoutedModule(schema, layer, matrix), {arch.num_experts, rows, columns},
                      statistics.ExpertMatrix(layer, matrix));
    };
    add("gate", arch.moe_intermediate_size, arch.hidden_size);
    add("up", arch.moe_intermediate_size, arch.hidden_size);
    add("down", arch.hidden_size, arch.moe_intermediate_size);
  }

  Json weight_map = Json::object();
  uint64_t total_bytes = 0;
  for (size_t i = 0; i < shards_.size(); ++i) {
    shards_[i]->Finish(fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards_.size()));
    shards_[i]->ForEachTensor(
        [&](const std::string& tensor) { weight_map[tensor] = shards_[i]->name(); });
    total_bytes += shards_[i]->data_bytes();
  }
  // The index stands for the content: other options, another index.
  const Json origin = {{"generation", kGeneration},
                       {"seed", options_.seed},
                       {"experts_skew", options_.experts_skew}};
  files_[std::string(kSourceIndexFile)] =
      Json{{"metadata", {{"total_size", total_bytes}, {"synthetic", origin}}},
           {"weight_map", std::move(weight_map)}}
          .dump(2) +
      "\n";
  const std::string digest =
      Sha256Hex(files_[std::string(kSourceIndexFile)] + files_["config.json"]);
  identity_ = {.repository = fmt::format("synthetic/{}", schema.key),
               .requested_revision = digest.substr(0, 40),
               .commit = digest.substr(0, 40)};
}

SyntheticSource::~SyntheticSource() = default;

std::optional<std::string> SyntheticSource::ReadFile(const std::string& name, uint64_t max_bytes) {
  const auto found = files_.find(name);
  if (found == files_.end()) return std::nullopt;
  if (found->second.size() > max_bytes) {
    Fail(ErrorCode::kMetadataTooLarge, "{} has {} bytes, more than the {} allowed", name,
         found->second.size(), max_bytes);
  }
  return found->second;
}

std::unique_ptr<FetchedRange> SyntheticSource::FetchFile(const std::string& name,
                                                         uint64_t max_bytes) {
  const auto found = files_.find(name);
  if (found == files_.end()) return nullptr;
  if (found->second.size() > max_bytes) {
    Fail(ErrorCode::kMetadataTooLarge, "{} has {} bytes, more than the {} allowed", name,
         found->second.size(), max_bytes);
  }
  return std::make_unique<MemoryRange>(found->second);
}

const SyntheticSource::Shard& SyntheticSource::ShardOf(const std::string& name) const {
  const auto found = std::find_if(shards_.begin(), shards_.end(),
                                  [&](const auto& shard) { return shard->name() == name; });
  if (found == shards_.end()) Fail(ErrorCode::kNotFound, "there is no shard {}", name);
  return **found;
}

ShardInfo SyntheticSource::Examine(const std::string& shard) {
  return {.bytes = ShardOf(shard).bytes(), .sha256 = {}};
}

std::string SyntheticSource::ReadBytes(const std::string& shard, uint64_t offset, uint64_t bytes) {
  std::string content(bytes, '\0');
  ShardOf(shard).Read(offset, std::as_writable_bytes(std::span(content)));
  return content;
}

void SyntheticSource::StreamBytes(const std::string& shard, uint64_t offset, uint64_t bytes,
                                  const std::function<void(std::span<const std::byte>)>& sink) {
  const Shard& content = ShardOf(shard);
  std::vector<std::byte> tile(std::min<uint64_t>(bytes, kStreamTile));
  while (bytes > 0) {
    const auto part = std::span(tile).first(std::min<uint64_t>(bytes, tile.size()));
    content.Read(offset, part);
    sink(part);
    offset += part.size();
    bytes -= part.size();
  }
}

std::unique_ptr<FetchedRange> SyntheticSource::Fetch(const RangeRequest& request) {
  return std::make_unique<ShardRange<Shard>>(ShardOf(request.shard), request);
}

std::vector<std::string> SyntheticSource::file_names() const {
  std::vector<std::string> names;
  for (const auto& [name, content] : files_) names.push_back(name);
  return names;
}

std::vector<std::string> SyntheticSource::shard_names() const {
  std::vector<std::string> names;
  for (const auto& shard : shards_) names.push_back(shard->name());
  return names;
}

}  // namespace mference
