#include "format/arch_config.h"

#include <array>
#include <cstddef>
#include <utility>

#include "base/error.h"

namespace mference {
namespace {

constexpr FamilySet kNone = 0;
constexpr FamilySet kG = Only(Family::kGemma4);
constexpr FamilySet kQ6 = Only(Family::kQwen36);
constexpr FamilySet kQ8 = Only(Family::kQwen38);
constexpr FamilySet kD = Only(Family::kDeepseekV4Flash);
constexpr FamilySet kI = Only(Family::kInklingSmall);
constexpr FamilySet kM = Only(Family::kMaple);
constexpr FamilySet kAll = kG | kQ6 | kQ8 | kD | kI | kM;
constexpr FamilySet kNotGemma = kQ6 | kQ8 | kD | kI | kM;

using A = ArchConfig;

// name, member, families that write it, families that must have it.
constexpr auto kFields = std::to_array<ArchField>({
    {"hiddenSize", &A::hidden_size, kAll, kAll},
    {"ffnIntermediate", &A::ffn_intermediate, kAll, kAll},
    {"moeIntermediateSize", &A::moe_intermediate_size, kAll, kAll},
    {"numHeads", &A::num_heads, kAll, kAll},
    {"numKVHeads", &A::num_kv_heads, kAll, kAll},
    {"numFullKVHeads", &A::num_full_kv_heads, kAll, kAll},
    {"headDim", &A::head_dim, kAll, kAll},
    {"fullHeadDim", &A::full_head_dim, kAll, kAll},
    {"vocabSize", &A::vocab_size, kAll, kAll},
    {"slidingWindow", &A::sliding_window, kAll, kAll},
    {"finalLogitSoftcap", &A::final_logit_softcap, kAll, kAll},
    {"ropeTheta", &A::rope_theta, kAll, kAll},
    {"fullRopeTheta", &A::full_rope_theta, kAll, kAll},
    {"partialRotaryFactor", &A::partial_rotary_factor, kAll, kAll},
    {"numLayers", &A::num_layers, kAll, kAll},
    {"numExperts", &A::num_experts, kAll, kAll},
    {"topKExperts", &A::top_k_experts, kAll, kAll},
    {"tieWordEmbeddings", &A::tie_word_embeddings, kAll, kAll},
    {"attentionKEqV", &A::attention_k_eq_v, kAll, kAll},
    {"hiddenActivation", &A::hidden_activation, kAll, kAll},
    {"fullAttentionLayerMask", &A::layer_kinds, kAll, kAll},

    {"family", &A::family, kNotGemma, kM},
    {"attnOutputGate", &A::attn_output_gate, kNotGemma, kM},
    {"attentionScale", &A::attention_scale, kNotGemma, kM},
    {"embeddingScaledBySqrtHidden", &A::embedding_scaled_by_sqrt_hidden, kNotGemma, kM},
    {"routerScaled", &A::router_scaled, kNotGemma, kM},
    {"ffnSandwichNorms", &A::ffn_sandwich_norms, kNotGemma, kM},
    {"sharedExpertGated", &A::shared_expert_gated, kNotGemma, kNone},
    {"ropeNeoxSubdim", &A::rope_neox_subdim, kNotGemma, kM},
    {"linearNumKHeads", &A::linear_num_k_heads, kNotGemma, kNone},
    {"linearNumVHeads", &A::linear_num_v_heads, kNotGemma, kNone},
    {"linearKeyHeadDim", &A::linear_key_head_dim, kNotGemma, kNone},
    {"linearValueHeadDim", &A::linear_value_head_dim, kNotGemma, kNone},
    {"linearConvKernelSize", &A::linear_conv_kernel_size, kNotGemma, kNone},

    {"caQLoraRank", &A::ca_q_lora_rank, kD, kNone},
    {"caOLoraRank", &A::ca_o_lora_rank, kD, kNone},
    {"caOGroups", &A::ca_o_groups, kD, kNone},
    {"caRopeHeadDim", &A::ca_rope_head_dim, kD, kNone},
    {"caIndexNHeads", &A::ca_index_n_heads, kD, kNone},
    {"caIndexHeadDim", &A::ca_index_head_dim, kD, kNone},
    {"caIndexTopK", &A::ca_index_top_k, kD, kNone},
    {"caCSACompressRate", &A::ca_csa_compress_rate, kD, kNone},
    {"caHCACompressRate", &A::ca_hca_compress_rate, kD, kNone},
    {"caCompressRopeTheta", &A::ca_compress_rope_theta, kD, kNone},
    {"caRopeScalingFactor", &A::ca_rope_scaling_factor, kD, kNone},
    {"caRopeScalingOriginalMax", &A::ca_rope_scaling_original_max, kD, kNone},
    {"caRopeScalingBetaFast", &A::ca_rope_scaling_beta_fast, kD, kNone},
    {"caRopeScalingBetaSlow", &A::ca_rope_scaling_beta_slow, kD, kNone},
    {"hcMult", &A::hc_mult, kD, kNone},
    {"hcSinkhornIters", &A::hc_sinkhorn_iters, kD, kNone},
    {"hcEps", &A::hc_eps, kD, kNone},
    {"numHashRoutedLayers", &A::num_hash_routed_layers, kD, kNone},

    {"routerScoringFunc", &A::router_scoring_func, kD | kI | kM, kM},
    {"routedScalingFactor", &A::routed_scaling_factor, kD | kI | kM, kM},
    {"swigluLimit", &A::swiglu_limit, kD | kM, kM},
    {"relDRel", &A::rel_d_rel, kI, kNone},
    {"relExtent", &A::rel_extent, kI, kNone},
    {"relProjDim", &A::rel_proj_dim, kI, kNone},
    {"relLogScalingFloor", &A::rel_log_scaling_floor, kI, kNone},
    {"relLogScalingAlpha", &A::rel_log_scaling_alpha, kI, kNone},
    {"sconvKernelSize", &A::sconv_kernel_size, kI, kNone},
    {"numSharedExperts", &A::num_shared_experts, kI | kQ8 | kM, kM},
    {"numDenseLayers", &A::num_dense_layers, kI | kQ8 | kM, kNone},
    {"denseIntermediateSize", &A::dense_intermediate_size, kI | kQ8, kNone},
    {"sharedExpertSink", &A::shared_expert_sink, kI, kNone},
    {"embedNormEnabled", &A::embed_norm_enabled, kI, kNone},
    {"logitsWidthMultiplier", &A::logits_width_multiplier, kI, kNone},
    {"routerGateBias", &A::router_gate_bias, kI, kNone},
    {"routerNormAfterTopK", &A::router_norm_after_top_k, kI | kM, kM},
    {"routerGlobalScale", &A::router_global_scale, kI, kNone},
    {"unpaddedVocabSize", &A::unpadded_vocab_size, kI, kNone},
});

constexpr auto kFamilies = std::to_array<std::pair<Family, const char*>>({
    {Family::kGemma4, "gemma4"},
    {Family::kQwen36, "qwen36"},
    {Family::kQwen38, "qwen38"},
    {Family::kDeepseekV4Flash, "deepseekV4Flash"},
    {Family::kInklingSmall, "inklingSmall"},
    {Family::kMaple, "maple"},
});

Family ParseFamily(const JsonReader& value) {
  const std::string name = value.String();
  if (const auto family = ParseFamilyName(name)) return *family;
  std::string known;
  for (const auto& [family, family_name] : kFamilies) known += fmt::format(" {}", family_name);
  Fail(ErrorCode::kUnknownFamily, "the manifest's family '{}' is not one of{}", name, known);
}

std::vector<LayerKind> ParseLayerKinds(const JsonReader& value) {
  constexpr size_t kMaxLayers = 4096;
  if (value.ArraySize() > kMaxLayers)
    value.FailHere(fmt::format("more than {} layers", kMaxLayers));
  std::vector<LayerKind> kinds;
  for (size_t i = 0; i < value.ArraySize(); ++i) {
    const int64_t code = value.At(i).Int();
    if (code < 0 || code > 255) value.At(i).FailHere("expected a code in 0..255");
    kinds.push_back(static_cast<LayerKind>(code));
  }
  return kinds;
}

void Read(const JsonReader& value, int64_t& out) { out = value.Int(); }
void Read(const JsonReader& value, double& out) { out = value.Double(); }
void Read(const JsonReader& value, bool& out) { out = value.Bool(); }
void Read(const JsonReader& value, std::string& out) { out = value.String(); }
void Read(const JsonReader& value, Family& out) { out = ParseFamily(value); }
void Read(const JsonReader& value, std::vector<LayerKind>& out) { out = ParseLayerKinds(value); }

void Write(JsonWriter& json, int64_t value) { json.Int(value); }
void Write(JsonWriter& json, double value) { json.Double(value); }
void Write(JsonWriter& json, bool value) { json.Bool(value); }
void Write(JsonWriter& json, const std::string& value) { json.String(value); }
void Write(JsonWriter& json, Family value) { json.String(FamilyName(value)); }
void Write(JsonWriter& json, const std::vector<LayerKind>& value) {
  json.BeginArray();
  for (const LayerKind kind : value) json.Int(static_cast<int64_t>(kind));
  json.EndArray();
}

std::string Show(int64_t value) { return fmt::to_string(value); }
// 17 digits tell any two doubles apart, where the shortest text might look the same to the eye.
std::string Show(double value) { return fmt::format("{:.17g}", value); }
std::string Show(bool value) { return value ? "true" : "false"; }
std::string Show(const std::string& value) { return fmt::format("\"{}\"", value); }
std::string Show(Family value) { return FamilyName(value); }
std::string Show(const std::vector<LayerKind>& value) {
  std::vector<int> codes;
  codes.reserve(value.size());
  for (const LayerKind kind : value) codes.push_back(static_cast<int>(kind));
  return fmt::format("[{}]", fmt::join(codes, ","));
}

bool Equal(const auto& a, const auto& b) { return a == b; }

bool IsBase(const ArchField& field) { return field.required == kAll; }

}  // namespace

const char* FamilyName(Family family) { return kFamilies[static_cast<size_t>(family)].second; }

std::optional<Family> ParseFamilyName(std::string_view name) {
  for (const auto& [family, family_name] : kFamilies) {
    if (name == family_name) return family;
  }
  return std::nullopt;
}

std::span<const ArchField> ArchFields() { return kFields; }

ParsedArch ParseArch(const JsonReader& arch) {
  arch.RequireObject();
  ParsedArch parsed;
  for (const ArchField& field : kFields) {
    if (!IsBase(field) && !arch.Has(field.name)) {
      parsed.omitted.emplace_back(field.name);
      continue;
    }
    std::visit([&](auto member) { Read(arch.At(field.name), parsed.config.*member); },
               field.member);
  }
  return parsed;
}

void WriteArch(const ArchConfig& arch, JsonWriter& json) {
  json.BeginObject();
  for (const ArchField& field : kFields) {
    if ((field.written & Only(arch.family)) == 0) continue;
    json.Key(field.name);
    std::visit([&](auto member) { Write(json, arch.*member); }, field.member);
  }
  json.EndObject();
}

void CheckArch(const ParsedArch& found, const ArchConfig& expected, const std::string& name) {
  const auto omitted = [&](const ArchField& field) {
    for (const std::string_view other : found.omitted) {
      if (other == field.name) return true;
    }
    return false;
  };
  for (const ArchField& field : kFields) {
    std::visit(
        [&](auto member) {
          if (Equal(found.config.*member, expected.*member)) return;
          Fail(ErrorCode::kArchMismatch, "{}: $.arch.{} is {}{}, but this model needs {}", name,
               field.name, omitted(field) ? "absent, which means " : "", Show(found.config.*member),
               Show(expected.*member));
        },
        field.member);
  }
  for (const ArchField& field : kFields) {
    if ((field.required & Only(expected.family)) != 0 && omitted(field)) {
      Fail(ErrorCode::kArchMismatch, "{}: $.arch.{} is absent, but the family {} requires it", name,
           field.name, FamilyName(expected.family));
    }
  }
}

bool operator==(const ArchConfig& a, const ArchConfig& b) {
  for (const ArchField& field : kFields) {
    if (!std::visit([&](auto member) { return Equal(a.*member, b.*member); }, field.member)) {
      return false;
    }
  }
  return true;
}

}  // namespace mference
