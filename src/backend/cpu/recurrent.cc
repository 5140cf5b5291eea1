// Operations whose state is rewritten by every row: short convolutions and the gated delta rule.
//
// Channels and heads are independent of each other, rows are not: a thread takes a range of
// channels or a head and walks the step's rows in order.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"

namespace mference::cpu {
namespace {

// Channels that one thread takes at a time: 4 KiB of a row.
constexpr int kChannelGrain = 1024;

// From this many rows on a chunk's matrix products are faster than row after row
// (bench/recurrent_bench.cc).
constexpr int32_t kMinChunkRows = 8;

constexpr float kL2Eps = 1e-6f;

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// ln(1 + e^x); beyond 20, 1 is lost to rounding.
float Softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// A lane's scratch for rows of one head.
struct DeltaScratch {
  DeltaScratch(float* scratch, int32_t key_dim)
      : q(scratch),
        k(q + ptrdiff_t{kMaxDeltaRows} * key_dim),
        decay(k + ptrdiff_t{kMaxDeltaRows} * key_dim),
        beta(decay + kMaxDeltaRows),
        chunk(beta + kMaxDeltaRows) {}

  float* q;      // [kMaxDeltaRows, key_dim]
  float* k;      // [kMaxDeltaRows, key_dim]
  float* decay;  // [kMaxDeltaRows]
  float* beta;   // [kMaxDeltaRows]
  float* chunk;  // what Kernels::delta_chunk asks for
};

}  // namespace

// Per lane, for the widest head.
size_t CpuBackend::DeltaScratchFloats() const {
  return size_t{kMaxDeltaRows} * (2 * kMaxDeltaDim + 2) +
         kernels_.delta_chunk_floats(kMaxDeltaDim, kMaxDeltaDim);
}

void CpuBackend::ShortConvolution(const ShortConvolutionSpec& spec, Tensor x, Tensor out) {
  constexpr int32_t kHistory = kConvolutionTaps - 1;
  Check(spec.taps == kConvolutionTaps, "convolutions have the taps that the kernels know");
  const int32_t channels = x.cols;
  const int32_t rows = params_.rows;
  std::byte* const tail = state_->data(spec.tail);
  const bool half_tail =
      state_->spec(spec.tail).row_bytes == int64_t{kHistory} * channels * int64_t{2};
  auto* const history =
      reinterpret_cast<float*>(half_tail ? scratch_.data() + plan_.history : tail);
  const ConvolutionRows convolution{.rows = rows,
                                    .stride = channels,
                                    .weights = WeightsOf(spec.weights),
                                    .history = history,
                                    .x = Floats(x),
                                    .out = Floats(out)};
  pool_.ParallelFor(channels, kChannelGrain, [&](int begin, int end) {
    const int n = end - begin;
    const auto half_row = [&](int32_t row) {
      return reinterpret_cast<uint16_t*>(tail) + ptrdiff_t{row} * channels + begin;
    };
    const auto history_row = [&](int32_t row) {
      return history + ptrdiff_t{row} * channels + begin;
    };
    if (half_tail) {
      for (int32_t row = 0; row < kHistory; ++row) {
        kernels_.f32_from_f16(half_row(row), n, history_row(row));
      }
    }
    kernels_.short_convolution(convolution, begin, end);
    // Oldest first: each row of the tail is read before a later one overwrites it.
    for (int32_t row = 0; row < kHistory; ++row) {
      const int32_t from = rows - kHistory + row;
      const float* const newest = from < 0 ? history_row(from + kHistory)
                                           : convolution.x + ptrdiff_t{from} * channels + begin;
      if (half_tail) {
        kernels_.f16_from_f32(newest, n, half_row(row));
      } else {
        std::memmove(history_row(row), newest, static_cast<size_t>(n) * sizeof(float));
      }
    }
  });
}

void CpuBackend::GatedDeltaNet(const DeltaNetSpec& spec, Tensor qkv, Tensor a, Tensor b,
                               Tensor out) {
  for (const int32_t dim : {spec.key_dim, spec.value_dim}) {
    Check(dim <= kMaxDeltaDim && dim % kDeltaDimMultiple == 0, "heads fit the kernels");
  }
  const float* const projected = Floats(qkv);
  const float* const a_rows = Floats(a);
  const float* const b_rows = Floats(b);
  float* const y = Floats(out);
  const float* const a_log = WeightsOf(spec.a_log);
  const float* const dt_bias = WeightsOf(spec.dt_bias);
  auto* const states = reinterpret_cast<float*>(state_->data(spec.state));
  auto* const scratch = reinterpret_cast<float*>(scratch_.data() + plan_.delta);
  const int32_t key_cols = spec.key_heads * spec.key_dim;
  const int32_t heads_per_key = spec.value_heads / spec.key_heads;
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(spec.key_dim));

  ForTasks(spec.value_heads, [&](int32_t head, int32_t lane) {
    const DeltaScratch lent(scratch + static_cast<size_t>(lane) * DeltaScratchFloats(),
                            spec.key_dim);
    float* const state = states + ptrdiff_t{head} * spec.value_dim * spec.key_dim;
    const float decay_rate = std::exp(a_log[head]);
    for (int32_t first = 0; first < params_.rows; first += kMaxDeltaRows) {
      const int32_t rows = std::min(params_.rows - first, int32_t{kMaxDeltaRows});
      const float* const head_rows = projected + ptrdiff_t{first} * qkv.cols;
      for (int32_t row = 0; row < rows; ++row) {
        const float* const q =
            head_rows + ptrdiff_t{row} * qkv.cols + ptrdiff_t{head / heads_per_key} * spec.key_dim;
        const ptrdiff_t at = ptrdiff_t{row} * spec.key_dim;
        kernels_.l2_normalise(q, kL2Eps, query_scale, spec.key_dim, lent.q + at);
        kernels_.l2_normalise(q + key_cols, kL2Eps, 1.0f, spec.key_dim, lent.k + at);
        const ptrdiff_t gate = ptrdiff_t{first + row} * spec.value_heads + head;
        lent.decay[row] = std::exp(-decay_rate * Softplus(a_rows[gate] + dt_bias[head]));
        lent.beta[row] = Sigmoid(b_rows[gate]);
      }
      const DeltaRows delta{
          .rows = rows,
          .key_dim = spec.key_dim,
          .value_dim = spec.value_dim,
          .q = lent.q,
          .k = lent.k,
          .v = head_rows + ptrdiff_t{2} * key_cols + ptrdiff_t{head} * spec.value_dim,
          .v_stride = qkv.cols,
          .decay = lent.decay,
          .beta = lent.beta,
          .out = y + ptrdiff_t{first} * out.cols + ptrdiff_t{head} * spec.value_dim,
          .out_stride = out.cols};
      if (rows < kMinChunkRows) {
        kernels_.delta_steps(delta, state);
      } else {
        kernels_.delta_chunk(delta, state, lent.chunk);
      }
    }
  });
}

}  // namespace mference::cpu
