// Qwen 3.6's tensors in the canonical order (gturbo-format 3.4; shapes 3.5).
#include "model/qwen36/tensor_order.h"

namespace mference::qwen36 {
namespace {

void FullAttention(const ArchConfig& arch, TensorListBuilder& list) {
  const int64_t query = arch.num_heads * arch.head_dim;
  const int64_t key = arch.num_kv_heads * arch.head_dim;
  // Query then gate, for each head.
  list.Affine("self_attn.q_proj", {2 * query, arch.hidden_size}, QuantRole::kAttention);
  list.Affine("self_attn.k_proj", {key, arch.hidden_size});
  list.Affine("self_attn.v_proj", {key, arch.hidden_size});
  list.Affine("self_attn.o_proj", {arch.hidden_size, query});
  list.Norm("self_attn.q_norm", arch.head_dim);
  list.Norm("self_attn.k_norm", arch.head_dim);
}

void LinearAttention(const ArchConfig& arch, TensorListBuilder& list) {
  const int64_t key = arch.linear_num_k_heads * arch.linear_key_head_dim;
  const int64_t value = arch.linear_num_v_heads * arch.linear_value_head_dim;
  const int64_t mixed = 2 * key + value;
  list.Affine("linear_attn.in_proj_qkv", {mixed, arch.hidden_size}, QuantRole::kAttention);
  list.Affine("linear_attn.in_proj_z", {value, arch.hidden_size});
  list.Affine("linear_attn.in_proj_a", {arch.linear_num_v_heads, arch.hidden_size});
  list.Affine("linear_attn.in_proj_b", {arch.linear_num_v_heads, arch.hidden_size});
  list.Plain("linear_attn.conv1d.weight", {mixed, arch.linear_conv_kernel_size, 1});
  // Conversions that leave the decay alone keep it in FP32.
  list.Plain("linear_attn.A_log", {arch.linear_num_v_heads}, Storage::kBf16OrF32);
  list.Plain("linear_attn.dt_bias", {arch.linear_num_v_heads}, Storage::kBf16OrF32);
  list.Norm("linear_attn.norm", arch.linear_value_head_dim);
  list.Affine("linear_attn.out_proj", {arch.hidden_size, value});
}

}  // namespace

std::vector<TensorSpec> ResidentTensors(const ArchConfig& arch) {
  const int64_t hidden = arch.hidden_size;
  TensorListBuilder list;
  list.Section(TensorGroup::kEmbedding, "language_model.model.");
  list.Affine("embed_tokens", {arch.vocab_size, hidden}, QuantRole::kEmbedding);

  for (int64_t layer = 0; layer < arch.num_layers; ++layer) {
    list.Section(TensorGroup::kLayer, fmt::format("language_model.model.layers.{}.", layer), layer);
    if (arch.layer_kinds[static_cast<size_t>(layer)] == LayerKind::kFullAttention) {
      FullAttention(arch, list);
    } else {
      LinearAttention(arch, list);
    }
    list.Affine("mlp.gate", {arch.num_experts, hidden}, QuantRole::kRouter);
    list.Affine("mlp.shared_expert_gate", {1, hidden});
    list.Affine("mlp.shared_expert.gate_proj", {arch.ffn_intermediate, hidden},
                QuantRole::kSharedExpert);
    list.Affine("mlp.shared_expert.up_proj", {arch.ffn_intermediate, hidden});
    list.Affine("mlp.shared_expert.down_proj", {hidden, arch.ffn_intermediate});
    list.Norm("input_layernorm", hidden);
    list.Norm("post_attention_layernorm", hidden);
  }

  list.Section(TensorGroup::kFinalNorm, "language_model.model.");
  list.Norm("norm", hidden);
  list.Section(TensorGroup::kHead, "language_model.");
  list.Affine("lm_head", {arch.vocab_size, hidden});
  return list.Take();
}

}  // namespace mference::qwen36

namespace mference {
namespace {

// `mtp.` is a draft head that some conversions keep; nothing here runs it.
constexpr std::string_view kExcluded[] = {"vision_tower.", "model.visual.", "mtp.",
                                          "language_model.mtp."};

}  // namespace

const CheckpointSchema& Qwen36Schema() {
  static constexpr CheckpointSchema kSchema{
      .family = Family::kQwen36,
      .key = "qwen36",
      .model_type = "qwen3_5_moe",
      .derive_arch = qwen36::DeriveArch,
      .resident_tensors = qwen36::ResidentTensors,
      .prefix = "language_model.",
      .layers_prefix = "language_model.model.layers.",
      .routed_prefix = "mlp.switch_mlp.",
      .outside_prefix = {},
      .excluded = kExcluded,
  };
  return kSchema;
}

}  // namespace mference
