// The gated delta rule, row by row and as chunks, at the shape of a full-size layer: 32 heads of
// 128 x 128, on one thread.
//
//   recurrent_bench --benchmark_filter=Delta --benchmark_repetitions=5
//
// FLOP/s count the rule itself, four multiply-adds per element of the state and row, for both forms
// alike: what matters is the time.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"

namespace mference::cpu {
namespace {

constexpr int kHeads = 32;
constexpr int kDim = 128;

const Kernels& Table(const benchmark::State& state) {
  static const char* const kNames[] = {"scalar", "avx2", "avx512", "neon"};
  const KernelChoice choice = SelectKernels(kNames[state.range(0)]);
  return choice.kernels != nullptr ? *choice.kernels : *SelectKernels("auto").kernels;
}

std::vector<float> Random(size_t n, float low, float high) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> values(n);
  for (float& value : values) value = uniform(random);
  return values;
}

// Arguments: table, rows.
template <bool kChunks>
void Delta(benchmark::State& state) {
  const Kernels& k = Table(state);
  const auto rows = static_cast<int>(state.range(1));
  constexpr int kWidth = kHeads * kDim;
  const size_t size = static_cast<size_t>(rows) * kWidth;
  // Keys of length 1; queries and values alike, for want of anything better.
  std::vector<float> keys = Random(size, -0.15f, 0.15f);  // [head, rows, dim]
  for (size_t at = 0; at < size; at += kDim) {
    k.l2_normalise(&keys[at], 1e-6f, 1.0f, kDim, &keys[at]);
  }
  const std::vector<float> values = Random(size, -1, 1);  // [rows, head, dim]
  const std::vector<float> decay = Random(static_cast<size_t>(rows), 0.8f, 1);
  const std::vector<float> beta = Random(static_cast<size_t>(rows), 0, 1);
  std::vector<float> out(size);
  std::vector<float> states(static_cast<size_t>(kWidth) * kDim);
  const size_t scratch_floats = k.delta_chunk_floats(kDim, kDim);
  std::vector<float> scratch(scratch_floats);
  for (auto _ : state) {
    for (int head = 0; head < kHeads; ++head) {
      float* const s = &states[static_cast<size_t>(head) * kDim * kDim];
      for (int first = 0; first < rows; first += kMaxDeltaRows) {
        const size_t at =
            (static_cast<size_t>(head) * static_cast<size_t>(rows) + static_cast<size_t>(first)) *
            kDim;
        const size_t value_at =
            static_cast<size_t>(first) * kWidth + static_cast<size_t>(head) * kDim;
        const DeltaRows delta{.rows = std::min(rows - first, kMaxDeltaRows),
                              .key_dim = kDim,
                              .value_dim = kDim,
                              .q = &keys[at],
                              .k = &keys[at],
                              .v = &values[value_at],
                              .v_stride = kWidth,
                              .decay = &decay[static_cast<size_t>(first)],
                              .beta = &beta[static_cast<size_t>(first)],
                              .out = &out[value_at],
                              .out_stride = kWidth};
        if constexpr (kChunks) {
          k.delta_chunk(delta, s, scratch.data());
        } else {
          k.delta_steps(delta, s);
        }
      }
    }
    benchmark::ClobberMemory();
  }
  state.SetLabel(k.name);
  state.SetItemsProcessed(state.iterations() * rows);
  state.counters["FLOP/s"] =
      benchmark::Counter(8.0 * kWidth * kDim * rows, benchmark::Counter::kIsIterationInvariantRate,
                         benchmark::Counter::kIs1000);
  state.counters["s/row"] = benchmark::Counter(
      rows, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// Arguments: table, rows; 8,192 channels.
void ShortConvolution(benchmark::State& state) {
  const Kernels& k = Table(state);
  constexpr int kChannels = 8192;
  const auto rows = static_cast<int>(state.range(1));
  const size_t size = static_cast<size_t>(rows) * kChannels;
  const std::vector<float> weights = Random(size_t{kChannels} * kConvolutionTaps, -1, 1);
  const std::vector<float> history = Random(size_t{kChannels} * (kConvolutionTaps - 1), -1, 1);
  const std::vector<float> x = Random(size, -1, 1);
  std::vector<float> out(size);
  for (auto _ : state) {
    k.short_convolution({.rows = rows,
                         .stride = kChannels,
                         .weights = weights.data(),
                         .history = history.data(),
                         .x = x.data(),
                         .out = out.data()},
                        0, kChannels);
    benchmark::ClobberMemory();
  }
  state.SetLabel(k.name);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(size * 2 * sizeof(float)));
}

constexpr int64_t kAvx2 = 1;
constexpr int64_t kAvx512 = 2;

BENCHMARK(Delta<false>)
    ->Name("DeltaSteps")
    ->ArgsProduct({{kAvx512, kAvx2}, {1, 4, 6, 8, 16, 32, 64, 256, 512}});
BENCHMARK(Delta<true>)
    ->Name("DeltaChunk")
    ->ArgsProduct({{kAvx512, kAvx2}, {1, 4, 6, 8, 16, 32, 64, 256, 512}});
BENCHMARK(ShortConvolution)->ArgsProduct({{kAvx512, kAvx2}, {1, 128}});

}  // namespace
}  // namespace mference::cpu

BENCHMARK_MAIN();
