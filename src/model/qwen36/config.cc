// Qwen 3.6's config.json (family specification, section 1.1). The release reuses the model type of
// Qwen 3.5's MoE architecture.
#include "model/qwen36/config.h"

#include <cmath>

#include "model/config_fields.h"

namespace mference::qwen36 {

ArchConfig DeriveArch(const JsonReader& config) {
  const JsonReader text = TextConfig(config);
  RequirePresent(text, "hidden_act", "silu");
  RequirePresent(text, "attn_output_gate", true);
  RequireValue(text, "attention_bias", false);
  RequireValue(text, "tie_word_embeddings", false);
  RequireValue(text, "norm_topk_prob", true);
  RequireValue(text, "output_gate_type", "swish");
  RequireValue(text, "mlp_only_layers", Json::array());

  const JsonReader rope = text.At("rope_parameters");
  RequirePresent(rope, "rope_type", "default");
  const double rope_theta = rope.At("rope_theta").Double();

  const int64_t layers = ReadDimension(text, "num_hidden_layers");
  const int64_t kv_heads = ReadDimension(text, "num_key_value_heads");
  const int64_t head_dim = ReadDimension(text, "head_dim");
  ArchConfig arch{
      .hidden_size = ReadDimension(text, "hidden_size"),
      .ffn_intermediate = ReadDimension(text, "shared_expert_intermediate_size"),
      .moe_intermediate_size = ReadDimension(text, "moe_intermediate_size"),
      .num_heads = ReadDimension(text, "num_attention_heads"),
      .num_kv_heads = kv_heads,
      .num_full_kv_heads = kv_heads,
      .head_dim = head_dim,
      .full_head_dim = head_dim,
      .vocab_size = ReadDimension(text, "vocab_size"),
      .rope_theta = rope_theta,
      .full_rope_theta = rope_theta,
      .partial_rotary_factor = rope.At("partial_rotary_factor").Double(),
      .num_layers = layers,
      .num_experts = ReadDimension(text, "num_experts"),
      .top_k_experts = ReadDimension(text, "num_experts_per_tok"),
      .hidden_activation = "silu",
      .layer_kinds = ReadLayerTypes(text, layers,
                                    {{"linear_attention", LayerKind::kGatedDeltaNet},
                                     {"full_attention", LayerKind::kFullAttention}}),
      .family = Family::kQwen36,
      .attn_output_gate = true,
      .attention_scale = 1.0 / std::sqrt(static_cast<double>(head_dim)),
      .embedding_scaled_by_sqrt_hidden = false,
      .router_scaled = false,
      .ffn_sandwich_norms = false,
      .shared_expert_gated = true,
      .rope_neox_subdim = true,
      .linear_num_k_heads = ReadDimension(text, "linear_num_key_heads"),
      .linear_num_v_heads = ReadDimension(text, "linear_num_value_heads"),
      .linear_key_head_dim = ReadDimension(text, "linear_key_head_dim"),
      .linear_value_head_dim = ReadDimension(text, "linear_value_head_dim"),
      .linear_conv_kernel_size = ReadDimension(text, "linear_conv_kernel_dim"),
  };
  RequireSoundArch(arch, text);
  if (arch.linear_num_v_heads % arch.linear_num_k_heads != 0) {
    text.At("linear_num_value_heads").FailHere("expected a multiple of linear_num_key_heads");
  }
  return arch;
}

}  // namespace mference::qwen36
