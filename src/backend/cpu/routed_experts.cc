// Routing and routed experts on the CPU.
//
// `Route` groups the chosen (row, rank) pairs by expert and opens the layer's stream at once, so
// that missing experts are read while the forward pass computes its shared branch.
//
// The sum over a row's experts is taken in ascending expert id, whatever order blobs arrive in. A
// step of few rows keeps every pair's output apart and sums at the end, so it may compute cached
// experts while others are still being read. A wide step takes experts in ascending order and adds
// each to its rows directly: one accumulator, the same arithmetic.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"

namespace mference::cpu {

Routing CpuBackend::Route(Tensor x, const RouterSpec& spec) {
  const ExpertLayerInfo& layer = expert_layers_[static_cast<size_t>(spec.experts.id)];
  const int32_t experts = layer.weights.experts;
  Check(spec.top_k >= 1 && spec.top_k <= kMaxTopK && spec.top_k <= experts, "top_k in range");
  const WeightMatrix& projection = matrices_[static_cast<size_t>(spec.projection.id)];
  auto* const logits = reinterpret_cast<float*>(scratch_.data() + plan_.router_logits);
  // Never rounded: a changed choice of experts costs far more than a rounded product.
  Prepare(projection, Rounding::kNone, Floats(x), x.cols, params_.rows);
  MatMulPrepared(projection, Rounding::kNone, params_.rows, logits, experts);

  const size_t pairs = static_cast<size_t>(max_rows_) * kMaxTopK;
  auto* const table = reinterpret_cast<int32_t*>(scratch_.data() + plan_.routing);
  routing_ = {.layer_id = spec.experts.id,
              .top_k = spec.top_k,
              .ids = table,
              .weights = reinterpret_cast<float*>(table + pairs),
              .distinct = table + 3 * pairs,
              .distinct_count = 0,
              .pair_begin = table + 3 * pairs + experts,
              .pairs = table + 2 * pairs};

  const float* const scale = WeightsOf(spec.per_expert_scale);
  const std::span<const int32_t> forced =
      probe_ != nullptr ? probe_->ForceExperts(layer.weights.store_layer, params_.rows, spec.top_k)
                        : std::span<const int32_t>();
  ForRows(params_.rows, [&](int32_t row) {
    std::array<int32_t, kMaxTopK> ids;
    std::array<float, kMaxTopK> values{};
    const float* const row_logits = logits + static_cast<ptrdiff_t>(row) * experts;
    if (forced.empty()) {
      TopK(row_logits, experts, spec.top_k, ids.data(), values.data());
    } else {
      for (int32_t k = 0; k < spec.top_k; ++k) {
        const auto at = static_cast<size_t>(k);
        ids[at] = forced[static_cast<size_t>(row * spec.top_k + k)];
        values[at] = row_logits[ids[at]];
      }
    }
    float sum = 0;
    const float largest = *std::max_element(values.begin(), values.begin() + spec.top_k);
    for (int32_t k = 0; k < spec.top_k; ++k) {
      values[static_cast<size_t>(k)] = std::exp(values[static_cast<size_t>(k)] - largest);
      sum += values[static_cast<size_t>(k)];
    }
    int32_t* const row_ids = routing_.ids + ptrdiff_t{row} * spec.top_k;
    float* const row_weights = routing_.weights + ptrdiff_t{row} * spec.top_k;
    // Insertion by id: the sums over experts run in this order.
    for (int32_t k = 0; k < spec.top_k; ++k) {
      const int32_t id = ids[static_cast<size_t>(k)];
      const float weight =
          values[static_cast<size_t>(k)] / sum * (scale != nullptr ? scale[id] : 1.0f);
      int32_t at = k;
      for (; at > 0 && row_ids[at - 1] > id; --at) {
        row_ids[at] = row_ids[at - 1];
        row_weights[at] = row_weights[at - 1];
      }
      row_ids[at] = id;
      row_weights[at] = weight;
    }
  });
  if (probe_ != nullptr) {
    const auto count = static_cast<size_t>(params_.rows) * static_cast<size_t>(spec.top_k);
    probe_->OnRouting(layer.weights.store_layer, spec.top_k, {routing_.ids, count},
                      {routing_.weights, count});
  }
  GroupPairs(routing_);
  if (!failed_) {
    stream_.emplace(store_->Open(
        layer.weights.store_layer,
        {routing_.distinct, static_cast<size_t>(routing_.distinct_count)},
        params_.rows <= kMaxRowsInAnyOrder ? StreamOrder::kHitsFirst : StreamOrder::kAscending));
  }
  return {spec.experts.id};
}

// Counting sort of the pairs by expert, rows ascending within one.
void CpuBackend::GroupPairs(RoutingTables& tables) const {
  const int32_t experts = expert_layers_[static_cast<size_t>(tables.layer_id)].weights.experts;
  const int32_t pairs = params_.rows * tables.top_k;
  int32_t* const begin = tables.pair_begin;
  std::fill(begin, begin + experts + 1, 0);
  for (int32_t pair = 0; pair < pairs; ++pair) ++begin[tables.ids[pair] + 1];
  tables.distinct_count = 0;
  for (int32_t expert = 0; expert < experts; ++expert) {
    if (begin[expert + 1] > 0) tables.distinct[tables.distinct_count++] = expert;
    begin[expert + 1] += begin[expert];
  }
  for (int32_t pair = 0; pair < pairs; ++pair) tables.pairs[begin[tables.ids[pair]]++] = pair;
  // The placement moved each start to the next one's; move them back.
  for (int32_t expert = experts; expert > 0; --expert) begin[expert] = begin[expert - 1];
  begin[0] = 0;
}

bool CpuBackend::NextExpert(ExpertStream& stream, ExpertLease& lease) {
  const StreamNext next = stream.Next(lease);
  if (next == StreamNext::kReady) return true;
  // Every lease is released before the next is asked for, so kBusy cannot happen.
  if (next != StreamNext::kEnd) failed_ = true;
  return false;
}

void CpuBackend::RoutedExperts(Tensor x, Routing routing, Tensor out) {
  Check(routing.id == routing_.layer_id, "the routing belongs to the last Route");
  if (failed_) return;
  const ExpertLayerInfo& layer = expert_layers_[static_cast<size_t>(routing.id)];
  if (params_.rows <= kMaxRowsInAnyOrder) {
    RunFewRows(layer, *stream_, x, out);
  } else {
    RunManyRows(layer, *stream_, x, out);
  }
  stream_.reset();
}

// y [n, hidden] = down(activation(gate x) * (up x)) for n rows x [n, hidden].
void CpuBackend::ComputeExpert(const ExpertLayerInfo& layer, const std::byte* blob, const float* x,
                               int32_t n, float* y) {
  const auto view = [blob](WeightMatrix shape, const ExpertMatrix& matrix) {
    shape.data = blob + matrix.weights.offset;
    shape.scales = reinterpret_cast<const uint16_t*>(blob + matrix.scales.offset);
    shape.biases = reinterpret_cast<const uint16_t*>(blob + matrix.biases.offset);
    return shape;
  };
  const ExpertBlob& places = layer.weights.blob;
  const WeightMatrix gate = view(layer.gate, places.gate);
  const WeightMatrix up = view(layer.up, places.up);
  const WeightMatrix down = view(layer.down, places.down);
  auto* const inner = reinterpret_cast<float*>(scratch_.data() + plan_.expert_inner);
  float* const up_out = inner + static_cast<ptrdiff_t>(n) * gate.rows;

  const Rounding rounding = RoundingFor(gate);
  Prepare(gate, rounding, x, gate.cols, n);
  GatedPrepared(gate, up, rounding, layer.weights.activation, n, inner, up_out, gate.rows);
  const Rounding down_rounding = RoundingFor(down);
  Prepare(down, down_rounding, inner, gate.rows, n);
  MatMulPrepared(down, down_rounding, n, y, down.rows);
}

void CpuBackend::RunFewRows(const ExpertLayerInfo& layer, ExpertStream& stream, Tensor x,
                            Tensor out) {
  auto* const inputs = reinterpret_cast<float*>(scratch_.data() + plan_.expert_inputs);
  auto* const outputs = reinterpret_cast<float*>(scratch_.data() + plan_.expert_outputs);
  const float* const rows = Floats(x);
  const ptrdiff_t hidden = x.cols;
  ExpertLease lease;
  while (NextExpert(stream, lease)) {
    const int32_t begin = routing_.pair_begin[lease.expert];
    const int32_t count = routing_.pair_begin[lease.expert + 1] - begin;
    for (int32_t i = 0; i < count; ++i) {
      const int32_t row = routing_.pairs[begin + i] / routing_.top_k;
      std::memcpy(inputs + i * hidden, rows + row * hidden,
                  static_cast<size_t>(hidden) * sizeof(float));
    }
    // Pairs of one expert lie together, so its outputs are one block.
    ComputeExpert(layer, lease.blob, inputs, count, outputs + begin * hidden);
    store_->Release(lease);
  }
  if (failed_) return;
  float* const sums = Floats(out);
  std::fill(sums, sums + params_.rows * hidden, 0.0f);
  // Pairs are ordered by expert, so each row adds its experts in ascending id.
  const int32_t pairs = params_.rows * routing_.top_k;
  for (int32_t i = 0; i < pairs; ++i) {
    const int32_t pair = routing_.pairs[i];
    kernels_.accumulate(routing_.weights[pair], outputs + i * hidden, static_cast<int>(hidden),
                        sums + pair / routing_.top_k * hidden);
  }
}

void CpuBackend::RunManyRows(const ExpertLayerInfo& layer, ExpertStream& stream, Tensor x,
                             Tensor out) {
  auto* const inputs = reinterpret_cast<float*>(scratch_.data() + plan_.expert_inputs);
  auto* const outputs = reinterpret_cast<float*>(scratch_.data() + plan_.expert_outputs);
  const float* const rows = Floats(x);
  float* const sums = Floats(out);
  const ptrdiff_t hidden = x.cols;
  std::fill(sums, sums + params_.rows * hidden, 0.0f);
  ExpertLease lease;
  while (NextExpert(stream, lease)) {
    const int32_t begin = routing_.pair_begin[lease.expert];
    const int32_t count = routing_.pair_begin[lease.expert + 1] - begin;
    const int32_t* const pairs = routing_.pairs + begin;
    ForRows(count, [&](int32_t i) {
      std::memcpy(inputs + i * hidden, rows + pairs[i] / routing_.top_k * hidden,
                  static_cast<size_t>(hidden) * sizeof(float));
    });
    ComputeExpert(layer, lease.blob, inputs, count, outputs);
    store_->Release(lease);
    ForRows(count, [&](int32_t i) {
      kernels_.accumulate(routing_.weights[pairs[i]], outputs + i * hidden,
                          static_cast<int>(hidden), sums + pairs[i] / routing_.top_k * hidden);
    });
  }
}

}  // namespace mference::cpu
