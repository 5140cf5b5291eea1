// Small helpers for reading config.json that every family's `config.cc` uses.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "format/arch_config.h"

namespace mference {

// The text part of a multimodal config.
inline JsonReader TextConfig(const JsonReader& config) { return config.At("text_config"); }

// Numbers that size memory: 1 .. 2^24, so that products of a few of them cannot overflow.
int64_t ReadDimension(const JsonReader& object, std::string_view key);
// The same, 0 allowed.
int64_t ReadCount(const JsonReader& object, std::string_view key);

// Fails unless the member, where present, has this value. `why` completes "... is not supported".
void RequireValue(const JsonReader& object, std::string_view key, const Json& value);
// The same, and the member must be there.
void RequirePresent(const JsonReader& object, std::string_view key, const Json& value);

struct LayerTypeName {
  std::string_view name;
  LayerKind kind;
};

// `layer_types`, one entry per layer, each one of `names`.
std::vector<LayerKind> ReadLayerTypes(const JsonReader& object, int64_t layers,
                                      const std::vector<LayerTypeName>& names);

// Whole-model rules that hold for every family: top-k within the experts, heads a multiple of the
// KV heads. Throws kSourceInvalid through `config`.
void RequireSoundArch(const ArchConfig& arch, const JsonReader& config);

}  // namespace mference
