// Inkling-Small's config.json (family specification, section 1).
#include "model/inkling/config.h"

#include "model/config_fields.h"

namespace mference::inkling {
namespace {

struct Widths {
  int64_t expert = 0;
  int64_t dense = 0;
};

// The published config calls the expert width `intermediate_size`; re-saved ones call it
// `moe_intermediate_size` and may use `intermediate_size` for the dense layers.
Widths ReadWidths(const JsonReader& text) {
  const bool renamed = text.Has("moe_intermediate_size");
  const char* dense_key = text.Has("dense_intermediate_size") || !renamed
                              ? "dense_intermediate_size"
                              : "intermediate_size";
  return {.expert = ReadDimension(text, renamed ? "moe_intermediate_size" : "intermediate_size"),
          .dense = ReadDimension(text, dense_key)};
}

std::vector<LayerKind> ReadLayerKinds(const JsonReader& text, int64_t layers) {
  std::vector<LayerKind> kinds(static_cast<size_t>(layers), LayerKind::kFullAttention);
  const JsonReader local = text.At("local_layer_ids");
  const std::vector<int64_t> ids = local.IntArray();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= layers) {
      local.At(i).FailHere(fmt::format("expected 0 to {}, found {}", layers - 1, ids[i]));
    }
    kinds[static_cast<size_t>(ids[i])] = LayerKind::kSlidingWindow;
  }
  return kinds;
}

}  // namespace

ArchConfig DeriveArch(const JsonReader& config) {
  const JsonReader text = TextConfig(config);
  for (const char* flag : {"use_sconv", "use_embed_norm", "use_gate_bias", "norm_after_topk",
                           "use_global_scale", "shared_expert_sink"}) {
    RequirePresent(text, flag, true);
  }
  RequirePresent(text, "gate_activation", "sigmoid");
  for (const char* flag : {"q_bias", "o_bias", "tie_word_embeddings"}) {
    RequireValue(text, flag, false);
  }
  if (text.Has("final_logit_softcapping")) {
    text.At("final_logit_softcapping").FailHere("only null is supported");
  }

  const int64_t layers = ReadDimension(text, "num_hidden_layers");
  const int64_t heads = ReadDimension(text, "num_attention_heads");
  const int64_t kv_heads = ReadDimension(text, "num_key_value_heads");
  const int64_t head_dim = ReadDimension(text, "head_dim");
  RequireValue(text, "swa_num_attention_heads", heads);
  RequireValue(text, "swa_num_key_value_heads", kv_heads);
  RequireValue(text, "swa_head_dim", head_dim);
  const Widths widths = ReadWidths(text);
  const int64_t rel_dim = ReadDimension(text, "d_rel");
  ArchConfig arch{
      .hidden_size = ReadDimension(text, "hidden_size"),
      .ffn_intermediate = widths.expert,  // shared experts are as wide as routed ones
      .moe_intermediate_size = widths.expert,
      .num_heads = heads,
      .num_kv_heads = kv_heads,
      .num_full_kv_heads = kv_heads,
      .head_dim = head_dim,
      .full_head_dim = head_dim,
      .vocab_size = ReadDimension(text, "vocab_size"),
      .sliding_window = ReadDimension(text, "sliding_window_size"),
      .num_layers = layers,
      .num_experts = ReadDimension(text, "n_routed_experts"),
      .top_k_experts = ReadDimension(text, "num_experts_per_tok"),
      .hidden_activation = "silu",
      .layer_kinds = ReadLayerKinds(text, layers),
      .family = Family::kInklingSmall,
      // Not its square root: q and k are RMS-normalised per head.
      .attention_scale = 1.0 / static_cast<double>(head_dim),
      .embedding_scaled_by_sqrt_hidden = false,
      .router_scaled = false,
      .ffn_sandwich_norms = false,
      .router_scoring_func = "sigmoid",
      .routed_scaling_factor = text.At("route_scale").Double(),
      .rel_d_rel = rel_dim,
      .rel_extent = ReadDimension(text, "rel_extent"),
      .rel_proj_dim = heads * rel_dim,
      .rel_log_scaling_floor = ReadDimension(text, "log_scaling_n_floor"),
      .rel_log_scaling_alpha = text.At("log_scaling_alpha").Double(),
      .sconv_kernel_size = ReadDimension(text, "sconv_kernel_size"),
      .num_shared_experts = ReadDimension(text, "n_shared_experts"),
      .num_dense_layers = ReadCount(text, "dense_mlp_idx"),
      .dense_intermediate_size = widths.dense,
      .shared_expert_sink = true,
      .embed_norm_enabled = true,
      .logits_width_multiplier = text.At("logits_mup_width_multiplier").Double(),
      .router_gate_bias = true,
      .router_norm_after_top_k = true,
      .router_global_scale = true,
      .unpadded_vocab_size = ReadDimension(text, "unpadded_vocab_size"),
  };
  RequireSoundArch(arch, text);
  if (arch.num_dense_layers >= layers) {
    text.At("dense_mlp_idx").FailHere("no layer would have routed experts");
  }
  if (arch.unpadded_vocab_size > arch.vocab_size) {
    text.At("unpadded_vocab_size").FailHere("larger than vocab_size");
  }
  return arch;
}

}  // namespace mference::inkling
