#include "model/checkpoint_schema.h"

#include <algorithm>
#include <charconv>

namespace mference {

void TensorListBuilder::Section(TensorGroup group, std::string prefix, int64_t layer) {
  group_ = group;
  prefix_ = std::move(prefix);
  layer_ = layer;
}

void TensorListBuilder::Affine(std::string_view name, std::vector<int64_t> shape, QuantRole role) {
  Add(fmt::format("{}.weight", name), Storage::kAffine, std::move(shape), role);
}

void TensorListBuilder::Ternary(std::string_view name, std::vector<int64_t> shape, QuantRole role) {
  Add(fmt::format("{}.weight", name), Storage::kTernary, std::move(shape), role);
}

void TensorListBuilder::Norm(std::string_view name, int64_t size) {
  Add(fmt::format("{}.weight", name), Storage::kBf16, {size}, QuantRole::kNone);
}

void TensorListBuilder::Plain(std::string_view name, std::vector<int64_t> shape, Storage storage) {
  Add(std::string(name), storage, std::move(shape), QuantRole::kNone);
}

void TensorListBuilder::Add(const std::string& name, Storage storage, std::vector<int64_t> shape,
                            QuantRole role) {
  tensors_.push_back({.name = prefix_ + name,
                      .storage = storage,
                      .shape = std::move(shape),
                      .group = group_,
                      .layer = layer_,
                      .role = role});
}

int64_t LayerOf(const CheckpointSchema& schema, std::string_view name) {
  if (!name.starts_with(schema.layers_prefix)) return -1;
  name.remove_prefix(schema.layers_prefix.size());
  int32_t layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const bool complete = error == std::errc() && end != name.data() + name.size() && *end == '.';
  return complete && layer >= 0 ? layer : -1;
}

TensorFate FateOf(const CheckpointSchema& schema, const ArchConfig& arch, std::string_view name) {
  const auto begins = [name](std::string_view prefix) { return name.starts_with(prefix); };
  if (std::any_of(schema.excluded.begin(), schema.excluded.end(), begins)) {
    return TensorFate::kExcluded;
  }
  const bool ours = name.starts_with(schema.prefix) ||
                    std::any_of(schema.outside_prefix.begin(), schema.outside_prefix.end(), begins);
  if (!ours) return TensorFate::kUnknown;
  if (!name.starts_with(schema.layers_prefix)) return TensorFate::kResident;

  const int64_t layer = LayerOf(schema, name);
  if (layer < 0) return TensorFate::kUnknown;
  if (layer >= arch.num_layers) {
    return schema.drops_extra_layers ? TensorFate::kExcluded : TensorFate::kUnknown;
  }
  const std::string_view in_layer = name.substr(name.find('.', schema.layers_prefix.size()) + 1);
  return in_layer.starts_with(schema.routed_prefix) ? TensorFate::kRouted : TensorFate::kResident;
}

std::string RoutedModule(const CheckpointSchema& schema, int64_t layer, std::string_view matrix) {
  return fmt::format("{}{}.{}{}_proj", schema.layers_prefix, layer, schema.routed_prefix, matrix);
}

}  // namespace mference
