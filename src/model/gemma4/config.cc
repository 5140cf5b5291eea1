// Gemma 4's config.json (family specification, section 1.1).
#include "model/gemma4/config.h"

#include "model/config_fields.h"

namespace mference::gemma4 {

ArchConfig DeriveArch(const JsonReader& config) {
  const JsonReader text = TextConfig(config);
  // Each of these changes the arithmetic; the forward pass has one form of it.
  RequirePresent(text, "hidden_activation", "gelu_pytorch_tanh");
  RequirePresent(text, "attention_k_eq_v", true);
  RequirePresent(text, "enable_moe_block", true);
  RequireValue(text, "num_kv_shared_layers", 0);
  RequireValue(text, "hidden_size_per_layer_input", 0);
  RequireValue(text, "attention_bias", false);
  RequireValue(text, "use_double_wide_mlp", false);
  RequirePresent(text, "tie_word_embeddings", true);

  const JsonReader rope = text.At("rope_parameters");
  const JsonReader sliding_rope = rope.At("sliding_attention");
  const JsonReader full_rope = rope.At("full_attention");
  RequirePresent(sliding_rope, "rope_type", "default");
  RequirePresent(full_rope, "rope_type", "proportional");

  const int64_t layers = ReadDimension(text, "num_hidden_layers");
  ArchConfig arch{
      .hidden_size = ReadDimension(text, "hidden_size"),
      .ffn_intermediate = ReadDimension(text, "intermediate_size"),
      .moe_intermediate_size = ReadDimension(text, "moe_intermediate_size"),
      .num_heads = ReadDimension(text, "num_attention_heads"),
      .num_kv_heads = ReadDimension(text, "num_key_value_heads"),
      .num_full_kv_heads = ReadDimension(text, "num_global_key_value_heads"),
      .head_dim = ReadDimension(text, "head_dim"),
      .full_head_dim = ReadDimension(text, "global_head_dim"),
      .vocab_size = ReadDimension(text, "vocab_size"),
      .sliding_window = ReadDimension(text, "sliding_window"),
      .final_logit_softcap = text.At("final_logit_softcapping").Double(),
      .rope_theta = sliding_rope.At("rope_theta").Double(),
      .full_rope_theta = full_rope.At("rope_theta").Double(),
      .partial_rotary_factor = full_rope.At("partial_rotary_factor").Double(),
      .num_layers = layers,
      .num_experts = ReadDimension(text, "num_experts"),
      .top_k_experts = ReadDimension(text, "top_k_experts"),
      .tie_word_embeddings = true,
      .attention_k_eq_v = true,
      .hidden_activation = "gelu_pytorch_tanh",
      .layer_kinds = ReadLayerTypes(text, layers,
                                    {{"sliding_attention", LayerKind::kSlidingWindow},
                                     {"full_attention", LayerKind::kFullAttention}}),
  };
  RequireSoundArch(arch, text);
  return arch;
}

}  // namespace mference::gemma4
