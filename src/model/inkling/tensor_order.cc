// Inkling-Small's tensors in the canonical order (gturbo-format 3.4; shapes 3.5).
#include "model/inkling/tensor_order.h"

namespace mference::inkling {
namespace {

void Attention(const ArchConfig& arch, bool global, TensorListBuilder& list) {
  const int64_t hidden = arch.hidden_size;
  const int64_t query = arch.num_heads * arch.head_dim;
  const int64_t key = arch.num_kv_heads * arch.head_dim;
  list.Affine("attn.wq_du", {query, hidden}, QuantRole::kAttention);
  list.Affine("attn.wk_dv", {key, hidden});
  list.Affine("attn.wv_dv", {key, hidden});
  list.Affine("attn.wo_ud", {hidden, query});
  list.Affine("attn.wr_du", {arch.rel_proj_dim, hidden});
  list.Plain("attn.rel_logits_proj.proj",
             {arch.rel_d_rel, global ? arch.rel_extent : arch.sliding_window});
  list.Norm("attn.q_norm", arch.head_dim);
  list.Norm("attn.k_norm", arch.head_dim);
  list.Plain("attn.k_sconv.weight", {key, arch.sconv_kernel_size, 1});
  list.Plain("attn.v_sconv.weight", {key, arch.sconv_kernel_size, 1});
}

void DenseFeedForward(const ArchConfig& arch, TensorListBuilder& list) {
  list.Affine("mlp.gate_proj", {arch.dense_intermediate_size, arch.hidden_size});
  list.Affine("mlp.up_proj", {arch.dense_intermediate_size, arch.hidden_size});
  list.Affine("mlp.down_proj", {arch.hidden_size, arch.dense_intermediate_size});
  list.Plain("mlp.global_scale", {1});  // BF16, unlike the routers'
}

void RoutedFeedForward(const ArchConfig& arch, TensorListBuilder& list) {
  const int64_t shared = arch.num_shared_experts;
  // The last rows score the shared experts.
  list.Plain("mlp.gate.weight", {arch.num_experts + shared, arch.hidden_size});
  list.Plain("mlp.gate.bias", {arch.num_experts}, Storage::kF32);
  list.Plain("mlp.gate.global_scale", {1}, Storage::kF32);
  list.Affine("mlp.shared_experts.gate_proj", {shared, arch.ffn_intermediate, arch.hidden_size},
              QuantRole::kSharedExpert);
  list.Affine("mlp.shared_experts.up_proj", {shared, arch.ffn_intermediate, arch.hidden_size});
  list.Affine("mlp.shared_experts.down_proj", {shared, arch.hidden_size, arch.ffn_intermediate});
}

}  // namespace

std::vector<TensorSpec> ResidentTensors(const ArchConfig& arch) {
  const int64_t hidden = arch.hidden_size;
  TensorListBuilder list;
  list.Section(TensorGroup::kEmbedding, "model.llm.");
  list.Affine("embed", {arch.vocab_size, hidden}, QuantRole::kEmbedding);
  list.Norm("embed_norm", hidden);

  for (int64_t layer = 0; layer < arch.num_layers; ++layer) {
    list.Section(TensorGroup::kLayer, fmt::format("model.llm.layers.{}.", layer), layer);
    Attention(arch, arch.layer_kinds[static_cast<size_t>(layer)] == LayerKind::kFullAttention,
              list);
    if (layer < arch.num_dense_layers) {
      DenseFeedForward(arch, list);
    } else {
      RoutedFeedForward(arch, list);
    }
    list.Plain("attn_sconv.weight", {hidden, arch.sconv_kernel_size, 1});
    list.Plain("mlp_sconv.weight", {hidden, arch.sconv_kernel_size, 1});
    list.Norm("attn_norm", hidden);
    list.Norm("mlp_norm", hidden);
  }

  list.Section(TensorGroup::kFinalNorm, "model.llm.");
  list.Norm("norm", hidden);
  list.Section(TensorGroup::kHead, "model.llm.");
  list.Affine("unembed", {arch.vocab_size, hidden});
  return list.Take();
}

}  // namespace mference::inkling

namespace mference {
namespace {

constexpr std::string_view kExcluded[] = {"model.visual.", "model.audio."};

}  // namespace

const CheckpointSchema& InklingSchema() {
  static constexpr CheckpointSchema kSchema{
      .family = Family::kInklingSmall,
      .key = "inkling",
      .model_type = "inkling_mm_model",
      .derive_arch = inkling::DeriveArch,
      .resident_tensors = inkling::ResidentTensors,
      .prefix = "model.llm.",
      .layers_prefix = "model.llm.layers.",
      .routed_prefix = "mlp.experts.",
      .outside_prefix = {},
      .excluded = kExcluded,
  };
  return kSchema;
}

}  // namespace mference
