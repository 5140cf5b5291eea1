#include "model/qwen36/forward.h"

#include <algorithm>

namespace mference::qwen36 {
namespace {

Tensor Narrow(Tensor tensor, int32_t cols) {
  tensor.cols = cols;
  return tensor;
}

}  // namespace

Qwen36Model::Qwen36Model(const Qwen36Config& config, const ResidentWeights& resident,
                         Backend& backend, ElementType kv_type)
    : config_(config),
      backend_(backend),
      weights_(LoadWeights(config_, resident, backend, kv_type, state_layout_)) {
  const int32_t query_cols = config_.heads * config_.head_dim;
  const int32_t kv_cols = config_.kv_heads * config_.head_dim;
  const int32_t value_cols = config_.value_heads * config_.value_dim;
  const int32_t channels = 2 * config_.key_heads * config_.key_dim + value_cols;
  hidden_ = backend.NewTensor(config_.hidden_size);
  normed_ = backend.NewTensor(config_.hidden_size);
  branch_ = backend.NewTensor(config_.hidden_size);
  mixed_ = backend.NewTensor(std::max(query_cols, value_cols));
  gate_ = backend.NewTensor(std::max(query_cols, value_cols));
  // A layer has one mixer: the widest tensors of the two share memory.
  qkv_ = backend.NewTensor(std::max(channels, 2 * query_cols));
  convolved_ = backend.NewTensor(std::max(channels, query_cols));
  query_gate_ = Narrow(qkv_, 2 * query_cols);
  query_ = Narrow(convolved_, query_cols);
  qkv_.cols = channels;
  convolved_.cols = channels;
  key_ = backend.NewTensor(kv_cols);
  value_ = backend.NewTensor(kv_cols);
  key_kv_ = backend.NewTensor(kv_cols, kv_type);
  value_kv_ = backend.NewTensor(kv_cols, kv_type);
  a_ = backend.NewTensor(config_.value_heads);
  b_ = backend.NewTensor(config_.value_heads);
  shared_inner_ = backend.NewTensor(config_.shared_ffn_size);
  shared_ = backend.NewTensor(config_.hidden_size);
  shared_gate_ = backend.NewTensor(1);
}

bool Qwen36Model::Forward(std::span<const int32_t> tokens, SequenceState& state,
                          const CancelFlag* cancel) {
  backend_.BeginStep(
      {.first_position = state.position(), .rows = static_cast<int32_t>(tokens.size())}, tokens,
      state);
  backend_.Embed(weights_.embedding, 1.0f, hidden_);
  backend_.Observe("embed", -1, hidden_);
  for (const LayerWeights& layer : weights_.layers) {
    if (IsSet(cancel)) return false;
    backend_.RmsNorm(hidden_, layer.input_norm, config_.norm_eps, normed_);
    if (layer.attention) {
      FullAttention(*layer.attention);
    } else {
      DeltaNet(*layer.delta_net);
    }
    backend_.Observe("attn", layer.index, branch_);
    backend_.Add(hidden_, branch_, hidden_);
    FeedForward(layer);
    backend_.Observe("ffn", layer.index, branch_);
    backend_.Add(hidden_, branch_, hidden_);
    backend_.Observe("out", layer.index, hidden_);
    if (static_cast<size_t>(layer.index) + 1 < weights_.layers.size()) {
      const LayerWeights& next = weights_.layers[static_cast<size_t>(layer.index) + 1];
      backend_.PredictExperts(hidden_, next.post_attention_norm, config_.norm_eps, next.router);
    }
  }
  backend_.RmsNorm(hidden_, weights_.final_norm, config_.norm_eps, normed_);
  backend_.Observe("final_norm", -1, normed_);
  backend_.EndStep();
  return true;
}

// Section 3.1.
void Qwen36Model::FullAttention(const AttentionWeights& weights) {
  const AttentionSpec& spec = weights.spec;
  const int32_t query_cols = spec.heads * spec.head_dim;
  const Tensor mixed = Narrow(mixed_, query_cols);
  const Tensor gate = Narrow(gate_, query_cols);
  const Product products[] = {
      {weights.q_proj, query_gate_}, {weights.k_proj, key_}, {weights.v_proj, value_}};
  backend_.MatMul(normed_, products);  // steps 1 and 2
  backend_.SplitHeads(query_gate_, spec.head_dim, query_, gate);
  backend_.HeadRmsNorm(query_, spec.head_dim, weights.q_norm, config_.norm_eps, query_);  // step 3
  backend_.HeadRmsNorm(key_, spec.head_dim, weights.k_norm, config_.norm_eps, key_);
  backend_.Rope(query_, spec.head_dim, weights.rope, query_);  // step 4
  backend_.Rope(key_, spec.head_dim, weights.rope, key_kv_);
  backend_.Convert(value_, value_kv_);
  backend_.Attention(spec, query_, key_kv_, value_kv_, mixed);  // step 5
  backend_.Commit(spec.keys, key_kv_);
  backend_.Commit(spec.values, value_kv_);
  backend_.MultiplySigmoid(mixed, gate, mixed);  // step 6
  backend_.MatMul(mixed, weights.o_proj, branch_);
}

// Section 3.2.
void Qwen36Model::DeltaNet(const DeltaNetWeights& weights) {
  const DeltaNetSpec& spec = weights.spec;
  const int32_t value_cols = spec.value_heads * spec.value_dim;
  const Tensor mixed = Narrow(mixed_, value_cols);
  const Tensor gate = Narrow(gate_, value_cols);
  const Product products[] = {
      {weights.qkv_proj, qkv_}, {weights.z_proj, gate}, {weights.a_proj, a_}, {weights.b_proj, b_}};
  backend_.MatMul(normed_, products);                                // step 1
  backend_.ShortConvolution(weights.convolution, qkv_, convolved_);  // step 2
  backend_.GatedDeltaNet(spec, convolved_, a_, b_, mixed);           // steps 3 to 7
  backend_.GatedHeadRmsNorm(mixed, spec.value_dim, weights.norm, config_.norm_eps, gate,
                            mixed);  // step 8
  backend_.MatMul(mixed, weights.out_proj, branch_);
}

// Section 3.3. The router goes first, so that missing experts are read while the shared expert
// runs.
void Qwen36Model::FeedForward(const LayerWeights& layer) {
  backend_.RmsNorm(hidden_, layer.post_attention_norm, config_.norm_eps, normed_);
  const Routing routing = backend_.Route(normed_, layer.router);  // step 1
  backend_.GatedMatMul(normed_, layer.shared_gate_proj, layer.shared_up_proj, Activation::kSilu,
                       shared_inner_);  // step 3
  backend_.MatMul(shared_inner_, layer.shared_down_proj, shared_);
  backend_.MatMul(normed_, layer.shared_gate, shared_gate_);
  backend_.RoutedExperts(normed_, routing, branch_);  // step 2
  backend_.Observe("routed_ffn", layer.index, branch_);
  backend_.AddGated(branch_, shared_, shared_gate_, branch_);  // step 4
}

std::span<const float> Qwen36Model::Logits(int32_t first_row, int32_t rows) {
  return backend_.Head(normed_, first_row, rows, weights_.head, 0);
}

std::unique_ptr<Model> MakeQwen36(const ModelSources& sources) {
  return std::make_unique<Qwen36Model>(ReadConfig(sources.arch, sources.config), sources.resident,
                                       sources.backend, sources.kv_type);
}

}  // namespace mference::qwen36
