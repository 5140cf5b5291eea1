// Reference: operations on vectors of floats.
#include <algorithm>
#include <cmath>

#include "backend/cpu/tables.h"
#include "base/float16.h"

namespace mference::cpu::scalar {
namespace {

// The factor 1 / sqrt(mean(x^2) + eps).
float InverseRms(const float* x, float eps, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum = std::fma(x[i], x[i], sum);
  return 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
}

void RmsNorm(const float* x, const float* weight, float eps, int n, float* out) {
  const float factor = InverseRms(x, eps, n);
  for (int i = 0; i < n; ++i) out[i] = x[i] * factor * (weight != nullptr ? weight[i] : 1.0f);
}

void AddRmsNorm(const float* x, const float* weight, float eps, float scale, int n,
                float* residual) {
  const float factor = InverseRms(x, eps, n);
  for (int i = 0; i < n; ++i) {
    const float normed = x[i] * factor * (weight != nullptr ? weight[i] : 1.0f);
    residual[i] = (residual[i] + normed) * scale;
  }
}

void AddScaled(const float* a, const float* b, float scale, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = (a[i] + b[i]) * scale;
}

void Accumulate(float w, const float* y, int n, float* acc) {
  for (int i = 0; i < n; ++i) acc[i] = std::fma(w, y[i], acc[i]);
}

void GeluProduct(const float* gate, const float* up, int n, float* out) {
  constexpr float kSqrt2OverPi = 0.797884560802865f;
  for (int i = 0; i < n; ++i) {
    const float x = gate[i];
    const float angle = kSqrt2OverPi * (x + 0.044715f * x * x * x);
    // x/2 (1 + tanh(a)) = x / (1 + exp(-2a)), which does not cancel for negative a.
    out[i] = x / (1.0f + std::exp(-2.0f * angle)) * up[i];
  }
}

void SiluProduct(const float* gate, const float* up, float limit, int n, float* out) {
  for (int i = 0; i < n; ++i) {
    const float g = std::min(gate[i], limit);
    const float u = std::clamp(up[i], -limit, limit);
    out[i] = g / (1.0f + std::exp(-g)) * u;
  }
}

void SigmoidProduct(const float* x, const float* gate, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = x[i] / (1.0f + std::exp(-gate[i]));
}

void L2Normalise(const float* x, float eps, float scale, int n, float* out) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum = std::fma(x[i], x[i], sum);
  const float factor = scale / std::sqrt(sum + eps);
  for (int i = 0; i < n; ++i) out[i] = x[i] * factor;
}

void Softmax(const float* x, int n, float* out) {
  const float max = *std::max_element(x, x + n);
  float sum = 0;
  for (int i = 0; i < n; ++i) {
    out[i] = std::exp(x[i] - max);
    sum += out[i];
  }
  for (int i = 0; i < n; ++i) out[i] /= sum;
}

void SoftCap(const float* x, float cap, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = cap * std::tanh(x[i] / cap);
}

void Rope(float* x, int half, int pairs, const float* cosines, const float* sines) {
  for (int i = 0; i < pairs; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = std::fma(a, cosines[i], -(b * sines[i]));
    x[i + half] = std::fma(b, cosines[i], a * sines[i]);
  }
}

float Dot(const float* a, const float* b, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum = std::fma(a[i], b[i], sum);
  return sum;
}

int Argmax(const float* x, int n) {
  int best = -1;
  for (int i = 0; i < n; ++i) {
    if (!std::isnan(x[i]) && (best < 0 || x[i] > x[best])) best = i;
  }
  return best;
}

void F16FromF32(const float* x, int n, uint16_t* out) {
  for (int i = 0; i < n; ++i) out[i] = Fp16FromFloat(x[i]);
}

void F32FromF16(const uint16_t* x, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = FloatFromFp16(x[i]);
}

void Bf16FromF32(const float* x, int n, uint16_t* out) {
  for (int i = 0; i < n; ++i) out[i] = Bf16FromFloat(x[i]);
}

void F32FromBf16(const uint16_t* x, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = FloatFromBf16(x[i]);
}

}  // namespace

void FillElementwise(Kernels& table) {
  table.rms_norm = RmsNorm;
  table.add_rms_norm = AddRmsNorm;
  table.add_scaled = AddScaled;
  table.accumulate = Accumulate;
  table.gelu_product = GeluProduct;
  table.silu_product = SiluProduct;
  table.sigmoid_product = SigmoidProduct;
  table.l2_normalise = L2Normalise;
  table.softmax = Softmax;
  table.soft_cap = SoftCap;
  table.rope = Rope;
  table.dot = Dot;
  table.argmax = Argmax;
  table.f16_from_f32 = F16FromF32;
  table.f32_from_f16 = F32FromF16;
  table.bf16_from_f32 = Bf16FromF32;
  table.f32_from_bf16 = F32FromBf16;
}

}  // namespace mference::cpu::scalar
