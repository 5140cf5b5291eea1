#include "model/config_fields.h"

#include <algorithm>

namespace mference {
namespace {

constexpr int64_t kMaxDimension = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 100;  // layer files have two-digit names

int64_t ReadBounded(const JsonReader& object, std::string_view key, int64_t least) {
  const JsonReader field = object.At(key);
  const int64_t value = field.Int();
  if (value < least || value > kMaxDimension) {
    field.FailHere(fmt::format("expected {} to {}, found {}", least, kMaxDimension, value));
  }
  return value;
}

}  // namespace

int64_t ReadDimension(const JsonReader& object, std::string_view key) {
  return ReadBounded(object, key, 1);
}

int64_t ReadCount(const JsonReader& object, std::string_view key) {
  return ReadBounded(object, key, 0);
}

void RequireValue(const JsonReader& object, std::string_view key, const Json& value) {
  if (object.Has(key)) RequirePresent(object, key, value);
}

void RequirePresent(const JsonReader& object, std::string_view key, const Json& value) {
  const JsonReader field = object.At(key);
  if (field.value() != value) {
    field.FailHere(fmt::format("only {} is supported, found {}", value.dump(),
                               field.value().dump().substr(0, 80)));
  }
}

std::vector<LayerKind> ReadLayerTypes(const JsonReader& object, int64_t layers,
                                      const std::vector<LayerTypeName>& names) {
  const JsonReader types = object.At("layer_types");
  if (static_cast<int64_t>(types.ArraySize()) != layers) {
    types.FailHere(fmt::format("expected one entry for each of the {} layers, found {}", layers,
                               types.ArraySize()));
  }
  std::vector<LayerKind> kinds;
  for (size_t i = 0; i < types.ArraySize(); ++i) {
    const std::string type = types.At(i).String();
    const auto known = std::find_if(names.begin(), names.end(),
                                    [&](const LayerTypeName& name) { return name.name == type; });
    if (known == names.end()) {
      types.At(i).FailHere(fmt::format("\"{}\" is not a layer type of this family", type));
    }
    kinds.push_back(known->kind);
  }
  return kinds;
}

void RequireSoundArch(const ArchConfig& arch, const JsonReader& config) {
  if (arch.num_layers > kMaxLayers) {
    config.FailHere(
        fmt::format("expected at most {} layers, found {}", kMaxLayers, arch.num_layers));
  }
  if (arch.top_k_experts > arch.num_experts) {
    config.FailHere(
        fmt::format("a token chooses {} experts of {}", arch.top_k_experts, arch.num_experts));
  }
  if (arch.num_heads % arch.num_kv_heads != 0 || arch.num_heads % arch.num_full_kv_heads != 0) {
    config.FailHere(fmt::format("{} heads cannot share {} (or {}) key-value heads evenly",
                                arch.num_heads, arch.num_kv_heads, arch.num_full_kv_heads));
  }
}

}  // namespace mference
