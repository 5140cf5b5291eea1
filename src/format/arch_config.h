// The `arch` block of a manifest: every number that shapes a model, and the one table of its
// fields.
//
// Parsing, writing and comparing all walk `ArchFields()`, so a field is described exactly once. The
// values that a family must have are not known here: the catalogue of models supplies the expected
// `ArchConfig`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "format/json_writer.h"

namespace mference {

enum class Family : uint8_t {
  kGemma4,
  kQwen36,
  kQwen38,
  kDeepseekV4Flash,
  kInklingSmall,
  kMaple,
};

// The manifest's spelling: "deepseekV4Flash".
const char* FamilyName(Family family);
std::optional<Family> ParseFamilyName(std::string_view name);

// Codes of `fullAttentionLayerMask`, one per layer. A manifest may hold any value of 0..255.
enum class LayerKind : uint8_t {
  kSlidingWindow = 0,
  kFullAttention = 1,
  kGatedDeltaNet = 2,
  kCompressedSparse = 3,   // CSA
  kHeavilyCompressed = 4,  // HCA
};

// Names are the manifest's in snake_case. The base fields are always present; for the extension
// fields the initial value is what a reader substitutes when the field is absent.
struct ArchConfig {
  // Base.
  int64_t hidden_size = 0;
  int64_t ffn_intermediate = 0;  // width of the shared or dense feed-forward
  int64_t moe_intermediate_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t num_full_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t full_head_dim = 0;
  int64_t vocab_size = 0;
  int64_t sliding_window = 0;
  double final_logit_softcap = 0;
  double rope_theta = 0;
  double full_rope_theta = 0;
  double partial_rotary_factor = 0;
  int64_t num_layers = 0;
  int64_t num_experts = 0;
  int64_t top_k_experts = 0;
  bool tie_word_embeddings = false;
  bool attention_k_eq_v = false;
  std::string hidden_activation;
  std::vector<LayerKind> layer_kinds;  // `fullAttentionLayerMask`, [num_layers]

  // Extensions of the families after Gemma 4.
  Family family = Family::kGemma4;
  bool attn_output_gate = false;
  double attention_scale = 1.0;
  bool embedding_scaled_by_sqrt_hidden = true;
  bool router_scaled = true;
  bool ffn_sandwich_norms = true;
  bool shared_expert_gated = false;
  bool rope_neox_subdim = false;
  int64_t linear_num_k_heads = 0;
  int64_t linear_num_v_heads = 0;
  int64_t linear_key_head_dim = 0;
  int64_t linear_value_head_dim = 0;
  int64_t linear_conv_kernel_size = 0;
  // DeepSeek: compressed attention, hyper-connections, hash routing.
  int64_t ca_q_lora_rank = 0;
  int64_t ca_o_lora_rank = 0;
  int64_t ca_o_groups = 0;
  int64_t ca_rope_head_dim = 0;
  int64_t ca_index_n_heads = 0;
  int64_t ca_index_head_dim = 0;
  int64_t ca_index_top_k = 0;
  int64_t ca_csa_compress_rate = 0;
  int64_t ca_hca_compress_rate = 0;
  double ca_compress_rope_theta = 0;
  double ca_rope_scaling_factor = 0;
  int64_t ca_rope_scaling_original_max = 0;
  double ca_rope_scaling_beta_fast = 0;
  double ca_rope_scaling_beta_slow = 0;
  int64_t hc_mult = 0;
  int64_t hc_sinkhorn_iters = 0;
  double hc_eps = 0;
  int64_t num_hash_routed_layers = 0;
  // Routers and experts.
  std::string router_scoring_func = "softmax";
  double routed_scaling_factor = 1.0;
  double swiglu_limit = 0.0;
  // Inkling: relative attention logits, short convolutions, sinks.
  int64_t rel_d_rel = 0;
  int64_t rel_extent = 0;
  int64_t rel_proj_dim = 0;
  int64_t rel_log_scaling_floor = 0;
  double rel_log_scaling_alpha = 0.0;
  int64_t sconv_kernel_size = 0;
  int64_t num_shared_experts = 1;
  int64_t num_dense_layers = 0;  // the first so many layers have no routed experts
  int64_t dense_intermediate_size = 0;
  bool shared_expert_sink = false;
  bool embed_norm_enabled = false;
  double logits_width_multiplier = 1.0;
  bool router_gate_bias = false;
  bool router_norm_after_top_k = false;
  bool router_global_scale = false;
  int64_t unpadded_vocab_size = 0;
};

// A bit per family.
using FamilySet = uint8_t;
constexpr FamilySet Only(Family family) { return static_cast<FamilySet>(1U << unsigned(family)); }

struct ArchField {
  using Member = std::variant<int64_t ArchConfig::*, double ArchConfig::*, bool ArchConfig::*,
                              std::string ArchConfig::*, Family ArchConfig::*,
                              std::vector<LayerKind> ArchConfig::*>;

  const char* name;    // in the manifest
  Member member;       // the type is the member's
  FamilySet written;   // families whose manifests carry it
  FamilySet required;  // families whose manifests are refused without it
};

// Every field, base fields first, in the order they are written.
std::span<const ArchField> ArchFields();

// What was read, and which table fields were not there (names from `ArchFields`).
struct ParsedArch {
  ArchConfig config;
  std::vector<std::string_view> omitted;
};

// Reads `$.arch`. A missing base field or a wrong type is the reader's error; an unknown family is
// kUnknownFamily; unknown fields are ignored.
ParsedArch ParseArch(const JsonReader& arch);

// Writes the object: base fields and those that the family's manifests carry.
void WriteArch(const ArchConfig& arch, JsonWriter& json);

// Throws kArchMismatch naming the first field that differs, with both values, or the first one that
// the family requires and `found` omitted. Doubles must be equal to the last bit.
void CheckArch(const ParsedArch& found, const ArchConfig& expected, const std::string& name);

bool operator==(const ArchConfig& a, const ArchConfig& b);

}  // namespace mference
