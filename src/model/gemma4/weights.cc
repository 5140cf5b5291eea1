#include "model/gemma4/weights.h"

#include <cmath>
#include <string>

#include "model/layer_loader.h"

namespace mference::gemma4 {
namespace {

// theta = position * base^(-2 i / head_dim) for the first `rotated` pairs. On full layers the
// divisor is the whole head although only a quarter of its pairs rotates.
std::vector<double> RopeFrequencies(double base, int32_t head_dim, int32_t rotated) {
  std::vector<double> frequencies;
  for (int32_t i = 0; i < rotated; ++i) frequencies.push_back(std::pow(base, -2.0 * i / head_dim));
  return frequencies;
}

void LoadAttention(const LayerLoader& load, LayerWeights& layer) {
  const AttentionSpec& spec = layer.attention;
  const int32_t query_cols = spec.heads * spec.head_dim;
  const int32_t kv_cols = spec.kv_heads * spec.head_dim;
  layer.input_norm = load.HiddenNorm("input_layernorm");
  layer.q_proj = load.FromHidden("self_attn.q_proj", query_cols);
  layer.k_proj = load.FromHidden("self_attn.k_proj", kv_cols);
  if (!layer.shares_key_projection) {
    layer.v_proj = load.FromHidden("self_attn.v_proj", kv_cols);
  }
  layer.o_proj = load.ToHidden("self_attn.o_proj", query_cols);
  layer.q_norm = load.Norm("self_attn.q_norm", spec.head_dim);
  layer.k_norm = load.Norm("self_attn.k_norm", spec.head_dim);
  layer.post_attention_norm = load.HiddenNorm("post_attention_layernorm");
}

void LoadFeedForward(const Gemma4Config& config, const ResidentWeights& resident, Backend& backend,
                     const LayerLoader& load, LayerWeights& layer) {
  const int32_t hidden = config.hidden_size;
  layer.router_norm =
      load.Plain("router.scale", hidden, 1.0f / std::sqrt(static_cast<float>(hidden)));
  layer.router = {.experts = backend.LoadExpertLayer(resident.Experts(
                      layer.index, hidden, config.expert_ffn_size, Activation::kGeluTanh)),
                  .projection = load.FromHidden("router.proj", config.experts),
                  .top_k = config.top_k,
                  .per_expert_scale = load.Plain("router.per_expert_scale", config.experts)};
  layer.pre_dense_norm = load.HiddenNorm("pre_feedforward_layernorm");
  layer.gate_proj = load.FromHidden("mlp.gate_proj", config.ffn_size);
  layer.up_proj = load.FromHidden("mlp.up_proj", config.ffn_size);
  layer.down_proj = load.ToHidden("mlp.down_proj", config.ffn_size);
  layer.post_dense_norm = load.HiddenNorm("post_feedforward_layernorm_1");
  layer.pre_routed_norm = load.HiddenNorm("pre_feedforward_layernorm_2");
  layer.post_routed_norm = load.HiddenNorm("post_feedforward_layernorm_2");
  layer.post_feedforward_norm = load.HiddenNorm("post_feedforward_layernorm");
  layer.scalar = load.Scalar("layer_scalar");
}

}  // namespace

Gemma4Config ReadConfig(const ArchConfig& arch, const JsonReader& config) {
  const auto dimension = [](int64_t value) { return static_cast<int32_t>(value); };
  const JsonReader text = config.At("text_config");
  Gemma4Config result{.hidden_size = dimension(arch.hidden_size),
                      .ffn_size = dimension(arch.ffn_intermediate),
                      .expert_ffn_size = dimension(arch.moe_intermediate_size),
                      .vocab_size = dimension(arch.vocab_size),
                      .heads = dimension(arch.num_heads),
                      .sliding_kv_heads = dimension(arch.num_kv_heads),
                      .full_kv_heads = dimension(arch.num_full_kv_heads),
                      .sliding_head_dim = dimension(arch.head_dim),
                      .full_head_dim = dimension(arch.full_head_dim),
                      .experts = dimension(arch.num_experts),
                      .top_k = dimension(arch.top_k_experts),
                      .sliding_window = dimension(arch.sliding_window),
                      .norm_eps = static_cast<float>(text.At("rms_norm_eps").Double()),
                      .soft_cap = static_cast<float>(arch.final_logit_softcap),
                      .embedding_scale = std::sqrt(static_cast<float>(arch.hidden_size)),
                      .sliding_rope_base = arch.rope_theta,
                      .full_rope_base = arch.full_rope_theta,
                      .full_rotary_factor = arch.partial_rotary_factor};
  for (const LayerKind kind : arch.layer_kinds) {
    result.full_layers.push_back(kind == LayerKind::kFullAttention);
  }
  return result;
}

ModelWeights LoadWeights(const Gemma4Config& config, const ResidentWeights& resident,
                         Backend& backend, ElementType kv_type, StateLayout& state_layout) {
  ModelWeights weights;
  weights.embedding = backend.LoadMatrix(resident.Matrix("language_model.model.embed_tokens.weight",
                                                         config.vocab_size, config.hidden_size),
                                         MatrixInput::kNormed);
  weights.final_norm =
      backend.LoadVector(resident.Vector("language_model.model.norm.weight", config.hidden_size));

  const RopeTable sliding_rope =
      backend.LoadRope(RopeFrequencies(config.sliding_rope_base, config.sliding_head_dim,
                                       config.sliding_head_dim / 2),
                       config.sliding_head_dim);
  const auto rotated = static_cast<int32_t>(config.full_head_dim * config.full_rotary_factor / 2);
  const RopeTable full_rope = backend.LoadRope(
      RopeFrequencies(config.full_rope_base, config.full_head_dim, rotated), config.full_head_dim);

  const int64_t element_bytes = kv_type == ElementType::kF16 ? 2 : 4;
  for (size_t i = 0; i < config.full_layers.size(); ++i) {
    const bool full = config.full_layers[i];
    LayerWeights layer;
    layer.index = static_cast<int32_t>(i);
    layer.shares_key_projection = full;
    layer.rope = full ? full_rope : sliding_rope;
    layer.attention = {.heads = config.heads,
                       .kv_heads = full ? config.full_kv_heads : config.sliding_kv_heads,
                       .head_dim = full ? config.full_head_dim : config.sliding_head_dim,
                       .scale = 1.0f,
                       .window = full ? 0 : config.sliding_window};
    const int64_t row_bytes =
        int64_t{layer.attention.kv_heads} * layer.attention.head_dim * element_bytes;
    const auto add_block = [&](const char* what) {
      const std::string name = fmt::format("layer {} {}", i, what);
      return full ? state_layout.AddAppend(name, row_bytes)
                  : state_layout.AddRing(name, row_bytes, config.sliding_window,
                                         config.sliding_window + kRingSlackRows);
    };
    layer.attention.keys = add_block("keys");
    layer.attention.values = add_block("values");

    const LayerLoader load(resident, backend, config.hidden_size, layer.index);
    LoadAttention(load, layer);
    LoadFeedForward(config, resident, backend, load, layer);
    weights.layers.push_back(layer);
  }
  return weights;
}

}  // namespace mference::gemma4
