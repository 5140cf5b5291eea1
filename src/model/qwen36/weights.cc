#include "model/qwen36/weights.h"

#include <cmath>
#include <string>

#include "model/layer_loader.h"

namespace mference::qwen36 {
namespace {

int64_t ElementBytes(ElementType type) { return type == ElementType::kF16 ? 2 : 4; }

// theta = position * base^(-2 i / rotary_dim). The multimodal sections of the published rotary
// embedding share one position for text, which makes them this plain rule.
std::vector<double> RopeFrequencies(double base, int32_t rotary_dim) {
  std::vector<double> frequencies;
  for (int32_t i = 0; i < rotary_dim / 2; ++i) {
    frequencies.push_back(std::pow(base, -2.0 * i / rotary_dim));
  }
  return frequencies;
}

AttentionWeights LoadAttention(const Qwen36Config& config, const LayerLoader& load, RopeTable rope,
                               ElementType kv_type, int32_t index, StateLayout& state_layout) {
  const int32_t query_cols = config.heads * config.head_dim;
  const int32_t kv_cols = config.kv_heads * config.head_dim;
  const int64_t row_bytes = kv_cols * ElementBytes(kv_type);
  return {
      .q_proj = load.FromHidden("self_attn.q_proj", 2 * query_cols),
      .k_proj = load.FromHidden("self_attn.k_proj", kv_cols),
      .v_proj = load.FromHidden("self_attn.v_proj", kv_cols),
      .o_proj = load.ToHidden("self_attn.o_proj", query_cols),
      .q_norm = load.Norm("self_attn.q_norm", config.head_dim),
      .k_norm = load.Norm("self_attn.k_norm", config.head_dim),
      .rope = rope,
      .spec = {.heads = config.heads,
               .kv_heads = config.kv_heads,
               .head_dim = config.head_dim,
               .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
               .keys = state_layout.AddAppend(fmt::format("layer {} keys", index), row_bytes),
               .values = state_layout.AddAppend(fmt::format("layer {} values", index), row_bytes)}};
}

DeltaNetWeights LoadDeltaNet(const Qwen36Config& config, const LayerLoader& load,
                             ElementType kv_type, int32_t index, StateLayout& state_layout) {
  const int32_t value_cols = config.value_heads * config.value_dim;
  const int32_t channels = 2 * config.key_heads * config.key_dim + value_cols;
  const int64_t tail_bytes = (config.conv_taps - 1) * channels * ElementBytes(kv_type);
  const int64_t state_bytes = int64_t{4} * config.value_heads * config.value_dim * config.key_dim;
  return {.qkv_proj = load.FromHidden("linear_attn.in_proj_qkv", channels),
          .z_proj = load.FromHidden("linear_attn.in_proj_z", value_cols),
          .a_proj = load.FromHidden("linear_attn.in_proj_a", config.value_heads),
          .b_proj = load.FromHidden("linear_attn.in_proj_b", config.value_heads),
          .out_proj = load.ToHidden("linear_attn.out_proj", value_cols),
          .norm = load.Norm("linear_attn.norm", config.value_dim),
          .convolution = {.weights = load.Flat("linear_attn.conv1d.weight",
                                               {channels, config.conv_taps, 1}),
                          .taps = config.conv_taps,
                          .tail = state_layout.AddFixed(
                              fmt::format("layer {} convolution tail", index), tail_bytes)},
          .spec = {.key_heads = config.key_heads,
                   .value_heads = config.value_heads,
                   .key_dim = config.key_dim,
                   .value_dim = config.value_dim,
                   .a_log = load.Plain("linear_attn.A_log", config.value_heads),
                   .dt_bias = load.Plain("linear_attn.dt_bias", config.value_heads),
                   .state = state_layout.AddFixed(fmt::format("layer {} delta state", index),
                                                  state_bytes)}};
}

}  // namespace

Qwen36Config ReadConfig(const ArchConfig& arch, const JsonReader& config) {
  const auto dimension = [](int64_t value) { return static_cast<int32_t>(value); };
  const JsonReader text = config.At("text_config");
  Qwen36Config result{.hidden_size = dimension(arch.hidden_size),
                      .vocab_size = dimension(arch.vocab_size),
                      .shared_ffn_size = dimension(arch.ffn_intermediate),
                      .expert_ffn_size = dimension(arch.moe_intermediate_size),
                      .experts = dimension(arch.num_experts),
                      .top_k = dimension(arch.top_k_experts),
                      .heads = dimension(arch.num_heads),
                      .kv_heads = dimension(arch.num_kv_heads),
                      .head_dim = dimension(arch.head_dim),
                      .rotary_dim = static_cast<int32_t>(static_cast<double>(arch.head_dim) *
                                                         arch.partial_rotary_factor),
                      .rope_base = arch.rope_theta,
                      .key_heads = dimension(arch.linear_num_k_heads),
                      .value_heads = dimension(arch.linear_num_v_heads),
                      .key_dim = dimension(arch.linear_key_head_dim),
                      .value_dim = dimension(arch.linear_value_head_dim),
                      .conv_taps = dimension(arch.linear_conv_kernel_size),
                      .norm_eps = static_cast<float>(text.At("rms_norm_eps").Double())};
  for (const LayerKind kind : arch.layer_kinds) {
    result.full_layers.push_back(kind == LayerKind::kFullAttention);
  }
  return result;
}

ModelWeights LoadWeights(const Qwen36Config& config, const ResidentWeights& resident,
                         Backend& backend, ElementType kv_type, StateLayout& state_layout) {
  ModelWeights weights;
  const int32_t hidden = config.hidden_size;
  weights.embedding = backend.LoadTable(
      resident.Matrix("language_model.model.embed_tokens.weight", config.vocab_size, hidden));
  weights.head = backend.LoadMatrix(
      resident.Matrix("language_model.lm_head.weight", config.vocab_size, hidden),
      MatrixInput::kNormed);
  weights.final_norm =
      backend.LoadVector(resident.Vector("language_model.model.norm.weight", hidden));
  const RopeTable rope =
      backend.LoadRope(RopeFrequencies(config.rope_base, config.rotary_dim), config.rotary_dim);

  for (size_t i = 0; i < config.full_layers.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    const LayerLoader load(resident, backend, config.hidden_size, index);
    LayerWeights layer;
    layer.index = index;
    layer.input_norm = load.Norm("input_layernorm", hidden);
    if (config.full_layers[i]) {
      layer.attention = LoadAttention(config, load, rope, kv_type, index, state_layout);
    } else {
      layer.delta_net = LoadDeltaNet(config, load, kv_type, index, state_layout);
    }
    layer.post_attention_norm = load.Norm("post_attention_layernorm", hidden);
    layer.router = {.experts = backend.LoadExpertLayer(
                        resident.Experts(index, hidden, config.expert_ffn_size, Activation::kSilu)),
                    .projection = load.FromHidden("mlp.gate", config.experts),
                    .top_k = config.top_k};
    layer.shared_gate = load.FromHidden("mlp.shared_expert_gate", 1);
    layer.shared_gate_proj = load.FromHidden("mlp.shared_expert.gate_proj", config.shared_ffn_size);
    layer.shared_up_proj = load.FromHidden("mlp.shared_expert.up_proj", config.shared_ffn_size);
    layer.shared_down_proj = load.ToHidden("mlp.shared_expert.down_proj", config.shared_ffn_size);
    weights.layers.push_back(layer);
  }
  return weights;
}

}  // namespace mference::qwen36
