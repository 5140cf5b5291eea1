#include "format/quant_config.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <set>

#include "base/error.h"
#include "format/path_rules.h"

namespace mference {
namespace {

struct SlotField {
  const char* name;
  QuantSlot QuantConfig::*slot;
};

constexpr auto kSlots = std::to_array<SlotField>({
    {"embedding", &QuantConfig::embedding},
    {"attention", &QuantConfig::attention},
    {"router", &QuantConfig::router},
    {"sharedExpert", &QuantConfig::shared_expert},
    {"routedExpert", &QuantConfig::routed_expert},
});

struct FlashHeadField {
  const char* name;
  int64_t FlashHeadConfig::*member;
};

constexpr auto kFlashHeadFields = std::to_array<FlashHeadField>({
    {"nClusters", &FlashHeadConfig::n_clusters},
    {"clusterSize", &FlashHeadConfig::cluster_size},
    {"nProbes", &FlashHeadConfig::n_probes},
    {"groupSize", &FlashHeadConfig::group_size},
    {"bits", &FlashHeadConfig::bits},
    {"headGroupSize", &FlashHeadConfig::head_group_size},
    {"headBits", &FlashHeadConfig::head_bits},
});

// What each family allows in each slot.
std::vector<QuantSlot> AllowedSlots(Family family, QuantSlot QuantConfig::*slot) {
  const auto is = [&](QuantSlot QuantConfig::*other) { return slot == other; };
  if (family == Family::kQwen38) {
    if (is(&QuantConfig::embedding) || is(&QuantConfig::attention)) return {AffineSlot(4)};
    return {AbsentSlot()};
  }
  if (family == Family::kMaple) {
    if (is(&QuantConfig::router)) return {UnquantizedSlot()};
    if (is(&QuantConfig::shared_expert)) return {AbsentSlot()};
    return {AffineSlot(is(&QuantConfig::routed_expert) ? 2 : 4)};
  }
  if (is(&QuantConfig::router)) return {AffineSlot(8)};
  if (is(&QuantConfig::shared_expert)) return {AffineSlot(4), AffineSlot(8)};
  if (is(&QuantConfig::routed_expert)) return {AffineSlot(2), AffineSlot(4)};
  return {AffineSlot(4)};
}

bool SameSlot(const QuantSlot& a, const QuantSlot& b) {
  return a.weight_bits == b.weight_bits && a.group_size == b.group_size &&
         AsciiLower(a.scheme) == AsciiLower(b.scheme) &&
         AsciiLower(a.scale_type) == AsciiLower(b.scale_type) &&
         AsciiLower(a.bias_type) == AsciiLower(b.bias_type);
}

std::string Show(const QuantSlot& slot) {
  return fmt::format("{}-bit {} (scales {}, biases {}, group {})", slot.weight_bits, slot.scheme,
                     slot.scale_type, slot.bias_type, slot.group_size);
}

}  // namespace

QuantSlot AffineSlot(int64_t bits, int64_t group_size) {
  return {bits, "affine", "BF16", "BF16", group_size};
}

QuantSlot UnquantizedSlot() { return {16, "unquantized", "none", "none", 0}; }

QuantConfig ParseQuant(const JsonReader& quant) {
  QuantConfig config;
  for (const SlotField& field : kSlots) {
    const JsonReader slot = quant.At(field.name);
    config.*field.slot = {slot.At("weightBits").Int(), slot.At("scheme").String(),
                          slot.At("scaleType").String(), slot.At("biasType").String(),
                          slot.At("groupSize").Int()};
  }
  return config;
}

void WriteQuant(const QuantConfig& quant, JsonWriter& json) {
  json.BeginObject();
  for (const SlotField& field : kSlots) {
    const QuantSlot& slot = quant.*field.slot;
    json.Key(field.name);
    json.BeginObject();
    json.Key("weightBits");
    json.Int(slot.weight_bits);
    json.Key("scheme");
    json.String(slot.scheme);
    json.Key("scaleType");
    json.String(slot.scale_type);
    json.Key("biasType");
    json.String(slot.bias_type);
    json.Key("groupSize");
    json.Int(slot.group_size);
    json.EndObject();
  }
  json.EndObject();
}

FlashHeadConfig ParseFlashHead(const JsonReader& flash_head) {
  FlashHeadConfig config;
  for (const FlashHeadField& field : kFlashHeadFields) {
    config.*field.member = flash_head.At(field.name).Int();
  }
  config.scaled_centroids = flash_head.At("scaledCentroids").Bool();
  config.force_tokens = flash_head.At("forceTokens").IntArray();
  return config;
}

void WriteFlashHead(const FlashHeadConfig& flash_head, JsonWriter& json) {
  json.BeginObject();
  for (const FlashHeadField& field : kFlashHeadFields) {
    json.Key(field.name);
    json.Int(flash_head.*field.member);
  }
  json.Key("scaledCentroids");
  json.Bool(flash_head.scaled_centroids);
  json.Key("forceTokens");
  json.BeginArray();
  for (const int64_t token : flash_head.force_tokens) json.Int(token);
  json.EndArray();
  json.EndObject();
}

void CheckQuant(const QuantConfig& quant, Family family, const std::string& name) {
  for (const SlotField& field : kSlots) {
    const QuantSlot& found = quant.*field.slot;
    const std::vector<QuantSlot> allowed = AllowedSlots(family, field.slot);
    if (std::any_of(allowed.begin(), allowed.end(),
                    [&](const QuantSlot& slot) { return SameSlot(found, slot); })) {
      continue;
    }
    std::vector<std::string> shown;
    shown.reserve(allowed.size());
    for (const QuantSlot& slot : allowed) shown.push_back(Show(slot));
    Fail(ErrorCode::kQuantUnsupported, "{}: $.quant.{} is {}; {} models may have {}", name,
         field.name, Show(found), FamilyName(family), fmt::join(shown, " or "));
  }
}

void CheckFlashHead(const FlashHeadConfig& head, const ArchConfig& arch, const std::string& name) {
  const auto require = [&](bool holds, std::string_view rule) {
    if (!holds) Fail(ErrorCode::kFlashHeadInvalid, "{}: $.flashHead: {}", name, rule);
  };
  require(arch.family == Family::kMaple, "only the family maple has one");
  require(head.n_clusters > 0 && head.cluster_size > 0,
          "nClusters and clusterSize must be positive");
  int64_t tokens = 0;
  require(!__builtin_mul_overflow(head.n_clusters, head.cluster_size, &tokens) &&
              tokens == arch.vocab_size,
          fmt::format("nClusters * clusterSize must be the vocabulary of {}", arch.vocab_size));
  require(head.n_probes > 0 && head.n_probes <= head.n_clusters, "nProbes must be in 1..nClusters");
  require(head.group_size == 64 && head.head_group_size == 64,
          "groupSize and headGroupSize must be 64");
  require(head.bits == 4 && head.head_bits == 4, "bits and headBits must be 4");
  require(head.scaled_centroids, "scaledCentroids must be true");
  std::set<int64_t> distinct;
  for (const int64_t token : head.force_tokens) {
    require(token >= 0 && token < arch.vocab_size && distinct.insert(token).second,
            fmt::format("forceTokens must be distinct tokens; {} is not", token));
  }
}

}  // namespace mference
