// Gemma 4's tensors in the canonical order (gturbo-format 3.4; shapes 3.5).
#include "model/gemma4/tensor_order.h"

namespace mference::gemma4 {

std::vector<TensorSpec> ResidentTensors(const ArchConfig& arch) {
  const int64_t hidden = arch.hidden_size;
  TensorListBuilder list;
  list.Section(TensorGroup::kEmbedding, "language_model.model.");
  list.Affine("embed_tokens", {arch.vocab_size, hidden}, QuantRole::kEmbedding);

  for (int64_t layer = 0; layer < arch.num_layers; ++layer) {
    const bool full = arch.layer_kinds[static_cast<size_t>(layer)] == LayerKind::kFullAttention;
    const int64_t head_dim = full ? arch.full_head_dim : arch.head_dim;
    const int64_t query = arch.num_heads * head_dim;
    const int64_t key = (full ? arch.num_full_kv_heads : arch.num_kv_heads) * head_dim;

    list.Section(TensorGroup::kLayer, fmt::format("language_model.model.layers.{}.", layer), layer);
    list.Affine("self_attn.q_proj", {query, hidden}, QuantRole::kAttention);
    list.Affine("self_attn.k_proj", {key, hidden});
    // On full-attention layers the K projection feeds V too.
    if (!full) list.Affine("self_attn.v_proj", {key, hidden});
    list.Affine("self_attn.o_proj", {hidden, query});
    list.Norm("self_attn.q_norm", head_dim);
    list.Norm("self_attn.k_norm", head_dim);
    list.Affine("router.proj", {arch.num_experts, hidden}, QuantRole::kRouter);
    list.Plain("router.scale", {hidden});
    list.Plain("router.per_expert_scale", {arch.num_experts});
    list.Affine("mlp.gate_proj", {arch.ffn_intermediate, hidden}, QuantRole::kSharedExpert);
    list.Affine("mlp.up_proj", {arch.ffn_intermediate, hidden});
    list.Affine("mlp.down_proj", {hidden, arch.ffn_intermediate});
    list.Norm("input_layernorm", hidden);
    list.Norm("post_attention_layernorm", hidden);
    list.Norm("pre_feedforward_layernorm", hidden);
    list.Norm("pre_feedforward_layernorm_2", hidden);
    list.Norm("post_feedforward_layernorm", hidden);
    list.Norm("post_feedforward_layernorm_1", hidden);
    list.Norm("post_feedforward_layernorm_2", hidden);
    list.Plain("layer_scalar", {1});
  }

  list.Section(TensorGroup::kFinalNorm, "language_model.model.");
  list.Norm("norm", hidden);
  return list.Take();
}

}  // namespace mference::gemma4

namespace mference {
namespace {

constexpr std::string_view kExcluded[] = {"vision_tower.", "embed_vision.", "audio_tower."};

}  // namespace

const CheckpointSchema& Gemma4Schema() {
  static constexpr CheckpointSchema kSchema{
      .family = Family::kGemma4,
      .key = "gemma4",
      .model_type = "gemma4",
      .derive_arch = gemma4::DeriveArch,
      .resident_tensors = gemma4::ResidentTensors,
      .prefix = "language_model.",
      .layers_prefix = "language_model.model.layers.",
      .routed_prefix = "experts.switch_glu.",
      .outside_prefix = {},
      .excluded = kExcluded,
  };
  return kSchema;
}

}  // namespace mference
