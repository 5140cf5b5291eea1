// DeepSeek-V4-Flash's tensors in the canonical order (gturbo-format 3.4; shapes 3.5).
#include "model/deepseek_v4/tensor_order.h"

namespace mference::deepseek_v4 {
namespace {

// Pools `rate` positions into one entry of `norm_width`. CSA projects two entries' worth: one that
// looks back a window and one that does not.
void Compressor(const std::string& prefix, int64_t rate, int64_t width, int64_t norm_width,
                int64_t hidden, TensorListBuilder& list) {
  list.Affine(prefix + "wkv", {width, hidden});
  list.Affine(prefix + "wgate", {width, hidden});
  list.Norm(prefix + "norm", norm_width);
  list.Plain(prefix + "ape", {rate, width});
}

void Attention(const ArchConfig& arch, LayerKind kind, TensorListBuilder& list) {
  const int64_t hidden = arch.hidden_size;
  const int64_t query = arch.num_heads * arch.head_dim;
  list.Affine("attn.wq_a", {arch.ca_q_lora_rank, hidden}, QuantRole::kAttention);
  list.Norm("attn.q_norm", arch.ca_q_lora_rank);
  list.Affine("attn.wq_b", {query, arch.ca_q_lora_rank});
  list.Affine("attn.wkv", {arch.head_dim, hidden});
  list.Norm("attn.kv_norm", arch.head_dim);
  list.Plain("attn.attn_sink", {arch.num_heads}, Storage::kF32);
  list.Affine("attn.wo_a", {arch.ca_o_groups * arch.ca_o_lora_rank, query / arch.ca_o_groups});
  list.Affine("attn.wo_b", {hidden, arch.ca_o_groups * arch.ca_o_lora_rank});
  if (kind == LayerKind::kHeavilyCompressed) {
    Compressor("attn.compressor.", arch.ca_hca_compress_rate, arch.head_dim, arch.head_dim, hidden,
               list);
  } else if (kind == LayerKind::kCompressedSparse) {
    const int64_t index_dim = arch.ca_index_head_dim;
    Compressor("attn.compressor.", arch.ca_csa_compress_rate, 2 * arch.head_dim, arch.head_dim,
               hidden, list);
    Compressor("attn.indexer.compressor.", arch.ca_csa_compress_rate, 2 * index_dim, index_dim,
               hidden, list);
    list.Affine("attn.indexer.wq_b", {arch.ca_index_n_heads * index_dim, arch.ca_q_lora_rank});
    list.Affine("attn.indexer.weights_proj", {arch.ca_index_n_heads, hidden});
  }
}

void FeedForward(const ArchConfig& arch, bool hash_routed, TensorListBuilder& list) {
  list.Plain("ffn.gate.weight", {arch.num_experts, arch.hidden_size});
  if (hash_routed) {
    list.Plain("ffn.gate.tid2eid", {arch.vocab_size, arch.top_k_experts}, Storage::kI64);
  } else {
    list.Plain("ffn.gate.e_score_correction_bias", {arch.num_experts}, Storage::kF32);
  }
  list.Affine("ffn.shared_experts.gate_proj", {arch.ffn_intermediate, arch.hidden_size},
              QuantRole::kSharedExpert);
  list.Affine("ffn.shared_experts.up_proj", {arch.ffn_intermediate, arch.hidden_size});
  list.Affine("ffn.shared_experts.down_proj", {arch.hidden_size, arch.ffn_intermediate});
}

// The mixer of `streams` residual streams around a sublayer: pre, post and combination weights.
void HyperConnection(const std::string& prefix, const ArchConfig& arch, TensorListBuilder& list) {
  const int64_t mixed = (2 + arch.hc_mult) * arch.hc_mult;
  list.Plain(prefix + "fn", {mixed, arch.hc_mult * arch.hidden_size}, Storage::kF32);
  list.Plain(prefix + "base", {mixed}, Storage::kF32);
  list.Plain(prefix + "scale", {3}, Storage::kF32);
}

}  // namespace

std::vector<TensorSpec> ResidentTensors(const ArchConfig& arch) {
  const int64_t hidden = arch.hidden_size;
  TensorListBuilder list;
  list.Section(TensorGroup::kEmbedding, "model.");
  list.Affine("embed_tokens", {arch.vocab_size, hidden}, QuantRole::kEmbedding);

  for (int64_t layer = 0; layer < arch.num_layers; ++layer) {
    list.Section(TensorGroup::kLayer, fmt::format("model.layers.{}.", layer), layer);
    Attention(arch, arch.layer_kinds[static_cast<size_t>(layer)], list);
    FeedForward(arch, layer < arch.num_hash_routed_layers, list);
    list.Norm("attn_norm", hidden);
    list.Norm("ffn_norm", hidden);
    HyperConnection("attn_hc.", arch, list);
    HyperConnection("ffn_hc.", arch, list);
  }

  list.Section(TensorGroup::kOther, "model.hc_head.");
  list.Plain("base", {arch.hc_mult}, Storage::kF32);
  list.Plain("fn", {arch.hc_mult, arch.hc_mult * hidden}, Storage::kF32);
  list.Plain("scale", {1}, Storage::kF32);
  list.Section(TensorGroup::kFinalNorm, "model.");
  list.Norm("norm", hidden);
  list.Section(TensorGroup::kHead, "");
  list.Affine("lm_head", {arch.vocab_size, hidden});
  return list.Take();
}

}  // namespace mference::deepseek_v4

namespace mference {
namespace {

constexpr std::string_view kOutsidePrefix[] = {"lm_head."};
constexpr std::string_view kExcluded[] = {"mtp.", "model.mtp."};

}  // namespace

const CheckpointSchema& DeepseekV4Schema() {
  static constexpr CheckpointSchema kSchema{
      .family = Family::kDeepseekV4Flash,
      .key = "deepseek_v4",
      .model_type = "deepseek_v4",
      .derive_arch = deepseek_v4::DeriveArch,
      .resident_tensors = deepseek_v4::ResidentTensors,
      .prefix = "model.",
      .layers_prefix = "model.layers.",
      .routed_prefix = "ffn.switch_mlp.",
      .outside_prefix = kOutsidePrefix,
      .excluded = kExcluded,
      .drops_extra_layers = true,
  };
  return kSchema;
}

}  // namespace mference
