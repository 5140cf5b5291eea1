// Operations whose state is rewritten by every row: short convolutions and the gated delta rule.
//
// Channels and heads are independent of each other, rows are not: a thread takes a range of
// channels or a head and walks the step's rows in order.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/float16.h"

namespace mference::cpu {
namespace {

// Channels that one thread takes at a time: 4 KiB of a row.
constexpr int kChannelGrain = 1024;

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// ln(1 + e^x); beyond 20, 1 is lost to rounding.
float Softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

}  // namespace

void CpuBackend::ShortConvolution(const ShortConvolutionSpec& spec, Tensor x, Tensor out) {
  const int32_t channels = x.cols;
  const int32_t history = spec.taps - 1;
  const float* const in = Floats(x);
  float* const y = Floats(out);
  const float* const weights = WeightsOf(spec.weights);
  std::byte* const tail = state_->data(spec.tail);
  const bool half_tail = state_->spec(spec.tail).row_bytes == int64_t{2} * history * channels;
  const auto load_tail = [=](int32_t row, int32_t channel) {
    const size_t at = static_cast<size_t>(row) * static_cast<size_t>(channels) + channel;
    if (half_tail) return FloatFromFp16(reinterpret_cast<const uint16_t*>(tail)[at]);
    return reinterpret_cast<const float*>(tail)[at];
  };
  const auto store_tail = [=](int32_t row, int32_t channel, float value) {
    const size_t at = static_cast<size_t>(row) * static_cast<size_t>(channels) + channel;
    if (half_tail) {
      reinterpret_cast<uint16_t*>(tail)[at] = Fp16FromFloat(value);
    } else {
      reinterpret_cast<float*>(tail)[at] = value;
    }
  };
  pool_.ParallelFor(channels, kChannelGrain, [&](int begin, int end) {
    // Row -history is the oldest of the tail.
    const auto input = [&](int32_t row, int32_t channel) {
      return row < 0 ? load_tail(row + history, channel)
                     : in[static_cast<size_t>(row) * static_cast<size_t>(channels) + channel];
    };
    for (int32_t row = 0; row < params_.rows; ++row) {
      float* const y_row = y + static_cast<size_t>(row) * static_cast<size_t>(channels);
      for (int32_t channel = begin; channel < end; ++channel) {
        float sum = 0;
        for (int32_t tap = 0; tap < spec.taps; ++tap) {
          sum = std::fma(weights[ptrdiff_t{channel} * spec.taps + tap],
                         input(row - history + tap, channel), sum);
        }
        y_row[channel] = sum * Sigmoid(sum);
      }
    }
    for (int32_t channel = begin; channel < end; ++channel) {
      // Oldest first: each slot is read before a later one overwrites it.
      for (int32_t row = 0; row < history; ++row) {
        store_tail(row, channel, input(params_.rows - history + row, channel));
      }
    }
  });
}

void CpuBackend::GatedDeltaNet(const DeltaNetSpec& spec, Tensor qkv, Tensor a, Tensor b,
                               Tensor out) {
  Check(spec.key_dim <= kMaxHeadDim && spec.value_dim <= kMaxHeadDim, "heads fit the kernels");
  const float* const projected = Floats(qkv);
  const float* const a_rows = Floats(a);
  const float* const b_rows = Floats(b);
  float* const y = Floats(out);
  const float* const a_log = WeightsOf(spec.a_log);
  const float* const dt_bias = WeightsOf(spec.dt_bias);
  auto* const states = reinterpret_cast<float*>(state_->data(spec.state));
  const int32_t key_cols = spec.key_heads * spec.key_dim;
  const int32_t heads_per_key = spec.value_heads / spec.key_heads;
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(spec.key_dim));

  pool_.Run(spec.value_heads, [&](int head) {
    float* const state = states + ptrdiff_t{head} * spec.value_dim * spec.key_dim;
    std::array<float, kMaxHeadDim> query;
    std::array<float, kMaxHeadDim> key;
    const float decay_rate = std::exp(a_log[head]);
    for (int32_t row = 0; row < params_.rows; ++row) {
      const float* const q =
          projected + ptrdiff_t{row} * qkv.cols + ptrdiff_t{head / heads_per_key} * spec.key_dim;
      const float* const k = q + key_cols;
      const float* const v = projected + ptrdiff_t{row} * qkv.cols + ptrdiff_t{2} * key_cols +
                             ptrdiff_t{head} * spec.value_dim;
      NormaliseHead(q, spec.key_dim, query_scale, query.data());
      NormaliseHead(k, spec.key_dim, 1.0f, key.data());
      const ptrdiff_t gate = ptrdiff_t{row} * spec.value_heads + head;
      const float decay = std::exp(-decay_rate * Softplus(a_rows[gate] + dt_bias[head]));
      const float beta = Sigmoid(b_rows[gate]);
      float* const y_head = y + ptrdiff_t{row} * out.cols + ptrdiff_t{head} * spec.value_dim;
      for (int32_t i = 0; i < spec.value_dim; ++i) {
        float* const s = state + ptrdiff_t{i} * spec.key_dim;
        const float predicted = decay * kernels_.dot(s, key.data(), spec.key_dim);
        const float correction = beta * (v[i] - predicted);
        for (int32_t j = 0; j < spec.key_dim; ++j) s[j] *= decay;
        kernels_.accumulate(correction, key.data(), spec.key_dim, s);
        y_head[i] = kernels_.dot(s, query.data(), spec.key_dim);
      }
    }
  });
}

// out = x / sqrt(sum(x^2) + 1e-6) * scale.
void CpuBackend::NormaliseHead(const float* x, int32_t n, float scale, float* out) const {
  const float factor = scale / std::sqrt(kernels_.dot(x, x, n) + 1e-6f);
  for (int32_t i = 0; i < n; ++i) out[i] = x[i] * factor;
}

}  // namespace mference::cpu
