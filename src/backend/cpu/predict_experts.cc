// Guessing what the next layer will ask for, while the disk would otherwise be idle.
#include <array>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/likely_experts.h"

namespace mference::cpu {
namespace {

// A chunk in which an expert is chosen so often on average misses one expert in e^3 = 20, and needs
// no guessing: its next layer will ask for all there are, in ascending order.
constexpr int32_t kSurePairsPerExpert = 3;

}  // namespace

void CpuBackend::PredictExperts(Tensor residual, Vector norm, float eps, const RouterSpec& spec) {
  if (failed_) return;
  const ExpertStoreOptions& limits = store_->options();
  const ExpertLayerInfo& layer = expert_layers_[static_cast<size_t>(spec.experts.id)];
  const int32_t experts = layer.weights.experts;
  if (params_.rows * spec.top_k >= kSurePairsPerExpert * experts) {
    store_->Prefetch(layer.weights.store_layer, {ascending_.data(), static_cast<size_t>(experts)},
                     limits.chunk_prefetch);
    return;
  }
  if (params_.rows != 1 || limits.token_prefetch == 0) return;
  const WeightMatrix& projection = matrices_[static_cast<size_t>(spec.projection.id)];
  // Between two layers nobody else uses these.
  auto* const normed = reinterpret_cast<float*>(scratch_.data() + plan_.predicted_from);
  auto* const logits = reinterpret_cast<float*>(scratch_.data() + plan_.router_logits);
  kernels_.rms_norm(Floats(residual), WeightsOf(norm), eps, residual.cols, normed);
  Prepare(projection, Rounding::kNone, normed, residual.cols, 1);
  MatMulPrepared(projection, Rounding::kNone, 1, logits, experts);
  guess_bias_.Correct(static_cast<size_t>(spec.experts.id), {logits, static_cast<size_t>(experts)});
  std::array<int32_t, kMaxTopK> ids;
  const int32_t likely = LikelyExperts({logits, static_cast<size_t>(experts)}, spec.top_k, ids);
  store_->Prefetch(layer.weights.store_layer, {ids.data(), static_cast<size_t>(likely)},
                   limits.token_prefetch);
}

}  // namespace mference::cpu
