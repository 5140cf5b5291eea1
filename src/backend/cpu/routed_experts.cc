// Routing and routed experts on the CPU.
//
// `Route` groups the chosen (row, rank) pairs by expert and opens the layer's stream at once, so
// that missing experts are read while the forward pass computes its shared branch.
//
// The sum over a row's experts is taken in ascending expert id, whatever order blobs arrive in. A
// step of few rows keeps every pair's output apart and sums at the end, so it may compute cached
// experts while others are still being read: all that are there at once, in two parallel sections.
// A wide step takes experts in ascending order and adds each to its rows directly: one accumulator,
// the same arithmetic.
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
  if (params_.rows == 1) {
    guess_bias_.Learn(static_cast<size_t>(spec.experts.id), {logits, static_cast<size_t>(experts)});
  }

  const size_t pairs = static_cast<size_t>(max_rows_) * kMaxTopK;
  auto* const table = reinterpret_cast<int32_t*>(scratch_.data() + plan_.routing);
  routing_ = {.layer_id = spec.experts.id,
              .top_k = spec.top_k,
              .ids = table,
              .weights = reinterpret_cast<float*>(table + pairs),
              .distinct = table + 3 * pairs,
              .distinct_count = 0,
              .choosing = table + 3 * pairs + experts,
              .pair_begin = table + 3 * pairs + 2 * experts,
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
    const auto count = static_cast<size_t>(routing_.distinct_count);
    stream_.emplace(store_->Open(
        layer.weights.store_layer, {routing_.distinct, count},
        params_.rows <= kMaxRowsInAnyOrder ? StreamOrder::kHitsFirst : StreamOrder::kAscending,
        {.rows = params_.rows, .choosing = {routing_.choosing, count}}));
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
    if (begin[expert + 1] > 0) {
      tables.choosing[tables.distinct_count] = begin[expert + 1];
      tables.distinct[tables.distinct_count++] = expert;
    }
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
  // Nothing is leased when this may have to wait, so kBusy cannot happen.
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

CpuBackend::ExpertWork CpuBackend::WorkOf(const ExpertLayerInfo& layer,
                                          const ExpertLease& lease) const {
  const auto view = [&lease](WeightMatrix shape, const ExpertMatrix& matrix) {
    shape.data = lease.blob + matrix.weights.offset;
    shape.scales = reinterpret_cast<const uint16_t*>(lease.blob + matrix.scales.offset);
    shape.biases = reinterpret_cast<const uint16_t*>(lease.blob + matrix.biases.offset);
    return shape;
  };
  const ExpertBlob& places = layer.weights.blob;
  const int32_t begin = routing_.pair_begin[lease.expert];
  return {.lease = lease,
          .gate = view(layer.gate, places.gate),
          .up = view(layer.up, places.up),
          .down = view(layer.down, places.down),
          .begin = begin,
          .count = routing_.pair_begin[lease.expert + 1] - begin};
}

// ---- Few rows: decode.

void CpuBackend::ForExpertRows(
    std::span<const ExpertWork> experts, int32_t rows,
    FunctionRef<void(const ExpertWork& expert, int begin, int end)> body) {
  std::array<int32_t, kMaxTopK> each;
  each.fill(rows);
  ForRowRanges(std::span(each).first(experts.size()),
               [&](size_t i, int begin, int end) { body(experts[i], begin, end); });
}

// outputs[pair] = down(activation(gate x) * (up x)) for the pairs of all `experts`.
void CpuBackend::ComputePairs(const ExpertLayerInfo& layer, std::span<const ExpertWork> experts,
                              Tensor x) {
  const auto input_bytes = static_cast<ptrdiff_t>(PreparedRowBytes(layer.gate));
  const auto inner_bytes = static_cast<ptrdiff_t>(PreparedRowBytes(layer.down));
  const ptrdiff_t intermediate = layer.gate.rows;
  const ptrdiff_t hidden = layer.down.rows;
  auto* const gates = reinterpret_cast<float*>(scratch_.data() + plan_.expert_inner);
  float* const ups = gates + ptrdiff_t{params_.rows} * routing_.top_k * intermediate;
  auto* const outputs = reinterpret_cast<float*>(scratch_.data() + plan_.expert_outputs);
  // A single row is every expert's input, prepared once; otherwise each pair has its own.
  const bool one_row = params_.rows == 1;
  const auto inputs_of = [&](const ExpertWork& expert) {
    return scratch_.data() + plan_.pair_inputs + (one_row ? 0 : expert.begin * input_bytes);
  };
  const auto inner_of = [&](const ExpertWork& expert) {
    return scratch_.data() + plan_.pair_inner + expert.begin * inner_bytes;
  };

  const Rounding rounding = RoundingFor(layer.gate);
  for (const ExpertWork& expert : experts.first(one_row ? 1 : experts.size())) {
    for (int32_t i = 0; i < expert.count; ++i) {
      const int32_t row = routing_.pairs[expert.begin + i] / routing_.top_k;
      PrepareRow(expert.gate, rounding, Floats(x) + ptrdiff_t{row} * x.cols, expert.count, i,
                 inputs_of(expert));
    }
  }
  ForExpertRows(experts, layer.gate.rows, [&](const ExpertWork& expert, int begin, int end) {
    float* const gate = gates + expert.begin * intermediate;
    float* const up = ups + expert.begin * intermediate;
    Multiply(expert.gate, rounding, inputs_of(expert), expert.count, gate, intermediate, begin,
             end);
    Multiply(expert.up, rounding, inputs_of(expert), expert.count, up, intermediate, begin, end);
    Activate(layer.weights.activation, expert.count, gate, up, intermediate, begin, end);
  });
  const Rounding down_rounding = RoundingFor(layer.down);
  for (const ExpertWork& expert : experts) {
    for (int32_t i = 0; i < expert.count; ++i) {
      PrepareRow(expert.down, down_rounding, gates + (expert.begin + i) * intermediate,
                 expert.count, i, inner_of(expert));
    }
  }
  ForExpertRows(experts, layer.down.rows, [&](const ExpertWork& expert, int begin, int end) {
    Multiply(expert.down, down_rounding, inner_of(expert), expert.count,
             outputs + expert.begin * hidden, hidden, begin, end);
  });
}

void CpuBackend::RunFewRows(const ExpertLayerInfo& layer, ExpertStream& stream, Tensor x,
                            Tensor out) {
  std::array<ExpertWork, kMaxTopK> ready;
  while (true) {
    size_t count = 0;
    ExpertLease lease;
    do {
      if (!NextExpert(stream, lease)) break;
      ready[count++] = WorkOf(layer, lease);
    } while (count < ready.size() && stream.HasReady());
    if (count == 0) break;
    const std::span<const ExpertWork> experts = std::span(ready).first(count);
    ComputePairs(layer, experts, x);
    for (const ExpertWork& expert : experts) store_->Release(expert.lease);
  }
  if (failed_) return;
  const auto* const outputs =
      reinterpret_cast<const float*>(scratch_.data() + plan_.expert_outputs);
  const ptrdiff_t hidden = x.cols;
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

// ---- Many rows: prefill.

void CpuBackend::RunManyRows(const ExpertLayerInfo& layer, ExpertStream& stream, Tensor x,
                             Tensor out) {
  auto* const inner = reinterpret_cast<float*>(scratch_.data() + plan_.expert_inner);
  auto* const outputs = reinterpret_cast<float*>(scratch_.data() + plan_.expert_outputs);
  const float* const rows = Floats(x);
  float* const sums = Floats(out);
  const ptrdiff_t hidden = x.cols;
  const ptrdiff_t intermediate = layer.gate.rows;
  const Rounding rounding = RoundingFor(layer.gate);
  const Rounding down_rounding = RoundingFor(layer.down);
  std::fill(sums, sums + params_.rows * hidden, 0.0f);

  // A row is rounded once, not for each of its experts.
  const bool rounded = rounding == Rounding::kTo8Bits;
  std::byte* const alone = scratch_.data() + plan_.rounded_rows;
  const size_t alone_bytes = rounded ? RoundedRowBytes(layer.gate) : 0;
  if (rounded) {
    ForRows(params_.rows, [&](int32_t row) {
      PrepareRow(layer.gate, rounding, rows + row * hidden, 1, 0,
                 alone + static_cast<size_t>(row) * alone_bytes);
    });
  }
  ExpertLease lease;
  while (NextExpert(stream, lease)) {
    const ExpertWork expert = WorkOf(layer, lease);
    const int32_t n = expert.count;
    const int32_t* const pairs = routing_.pairs + expert.begin;
    ForPreparedRows(n, expert.gate.cols, [&](int32_t i) {
      const ptrdiff_t row = pairs[i] / routing_.top_k;
      if (rounded) {
        kernels_.quantised_place(expert.gate, alone + static_cast<size_t>(row) * alone_bytes, n, i,
                                 Prepared());
      } else {
        PrepareRow(expert.gate, rounding, rows + row * hidden, n, i, Prepared());
      }
    });
    GatedPrepared(expert.gate, expert.up, rounding, layer.weights.activation, n, inner,
                  inner + n * intermediate, intermediate);
    Prepare(expert.down, down_rounding, inner, intermediate, n);
    MatMulPrepared(expert.down, down_rounding, n, outputs, hidden);
    store_->Release(lease);
    ForRows(n, [&](int32_t i) {
      kernels_.accumulate(routing_.weights[pairs[i]], outputs + i * hidden,
                          static_cast<int>(hidden), sums + pairs[i] / routing_.top_k * hidden);
    });
  }
}

}  // namespace mference::cpu
