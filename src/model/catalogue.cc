#include "model/catalogue.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "base/units.h"

namespace mference {
namespace {

// `special` on every `period`-th layer, counted so that the last of each period is special.
std::vector<LayerKind> EveryNth(size_t layers, size_t period, LayerKind base, LayerKind special) {
  std::vector<LayerKind> kinds(layers, base);
  for (size_t i = period - 1; i < layers; i += period) kinds[i] = special;
  return kinds;
}

ArchConfig Gemma4Arch() {
  return {
      .hidden_size = 2816,
      .ffn_intermediate = 2112,
      .moe_intermediate_size = 704,
      .num_heads = 16,
      .num_kv_heads = 8,
      .num_full_kv_heads = 2,
      .head_dim = 256,
      .full_head_dim = 512,
      .vocab_size = 262144,
      .sliding_window = 1024,
      .final_logit_softcap = 30,
      .rope_theta = 1e4,
      .full_rope_theta = 1e6,
      .partial_rotary_factor = 0.25,
      .num_layers = 30,
      .num_experts = 128,
      .top_k_experts = 8,
      .tie_word_embeddings = true,
      .attention_k_eq_v = true,
      .hidden_activation = "gelu_pytorch_tanh",
      .layer_kinds = EveryNth(30, 6, LayerKind::kSlidingWindow, LayerKind::kFullAttention),
  };
}

ArchConfig Qwen36Arch() {
  return {
      .hidden_size = 2048,
      .ffn_intermediate = 512,
      .moe_intermediate_size = 512,
      .num_heads = 16,
      .num_kv_heads = 2,
      .num_full_kv_heads = 2,
      .head_dim = 256,
      .full_head_dim = 256,
      .vocab_size = 248320,
      .rope_theta = 1e7,
      .full_rope_theta = 1e7,
      .partial_rotary_factor = 0.25,
      .num_layers = 40,
      .num_experts = 256,
      .top_k_experts = 8,
      .hidden_activation = "silu",
      .layer_kinds = EveryNth(40, 4, LayerKind::kGatedDeltaNet, LayerKind::kFullAttention),
      .family = Family::kQwen36,
      .attn_output_gate = true,
      .attention_scale = 0.0625,
      .embedding_scaled_by_sqrt_hidden = false,
      .router_scaled = false,
      .ffn_sandwich_norms = false,
      .shared_expert_gated = true,
      .rope_neox_subdim = true,
      .linear_num_k_heads = 16,
      .linear_num_v_heads = 32,
      .linear_key_head_dim = 128,
      .linear_value_head_dim = 128,
      .linear_conv_kernel_size = 4,
  };
}

ArchConfig DeepseekV4Arch() {
  // Layers 0 and 1 slide; then CSA on even and HCA on odd layers.
  std::vector<LayerKind> kinds =
      EveryNth(43, 2, LayerKind::kCompressedSparse, LayerKind::kHeavilyCompressed);
  kinds[0] = kinds[1] = LayerKind::kSlidingWindow;
  return {
      .hidden_size = 4096,
      .ffn_intermediate = 2048,
      .moe_intermediate_size = 2048,
      .num_heads = 64,
      .num_kv_heads = 1,
      .num_full_kv_heads = 1,
      .head_dim = 512,
      .full_head_dim = 512,
      .vocab_size = 129280,
      .sliding_window = 128,
      .rope_theta = 1e4,
      .full_rope_theta = 1e4,
      .partial_rotary_factor = 0.125,
      .num_layers = 43,
      .num_experts = 256,
      .top_k_experts = 6,
      .attention_k_eq_v = true,
      .hidden_activation = "silu",
      .layer_kinds = std::move(kinds),
      .family = Family::kDeepseekV4Flash,
      .attention_scale = 1.0 / std::sqrt(512.0),
      .embedding_scaled_by_sqrt_hidden = false,
      .router_scaled = false,
      .ffn_sandwich_norms = false,
      .ca_q_lora_rank = 1024,
      .ca_o_lora_rank = 1024,
      .ca_o_groups = 8,
      .ca_rope_head_dim = 64,
      .ca_index_n_heads = 64,
      .ca_index_head_dim = 128,
      .ca_index_top_k = 512,
      .ca_csa_compress_rate = 4,
      .ca_hca_compress_rate = 128,
      .ca_compress_rope_theta = 160000,
      .ca_rope_scaling_factor = 16,
      .ca_rope_scaling_original_max = 65536,
      .ca_rope_scaling_beta_fast = 32,
      .ca_rope_scaling_beta_slow = 1,
      .hc_mult = 4,
      .hc_sinkhorn_iters = 20,
      .hc_eps = 1e-6,
      .num_hash_routed_layers = 3,
      .router_scoring_func = "sqrtsoftplus",
      .routed_scaling_factor = 1.5,
      .swiglu_limit = 10,
  };
}

ArchConfig InklingArch() {
  return {
      .hidden_size = 4096,
      .ffn_intermediate = 2048,
      .moe_intermediate_size = 2048,
      .num_heads = 32,
      .num_kv_heads = 8,
      .num_full_kv_heads = 8,
      .head_dim = 128,
      .full_head_dim = 128,
      .vocab_size = 201024,
      .sliding_window = 512,
      .num_layers = 42,
      .num_experts = 256,
      .top_k_experts = 6,
      .hidden_activation = "silu",
      .layer_kinds = EveryNth(42, 6, LayerKind::kSlidingWindow, LayerKind::kFullAttention),
      .family = Family::kInklingSmall,
      .attention_scale = 1.0 / 128.0,
      .embedding_scaled_by_sqrt_hidden = false,
      .router_scaled = false,
      .ffn_sandwich_norms = false,
      .router_scoring_func = "sigmoid",
      .routed_scaling_factor = 8,
      .rel_d_rel = 16,
      .rel_extent = 1024,
      .rel_proj_dim = 512,
      .rel_log_scaling_floor = 128000,
      .rel_log_scaling_alpha = 0.1,
      .sconv_kernel_size = 4,
      .num_shared_experts = 2,
      .num_dense_layers = 2,
      .dense_intermediate_size = 16384,
      .shared_expert_sink = true,
      .embed_norm_enabled = true,
      .logits_width_multiplier = 16,
      .router_gate_bias = true,
      .router_norm_after_top_k = true,
      .router_global_scale = true,
      .unpadded_vocab_size = 200058,
  };
}

ArchConfig MapleArch() {
  return {
      .hidden_size = 2048,
      .ffn_intermediate = 512,
      .moe_intermediate_size = 512,
      .num_heads = 16,
      .num_kv_heads = 4,
      .num_full_kv_heads = 4,
      .head_dim = 128,
      .full_head_dim = 128,
      .vocab_size = 151936,
      .sliding_window = 512,
      .rope_theta = 1e4,
      .partial_rotary_factor = 0.5,
      .num_layers = 24,
      .num_experts = 256,
      .top_k_experts = 8,
      .hidden_activation = "silu",
      .layer_kinds = EveryNth(24, 4, LayerKind::kSlidingWindow, LayerKind::kFullAttention),
      .family = Family::kMaple,
      .attention_scale = 1.0 / std::sqrt(128.0),
      .embedding_scaled_by_sqrt_hidden = false,
      .router_scaled = false,
      .ffn_sandwich_norms = false,
      .rope_neox_subdim = true,
      .swiglu_limit = 7,
      .num_shared_experts = 0,
      .router_norm_after_top_k = true,
  };
}

constexpr KnownFile kMapleFiles[] = {
    {"model-00001-of-00003.safetensors", 2162084350,
     "1444bbc92e2842e9a612c32b6d6f30f0f026a107c8094a4ac273819a22eb84e1"},
    {"model-00002-of-00003.safetensors", 2187444586,
     "d051e252c46570f989b65c5e037b94402d22f892e96dc91f5fb83dbb06b50d30"},
    {"model-00003-of-00003.safetensors", 958711742,
     "85c97321214c864597562d5b7286b9e8a0dac36e5abd622f11f9b8425ee88705"},
    {"config.json", 2710, "57eb521da63629196ebda2c103be929c81c1027ddf2766e7b19e2d2427f77443"},
    {"tokenizer.json", 11422654,
     "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"},
    {"tokenizer_config.json", 5432,
     "bcab9fe0f4f56a0cffba7c916f943c376810d32c08f2cebf01f8b15849039d35"},
    {"chat_template.jinja", 3292,
     "83e4c58ca602ade89b126cc75a036eb8bd06d373d4fd94b09d2277d609131089"},
    {"special_tokens_map.json", 613,
     "76862e765266b85aa9459767e33cbaf13970f327a0e88d1c65846c2ddd3a1ecd"},
};

constexpr std::string_view kGemma4Aliases[] = {"gemma-4", "gemma4-26b-a4b"};
constexpr std::string_view kQwen36Aliases[] = {"qwen3.6", "qwen3_5_moe"};
constexpr std::string_view kDeepseekAliases[] = {"deepseekv4flash", "deepseek-v4-flash"};
constexpr std::string_view kInklingAliases[] = {"inklingsmall", "inkling-small"};
constexpr std::string_view kMapleAliases[] = {"maple-preview"};

constexpr PinnedSource kPinned[] = {
    {
        .name = "gemma4",
        .aliases = kGemma4Aliases,
        .display_name = "Gemma 4 26B-A4B IT 4-bit",
        .repository = "mlx-community/gemma-4-26b-a4b-it-4bit",
        .revision = "0d77464eeb233a2da68ebf9d7dc4edaac7db956d",
        .index_sha256 = "bf198c9f5ea6462addca1966e5dd669c407537a876e82cf06db9084c5c850b13",
        .model_id = "mlx-community/gemma-4-26b-a4b-it-4bit",
        .licence = "Apache-2.0",
        .family = Family::kGemma4,
        .download_bytes = 14'620'479'420,
        .installed_bytes = 14'291'921'884,
        .reserve_bytes = 1 * kGiB,
        .plan = {.resident_entries = 597,
                 .weights_file_bytes = 1'353'771'068,
                 .expert_stride = 3'358'720,
                 .layer_files = 30,
                 .layer_file_bytes = 429'916'160},
        .known_files = {},
        .arch = Gemma4Arch,
    },
    {
        .name = "qwen36",
        .aliases = kQwen36Aliases,
        .display_name = "Qwen3.6 35B-A3B 4-bit",
        .repository = "mlx-community/Qwen3.6-35B-A3B-4bit",
        .revision = "38740b847e4cb78f352aba30aa41c76e08e6eb46",
        .index_sha256 = "0b28df60e33753a14e816d3b31577ae2c93884c58430a4a6de6ae9ea483842ea",
        .model_id = "qwen3.6-35b-a3b-4bit",
        .licence = "Apache-2.0",
        .family = Family::kQwen36,
        .download_bytes = 19'529'025'048,
        .installed_bytes = 19'546'491'213,
        .reserve_bytes = 1 * kGiB,
        .plan = {.resident_entries = 613,
                 .weights_file_bytes = 1'389'476'096,
                 .expert_stride = 1'769'472,
                 .layer_files = 40,
                 .layer_file_bytes = 452'984'832},
        .known_files = {},
        .arch = Qwen36Arch,
    },
    {
        .name = "deepseek_v4",
        .aliases = kDeepseekAliases,
        .display_name = "DeepSeek-V4-Flash 284B-A13B 2-bit DQ",
        .repository = "mlx-community/DeepSeek-V4-Flash-2bit-DQ",
        .revision = "722bf559b7de93575b2320973cf2002e05bfe6c9",
        .index_sha256 = "d1c2d929ab0a35be32cf18026bb31d6f99dad58d6c93a5a2abbe43791f9d6c30",
        .model_id = "deepseek-v4-flash-2bit-dq",
        .licence = "MIT",
        .family = Family::kDeepseekV4Flash,
        .download_bytes = 97'000'000'000,
        .installed_bytes = 97'500'000'000,
        .reserve_bytes = 2 * kGiB,
        .plan = {.resident_entries = 1199,
                 .weights_file_bytes = 4'312'867'932,
                 .expert_stride = 8'388'608,
                 .layer_files = 43,
                 .layer_file_bytes = 2'147'483'648},
        .known_files = {},
        .arch = DeepseekV4Arch,
    },
    {
        .name = "inkling",
        .aliases = kInklingAliases,
        .display_name = "Inkling-Small 276B-A12B 4-bit",
        .repository = "pipenetwork/Inkling-Small-MLX-4bit",
        .revision = "9d6e4720ab7002af25d6129c88ccea6cd9f19372",
        .index_sha256 = "fe16aec3cef12438f1d0ff657f7e785781b61271528a66b3b7160fcf1aaca30c",
        .model_id = "inkling-small-4bit",
        .licence = "Apache-2.0",
        .family = Family::kInklingSmall,
        .download_bytes = 148'441'426'867,
        .installed_bytes = 149'000'000'000,
        .reserve_bytes = 2 * kGiB,
        .plan = {.resident_entries = 840,
                 .weights_file_bytes = 3'415'372'964,
                 .expert_stride = 14'155'776,
                 .layer_files = 40,
                 .layer_file_bytes = 3'623'878'656},
        .known_files = {},
        .arch = InklingArch,
    },
    {
        .name = "maple",
        .aliases = kMapleAliases,
        .display_name = "Maple Preview 20B-A1B 2-bit",
        .repository = "deepgrove/maple-preview-2bit-mlx",
        .revision = "361db5da5e74ff6fcdd852d478e1f266ce11013a",
        .index_sha256 = "56000110535c5023b43209a5c142035e12c1cde7b1118759cc9f86335d46ef95",
        .model_id = "maple-preview-2bit-mlx",
        .licence = "none stated at this revision (its unquantised base model: MIT)",
        .family = Family::kMaple,
        .download_bytes = 5'330'000'000,
        .installed_bytes = 6'650'000'000,
        .reserve_bytes = 1 * kGiB,
        .plan = {.resident_entries = 219,
                 .weights_file_bytes = 517'029'888,
                 .expert_stride = 983'040,
                 .layer_files = 24,
                 .layer_file_bytes = 251'658'240},
        .known_files = kMapleFiles,
        .arch = MapleArch,
    },
};

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

template <typename Predicate>
const PinnedSource* FindPinnedIf(Predicate predicate) {
  const auto found = std::find_if(std::begin(kPinned), std::end(kPinned), predicate);
  return found == std::end(kPinned) ? nullptr : found;
}

std::string SupportedModelTypes() {
  std::string list;
  for (const CheckpointSchema* schema : CheckpointSchemas()) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", schema->model_type);
  }
  return list;
}

}  // namespace

uint64_t PinnedSource::memory_bytes() const {
  return plan.weights_file_bytes + 16 * plan.layer_files * plan.expert_stride + 256 * kMiB;
}

std::span<const PinnedSource> PinnedSources() { return kPinned; }

const PinnedSource* FindPinned(std::string_view name) {
  return FindPinnedIf([name](const PinnedSource& source) {
    const auto same = [name](std::string_view other) { return EqualIgnoringCase(name, other); };
    return same(source.name) || same(source.repository) ||
           std::any_of(source.aliases.begin(), source.aliases.end(), same);
  });
}

const PinnedSource* FindPinnedByIndex(std::string_view index_sha256) {
  return FindPinnedIf(
      [&](const PinnedSource& source) { return source.index_sha256 == index_sha256; });
}

const PinnedSource* FindPinnedByModelId(std::string_view model_id) {
  return FindPinnedIf([&](const PinnedSource& source) { return source.model_id == model_id; });
}

const PinnedSource& PinnedOf(Family family) {
  const PinnedSource* found =
      FindPinnedIf([family](const PinnedSource& source) { return source.family == family; });
  if (found == nullptr) {
    Fail(ErrorCode::kUnknownFamily, "family {} is not supported", FamilyName(family));
  }
  return *found;
}

std::span<const CheckpointSchema* const> CheckpointSchemas() {
  static const std::array<const CheckpointSchema*, 5> kSchemas = {
      &Gemma4Schema(), &Qwen36Schema(), &DeepseekV4Schema(), &InklingSchema(), &MapleSchema()};
  return kSchemas;
}

const CheckpointSchema& SchemaForConfig(const JsonReader& config) {
  const std::string model_type = config.At("model_type").String();
  for (const CheckpointSchema* schema : CheckpointSchemas()) {
    if (schema->model_type == model_type) return *schema;
  }
  Fail(ErrorCode::kUnknownFamily,
       "config.json has model_type \"{}\", which is not supported; supported are {}", model_type,
       SupportedModelTypes());
}

const CheckpointSchema& SchemaOf(Family family) {
  for (const CheckpointSchema* schema : CheckpointSchemas()) {
    if (schema->family == family) return *schema;
  }
  Fail(ErrorCode::kUnknownFamily, "family {} is not supported", FamilyName(family));
}

Json ParseConfig(std::string_view config_json, const std::string& name) {
  if (config_json.size() > kMaxConfigBytes) {
    Fail(ErrorCode::kMetadataTooLarge, "{} has {} bytes, more than the {} allowed", name,
         config_json.size(), kMaxConfigBytes);
  }
  return ParseJson(config_json, name, ErrorCode::kSourceInvalid);
}

ArchConfig DeriveArch(const Json& config, const std::string& name) {
  const JsonReader reader(config, name, ErrorCode::kSourceInvalid);
  reader.RequireObject();
  return SchemaForConfig(reader).derive_arch(reader);
}

bool IsProductionArch(const ArchConfig& arch) {
  return FindPinnedIf([&](const PinnedSource& source) {
           const ArchConfig baseline = source.arch();
           return baseline.num_layers == arch.num_layers &&
                  baseline.hidden_size == arch.hidden_size;
         }) != nullptr;
}

ExpectedModel ResolveModel(const Manifest& manifest, std::string_view config_json) {
  const std::string name(kConfigFile);
  ArchConfig derived = DeriveArch(ParseConfig(config_json, name), name);
  if (const PinnedSource* pinned = FindPinnedByModelId(manifest.model_id)) {
    const ArchConfig baseline = pinned->arch();
    CheckArch({.config = derived, .omitted = {}}, baseline,
              fmt::format("{} of {}", name, pinned->display_name));
    return {.arch = baseline, .quant_required = true};
  }
  const bool production = IsProductionArch(derived);
  return {.arch = std::move(derived), .quant_required = production};
}

}  // namespace mference
