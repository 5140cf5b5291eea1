#include "model/gemma4/forward.h"

#include <algorithm>
#include <cmath>

namespace mference::gemma4 {
namespace {

Tensor Narrow(Tensor tensor, int32_t cols) {
  tensor.cols = cols;
  return tensor;
}

}  // namespace

Gemma4Model::Gemma4Model(const Gemma4Config& config, const ResidentWeights& resident,
                         Backend& backend, ElementType kv_type)
    : config_(config),
      backend_(backend),
      weights_(LoadWeights(config_, resident, backend, kv_type, state_layout_)) {
  int32_t query_cols = 0;
  int32_t kv_cols = 0;
  for (const LayerWeights& layer : weights_.layers) {
    query_cols = std::max(query_cols, layer.attention.heads * layer.attention.head_dim);
    kv_cols = std::max(kv_cols, layer.attention.kv_heads * layer.attention.head_dim);
  }
  hidden_ = backend.NewTensor(config_.hidden_size);
  normed_ = backend.NewTensor(config_.hidden_size);
  branch_ = backend.NewTensor(config_.hidden_size);
  dense_ = backend.NewTensor(config_.hidden_size);
  inner_ = backend.NewTensor(config_.ffn_size);
  query_ = backend.NewTensor(query_cols);
  attended_ = backend.NewTensor(query_cols);
  key_ = backend.NewTensor(kv_cols);
  value_ = backend.NewTensor(kv_cols);
  key_kv_ = backend.NewTensor(kv_cols, kv_type);
  value_kv_ = backend.NewTensor(kv_cols, kv_type);
}

bool Gemma4Model::Forward(std::span<const int32_t> tokens, SequenceState& state,
                          const CancelFlag* cancel) {
  backend_.BeginStep(
      {.first_position = state.position(), .rows = static_cast<int32_t>(tokens.size())}, tokens,
      state);
  backend_.Embed(weights_.embedding, config_.embedding_scale, hidden_);  // 3.1
  backend_.Observe("embed", -1, hidden_);
  for (const LayerWeights& layer : weights_.layers) {
    if (IsSet(cancel)) return false;
    Attention(layer);
    FeedForward(layer);
    PredictNext(layer);
    backend_.Observe("out", layer.index, hidden_);
  }
  backend_.RmsNorm(hidden_, weights_.final_norm, config_.norm_eps, normed_);  // 3.4
  backend_.Observe("final_norm", -1, normed_);
  backend_.EndStep();
  return true;
}

// Section 3.2.
void Gemma4Model::Attention(const LayerWeights& layer) {
  const AttentionSpec& spec = layer.attention;
  const float eps = config_.norm_eps;
  const Tensor query = Narrow(query_, spec.heads * spec.head_dim);
  const Tensor attended = Narrow(attended_, spec.heads * spec.head_dim);
  const int32_t kv_cols = spec.kv_heads * spec.head_dim;
  const Tensor key = Narrow(key_, kv_cols);
  const Tensor value = Narrow(value_, kv_cols);
  const Tensor key_kv = Narrow(key_kv_, kv_cols);
  const Tensor value_kv = Narrow(value_kv_, kv_cols);

  backend_.RmsNorm(hidden_, layer.input_norm, eps, normed_);  // step 1
  // Step 2, and 3: a full layer has no value projection; V starts from K's, before K's norm.
  const Product products[] = {{layer.q_proj, query}, {layer.k_proj, key}, {layer.v_proj, value}};
  const bool shared = layer.shares_key_projection;
  backend_.MatMul(normed_, std::span(products).first(shared ? 2 : 3));
  backend_.HeadRmsNorm(shared ? key : value, spec.head_dim, {}, eps, value_kv);
  backend_.HeadRmsNorm(query, spec.head_dim, layer.q_norm, eps, query);  // step 4
  backend_.HeadRmsNorm(key, spec.head_dim, layer.k_norm, eps, key);
  backend_.Rope(query, spec.head_dim, layer.rope, query);  // step 5
  backend_.Rope(key, spec.head_dim, layer.rope, key_kv);
  backend_.Attention(spec, query, key_kv, value_kv, attended);  // steps 6 and 7
  backend_.Commit(spec.keys, key_kv);
  backend_.Commit(spec.values, value_kv);
  backend_.MatMul(attended, layer.o_proj, branch_);  // step 8
  backend_.Observe("attn", layer.index, branch_);
  backend_.AddRmsNorm(hidden_, branch_, layer.post_attention_norm, eps, 1.0f);  // step 9
}

// Section 3.3. The router goes first, so that missing experts are read while the dense branch runs.
void Gemma4Model::FeedForward(const LayerWeights& layer) {
  const float eps = config_.norm_eps;
  backend_.RmsNorm(hidden_, layer.router_norm, eps, normed_);  // step 2
  const Routing routing = backend_.Route(normed_, layer.router);
  PredictNext(layer);

  backend_.RmsNorm(hidden_, layer.pre_dense_norm, eps, normed_);  // step 1
  backend_.GatedMatMul(normed_, layer.gate_proj, layer.up_proj, Activation::kGeluTanh, inner_);
  backend_.MatMul(inner_, layer.down_proj, branch_);
  backend_.Observe("dense_ffn", layer.index, branch_);
  backend_.RmsNorm(branch_, layer.post_dense_norm, eps, dense_);

  backend_.RmsNorm(hidden_, layer.pre_routed_norm, eps, normed_);  // step 3
  backend_.RoutedExperts(normed_, routing, branch_);
  backend_.Observe("routed_ffn", layer.index, branch_);
  backend_.RmsNorm(branch_, layer.post_routed_norm, eps, branch_);

  backend_.Add(dense_, branch_, branch_);  // step 4
  backend_.AddRmsNorm(hidden_, branch_, layer.post_feedforward_norm, eps, layer.scalar);
}

void Gemma4Model::PredictNext(const LayerWeights& layer) {
  const auto next = static_cast<size_t>(layer.index) + 1;
  if (next == weights_.layers.size()) return;
  const LayerWeights& weights = weights_.layers[next];
  backend_.PredictExperts(hidden_, weights.router_norm, config_.norm_eps, weights.router);
}

std::unique_ptr<Model> MakeGemma4(const ModelSources& sources) {
  return std::make_unique<Gemma4Model>(ReadConfig(sources.arch, sources.config), sources.resident,
                                       sources.backend, sources.kv_type);
}

std::span<const float> Gemma4Model::Logits(int32_t first_row, int32_t rows) {
  return backend_.Head(normed_, first_row, rows, weights_.embedding, config_.soft_cap);
}

}  // namespace mference::gemma4
