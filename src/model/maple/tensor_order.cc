// Maple's tensors in the canonical order (gturbo-format 3.4; shapes 3.5). The approximate head's
// tensors come from a file of their own and are not listed: they are optional.
#include "model/maple/tensor_order.h"

namespace mference::maple {

std::vector<TensorSpec> ResidentTensors(const ArchConfig& arch) {
  const int64_t hidden = arch.hidden_size;
  const int64_t query = arch.num_heads * arch.head_dim;
  const int64_t key = arch.num_kv_heads * arch.head_dim;
  TensorListBuilder list;
  list.Section(TensorGroup::kEmbedding, "model.");
  list.Affine("word_embeddings", {arch.vocab_size, hidden}, QuantRole::kEmbedding);

  for (int64_t layer = 0; layer < arch.num_layers; ++layer) {
    list.Section(TensorGroup::kLayer, fmt::format("model.layers.{}.", layer), layer);
    list.Ternary("self_attn.q_proj", {query, hidden}, QuantRole::kAttention);
    list.Ternary("self_attn.k_proj", {key, hidden});
    list.Ternary("self_attn.v_proj", {key, hidden});
    list.Ternary("self_attn.o_proj", {hidden, query});
    list.Norm("self_attn.q_norm", arch.head_dim);
    list.Norm("self_attn.k_norm", arch.head_dim);
    list.Plain("mlp.gate.weight", {arch.num_experts, hidden});
    list.Norm("input_layernorm", hidden);
    list.Norm("post_attention_layernorm", hidden);
  }

  list.Section(TensorGroup::kFinalNorm, "model.");
  list.Norm("norm", hidden);
  list.Section(TensorGroup::kHead, "");
  list.Affine("lm_head", {arch.vocab_size, hidden});
  return list.Take();
}

}  // namespace mference::maple

namespace mference {
namespace {

constexpr std::string_view kOutsidePrefix[] = {"lm_head."};
constexpr std::string_view kExcluded[] = {"lm_head_flash."};

}  // namespace

const CheckpointSchema& MapleSchema() {
  static constexpr CheckpointSchema kSchema{
      .family = Family::kMaple,
      .key = "maple",
      .model_type = "maple",
      .derive_arch = maple::DeriveArch,
      .resident_tensors = maple::ResidentTensors,
      .prefix = "model.",
      .layers_prefix = "model.layers.",
      .routed_prefix = "mlp.switch_mlp.",
      .routed_storage = Storage::kTernary,
      .outside_prefix = kOutsidePrefix,
      .excluded = kExcluded,
  };
  return kSchema;
}

}  // namespace mference
