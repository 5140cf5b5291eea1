// Maple's config.json (family specification, section 1).
#include "model/maple/config.h"

#include <cmath>

#include "model/config_fields.h"

namespace mference::maple {
namespace {

// Not in config.json: the reference implementation clamps at this value.
constexpr double kSwigluLimit = 7.0;

}  // namespace

ArchConfig DeriveArch(const JsonReader& config) {
  RequirePresent(config, "hidden_act", "silu");
  RequirePresent(config, "use_qk_norm", true);
  RequirePresent(config, "norm_topk_prob", true);
  RequirePresent(config, "use_rmsnorm", true);
  RequirePresent(config, "use_bias", false);
  RequirePresent(config, "tie_word_embeddings", false);
  RequirePresent(config, "router_dtype", "fp32");
  RequirePresent(config, "num_shared_experts", 0);
  RequirePresent(config, "first_k_dense_replace", 0);
  if (config.Has("rope_scaling")) config.At("rope_scaling").FailHere("only null is supported");

  const int64_t layers = ReadDimension(config, "num_hidden_layers");
  const int64_t kv_heads = ReadDimension(config, "num_key_value_heads");
  const int64_t head_dim = ReadDimension(config, "head_dim");
  ArchConfig arch{
      .hidden_size = ReadDimension(config, "hidden_size"),
      // The format wants a shared width; no layer of this family uses one.
      .ffn_intermediate = ReadDimension(config, "moe_shared_expert_intermediate_size"),
      .moe_intermediate_size = ReadDimension(config, "moe_intermediate_size"),
      .num_heads = ReadDimension(config, "num_attention_heads"),
      .num_kv_heads = kv_heads,
      .num_full_kv_heads = kv_heads,
      .head_dim = head_dim,
      .full_head_dim = head_dim,
      .vocab_size = ReadDimension(config, "vocab_size"),
      .sliding_window = ReadDimension(config, "sliding_window"),
      .rope_theta = config.At("rope_theta").Double(),
      .partial_rotary_factor = config.At("partial_rotary_factor").Double(),
      .num_layers = layers,
      .num_experts = ReadDimension(config, "num_experts"),
      .top_k_experts = ReadDimension(config, "num_experts_per_tok"),
      .hidden_activation = "silu",
      .layer_kinds = ReadLayerTypes(config, layers,
                                    {{"sliding_attention", LayerKind::kSlidingWindow},
                                     {"full_attention", LayerKind::kFullAttention}}),
      .family = Family::kMaple,
      .attention_scale = 1.0 / std::sqrt(static_cast<double>(head_dim)),
      .embedding_scaled_by_sqrt_hidden = false,
      .router_scaled = false,
      .ffn_sandwich_norms = false,
      .rope_neox_subdim = true,
      .swiglu_limit = kSwigluLimit,
      .num_shared_experts = 0,
      .router_norm_after_top_k = true,
  };
  RequireSoundArch(arch, config);
  return arch;
}

}  // namespace mference::maple
