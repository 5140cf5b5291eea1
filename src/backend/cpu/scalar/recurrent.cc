// Reference: short convolutions and the gated delta rule.
#include <cmath>

#include "backend/cpu/tables.h"

namespace mference::cpu::scalar {
namespace {

void ShortConvolution(const ConvolutionRows& rows, int begin, int end) {
  constexpr int kHistory = kConvolutionTaps - 1;
  for (int i = 0; i < rows.rows; ++i) {
    for (int c = begin; c < end; ++c) {
      float sum = 0;
      for (int j = 0; j < kConvolutionTaps; ++j) {
        const int row = i - kHistory + j;
        const float* x =
            row < 0 ? rows.history + (row + kHistory) * rows.stride : rows.x + row * rows.stride;
        sum = std::fma(rows.weights[ptrdiff_t{c} * kConvolutionTaps + j], x[c], sum);
      }
      rows.out[i * rows.stride + c] = sum / (1.0f + std::exp(-sum));
    }
  }
}

float Dot(const float* a, const float* b, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum = std::fma(a[i], b[i], sum);
  return sum;
}

void DeltaSteps(const DeltaRows& rows, float* state) {
  for (int i = 0; i < rows.rows; ++i) {
    const float* q = rows.q + ptrdiff_t{i} * rows.key_dim;
    const float* k = rows.k + ptrdiff_t{i} * rows.key_dim;
    for (int r = 0; r < rows.value_dim; ++r) {
      float* s = state + ptrdiff_t{r} * rows.key_dim;
      for (int d = 0; d < rows.key_dim; ++d) s[d] *= rows.decay[i];
      const float predicted = Dot(s, k, rows.key_dim);
      const float correction = rows.beta[i] * (rows.v[i * rows.v_stride + r] - predicted);
      for (int d = 0; d < rows.key_dim; ++d) s[d] = std::fma(correction, k[d], s[d]);
      rows.out[i * rows.out_stride + r] = Dot(s, q, rows.key_dim);
    }
  }
}

// Products k_j k_i and k_j q_i [rows, rows], and the corrections of one value dimension.
size_t DeltaChunkFloats(int, int) { return 2 * kMaxDeltaRows * kMaxDeltaRows + kMaxDeltaRows; }

// What row j adds to the state, correction_j k_j, has decayed by between(j, i) at row i. So one
// value dimension of S after row i is
//   before * S_0 + sum over j <= i of between(j, i) correction_j k_j
// which gives both the predictions and the outputs from products of keys and queries.
void DeltaChunk(const DeltaRows& rows, float* state, float* scratch) {
  const int dim = rows.key_dim;
  const auto key = [&](int i) { return rows.k + ptrdiff_t{i} * dim; };
  const auto query = [&](int i) { return rows.q + ptrdiff_t{i} * dim; };
  float* key_products = scratch;
  float* query_products = key_products + kMaxDeltaRows * kMaxDeltaRows;
  float* corrections = query_products + kMaxDeltaRows * kMaxDeltaRows;
  for (int i = 0; i < rows.rows; ++i) {
    for (int j = 0; j <= i; ++j) {
      key_products[i * kMaxDeltaRows + j] = Dot(key(j), key(i), dim);
      query_products[i * kMaxDeltaRows + j] = Dot(key(j), query(i), dim);
    }
  }
  for (int r = 0; r < rows.value_dim; ++r) {
    float* s = state + ptrdiff_t{r} * dim;
    float before = 1;
    for (int i = 0; i < rows.rows; ++i) {
      before *= rows.decay[i];
      float predicted = before * Dot(s, key(i), dim);
      float out = before * Dot(s, query(i), dim);
      float between = rows.decay[i];
      for (int j = i - 1; j >= 0; --j) {
        const float decayed = between * corrections[j];
        predicted = std::fma(decayed, key_products[i * kMaxDeltaRows + j], predicted);
        out = std::fma(decayed, query_products[i * kMaxDeltaRows + j], out);
        between *= rows.decay[j];
      }
      corrections[i] = rows.beta[i] * (rows.v[i * rows.v_stride + r] - predicted);
      rows.out[i * rows.out_stride + r] =
          std::fma(corrections[i], query_products[i * kMaxDeltaRows + i], out);
    }
    for (int d = 0; d < dim; ++d) s[d] *= before;
    float between = 1;
    for (int j = rows.rows - 1; j >= 0; --j) {
      const float decayed = between * corrections[j];
      for (int d = 0; d < dim; ++d) s[d] = std::fma(decayed, key(j)[d], s[d]);
      between *= rows.decay[j];
    }
  }
}

}  // namespace

void FillRecurrent(Kernels& table) {
  table.short_convolution = ShortConvolution;
  table.delta_steps = DeltaSteps;
  table.delta_chunk_floats = DeltaChunkFloats;
  table.delta_chunk = DeltaChunk;
}

}  // namespace mference::cpu::scalar
