// Kernels at the shapes of a full-size model, beside the read bandwidth of the same run.
//
//   kernels_bench --benchmark_filter=Matmul --benchmark_repetitions=5
//
// Matrix-vector cases walk through a pool of matrices larger than any cache, as decoding does:
// their figure is GB/s of packed weights, to be read against ReadMemory. Matrix-matrix cases report
// FLOP/s or OP/s (two per multiply-add).
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/thread_pool.h"

namespace mference::cpu {
namespace {

constexpr size_t kPoolBytes = size_t{1} << 29;

// Random bytes on huge pages, shared by all cases. Filled with codes, and with small BF16 values
// for whatever is read as scales.
const std::byte* Pool() {
  static const std::byte* const pool = [] {
    void* at =
        mmap(nullptr, kPoolBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    madvise(at, kPoolBytes, MADV_HUGEPAGE);
    std::mt19937 random(1);
    auto* words = static_cast<uint32_t*>(at);
    // Both halves of each word are BF16 values of 2^-7 to 2^-6, so any part can be scales.
    for (size_t i = 0; i < kPoolBytes / 4; ++i) {
      words[i] = (static_cast<uint32_t>(random()) & 0x807f807fu) | 0x3c003c00u;
    }
    return static_cast<const std::byte*>(at);
  }();
  return pool;
}

const Kernels& Table(const benchmark::State& state) {
  static const char* const kNames[] = {"scalar", "avx2", "avx512", "neon"};
  const KernelChoice choice = SelectKernels(kNames[state.range(0)]);
  return choice.kernels != nullptr ? *choice.kernels : *SelectKernels("auto").kernels;
}

void ReadMemory(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  // One load per cache line: the memory is the bound, not the loads.
  using Wide [[gnu::vector_size(16)]] = uint64_t;
  const auto* data = static_cast<const Wide*>(static_cast<const void*>(Pool()));
  // Asked for ahead, as the matrix products do: hardware alone stops at every page.
  constexpr size_t kAhead = 8192 / sizeof(Wide);
  constexpr int kChunk = 1 << 20;
  constexpr auto kChunks = static_cast<int>(kPoolBytes / kChunk);
  for (auto _ : state) {
    pool.ParallelFor(kChunks, 1, [&](int begin, int end) {
      Wide sums[4] = {};
      const size_t last = static_cast<size_t>(end) * kChunk / sizeof(Wide);
      for (size_t i = static_cast<size_t>(begin) * kChunk / sizeof(Wide); i < last; i += 16) {
        for (int line = 0; line < 4; ++line) __builtin_prefetch(data + i + kAhead + line * 4);
        sums[0] ^= data[i];
        sums[1] ^= data[i + 4];
        sums[2] ^= data[i + 8];
        sums[3] ^= data[i + 12];
      }
      sums[0] ^= sums[1] ^ sums[2] ^ sums[3];
      benchmark::DoNotOptimize(sums[0]);
    });
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kPoolBytes));
}

// Of the arguments from the third on: format, rows, cols, group.
WeightMatrix ShapeOf(const benchmark::State& state) {
  WeightMatrix w;
  w.format = static_cast<WeightFormat>(state.range(2));
  w.rows = static_cast<int>(state.range(3));
  w.cols = static_cast<int>(state.range(4));
  w.group = static_cast<int>(state.range(5));
  return w;
}

// Points at the matrix that begins `offset` bytes into the pool, and moves on to the next one.
void TakeFromPool(WeightMatrix& w, size_t data_bytes, size_t scale_bytes, size_t& offset) {
  const size_t matrix_bytes = data_bytes + 2 * scale_bytes;
  if (offset + matrix_bytes > kPoolBytes) offset = 0;
  w.data = Pool() + offset;
  w.scales = static_cast<const uint16_t*>(static_cast<const void*>(w.data + data_bytes));
  w.biases = w.scales + scale_bytes / 2;
  offset += (matrix_bytes + 63) / 64 * 64;
}

// [n, cols], from -1 to 1.
std::vector<float> Activations(int n, int cols) {
  std::vector<float> x(static_cast<size_t>(n) * static_cast<size_t>(cols));
  std::mt19937 random(2);
  for (float& v : x) v = static_cast<float>(random() % 2001) * 0.001f - 1.0f;
  return x;
}

// Arguments: table, threads, format, rows, cols, group, rows of activations.
void Matmul(benchmark::State& state) {
  const Kernels& k = Table(state);
  ThreadPool pool(static_cast<int>(state.range(1)));
  WeightMatrix w = ShapeOf(state);
  const auto n = static_cast<int>(state.range(6));
  const size_t data_bytes = static_cast<size_t>(w.rows) * RowBytes(w);
  const size_t scale_bytes =
      IsAffine(w.format) ? static_cast<size_t>(w.rows) * static_cast<size_t>(w.cols / w.group) * 2
                         : 0;
  const size_t matrix_bytes = data_bytes + 2 * scale_bytes;

  const std::vector<float> x = Activations(n, w.cols);
  std::vector<float> y(static_cast<size_t>(n) * static_cast<size_t>(w.rows));
  const size_t floats = k.matmul_prepared_floats(w, n);
  auto* prepared = static_cast<float*>(std::aligned_alloc(64, (floats * 4 + 63) / 64 * 64));

  size_t offset = 0;
  for (auto _ : state) {
    TakeFromPool(w, data_bytes, scale_bytes, offset);
    pool.ParallelFor(n, 1, [&](int begin, int end) {
      k.matmul_prepare(w, x.data(), w.cols, n, begin, end, prepared);
    });
    pool.ParallelFor(w.rows, k.matmul_row_tile, [&](int begin, int end) {
      k.matmul(w, prepared, n, y.data(), w.rows, begin, end);
    });
    benchmark::ClobberMemory();
  }
  std::free(prepared);
  state.SetLabel(k.name);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(matrix_bytes));
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * w.rows * w.cols * n, benchmark::Counter::kIsIterationInvariantRate,
                         benchmark::Counter::kIs1000);
}

// One row of activations rounded to 16 bits: decode. Arguments: table, threads, format, rows, cols,
// group.
void SingleRow(benchmark::State& state) {
  const Kernels& k = Table(state);
  ThreadPool pool(static_cast<int>(state.range(1)));
  WeightMatrix w = ShapeOf(state);
  const size_t data_bytes = static_cast<size_t>(w.rows) * RowBytes(w);
  const size_t scale_bytes =
      static_cast<size_t>(w.rows) * static_cast<size_t>(w.cols / w.group) * 2;
  const size_t matrix_bytes = data_bytes + 2 * scale_bytes;
  std::vector<float> x(static_cast<size_t>(w.cols), 0.5f);
  std::vector<float> y(static_cast<size_t>(w.rows));
  const size_t bytes = k.single_row_prepared_bytes(w);
  auto* prepared = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  k.single_row_prepare(w, x.data(), prepared);
  size_t offset = 0;
  for (auto _ : state) {
    TakeFromPool(w, data_bytes, scale_bytes, offset);
    pool.ParallelFor(w.rows, k.matmul_row_tile, [&](int begin, int end) {
      k.single_row_matmul(w, prepared, y.data(), begin, end);
    });
    benchmark::ClobberMemory();
  }
  std::free(prepared);
  state.SetLabel(k.name);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(matrix_bytes));
}

// Activations rounded to 8 bits: prefill. Operations are those of the product; the time is that of
// the preparation too. Arguments: table, threads, format, rows, cols, group, rows of activations.
void Quantised(benchmark::State& state) {
  const Kernels& k = Table(state);
  ThreadPool pool(static_cast<int>(state.range(1)));
  WeightMatrix w = ShapeOf(state);
  const auto n = static_cast<int>(state.range(6));
  const size_t data_bytes = static_cast<size_t>(w.rows) * RowBytes(w);
  const size_t scale_bytes =
      static_cast<size_t>(w.rows) * static_cast<size_t>(w.cols / w.group) * 2;
  const std::vector<float> x = Activations(n, w.cols);
  std::vector<float> y(static_cast<size_t>(n) * static_cast<size_t>(w.rows));
  const size_t bytes = k.quantised_prepared_bytes(w, n);
  auto* prepared = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  size_t offset = 0;
  for (auto _ : state) {
    TakeFromPool(w, data_bytes, scale_bytes, offset);
    pool.ParallelFor(n, 1, [&](int begin, int end) {
      k.quantised_prepare(w, x.data(), w.cols, n, begin, end, prepared);
    });
    pool.ParallelFor(w.rows, k.matmul_row_tile, [&](int begin, int end) {
      k.quantised_matmul(w, prepared, n, y.data(), w.rows, begin, end);
    });
    benchmark::ClobberMemory();
  }
  std::free(prepared);
  state.SetLabel(k.name);
  state.counters["OP/s"] =
      benchmark::Counter(2.0 * w.rows * w.cols * n, benchmark::Counter::kIsIterationInvariantRate,
                         benchmark::Counter::kIs1000);
}

// Arguments: table, threads, KV heads, heads per KV head, head_dim, query rows, history.
void Attention(benchmark::State& state) {
  const Kernels& k = Table(state);
  ThreadPool pool(static_cast<int>(state.range(1)));
  const auto kv_heads = static_cast<int>(state.range(2));
  const auto heads = static_cast<int>(state.range(3));
  const auto head_dim = static_cast<int>(state.range(4));
  const auto rows = static_cast<int>(state.range(5));
  const auto history = static_cast<int>(state.range(6));
  const int tile_rows = std::max(1, std::min(rows, kMaxTileQueries / heads));
  const int tiles = (rows + tile_rows - 1) / tile_rows;
  const int positions = history + rows;
  const auto head_elements = static_cast<size_t>(positions) * static_cast<size_t>(head_dim);
  const size_t cache_bytes = static_cast<size_t>(kv_heads) * head_elements * 4;
  const int width = kv_heads * heads * head_dim;
  std::vector<float> q(static_cast<size_t>(rows) * static_cast<size_t>(width), 0.1f);
  std::vector<float> out(q.size());
  std::vector<int32_t> begin(static_cast<size_t>(rows), 0);
  std::vector<int32_t> end(static_cast<size_t>(rows));
  for (int i = 0; i < rows; ++i) end[static_cast<size_t>(i)] = history + i + 1;
  const AttentionTile widest{tile_rows, heads, head_dim, 1.0f, begin.data(), end.data()};
  const size_t floats = k.attention_state_floats(widest);
  std::vector<float> states(floats * static_cast<size_t>(kv_heads * tiles));
  size_t offset = 0;
  for (auto _ : state) {
    if (offset + cache_bytes > kPoolBytes) offset = 0;
    const auto* kv = static_cast<const uint16_t*>(static_cast<const void*>(Pool() + offset));
    offset += (cache_bytes + 63) / 64 * 64;
    pool.Run(kv_heads * tiles, [&](int task) {
      const int head = task % kv_heads;
      const int first = task / kv_heads * tile_rows;
      AttentionTile tile = widest;
      tile.rows = std::min(tile_rows, rows - first);
      tile.visible_begin += first;
      tile.visible_end += first;
      KeyValueRun run;
      run.k = kv + static_cast<size_t>(2 * head) * head_elements;
      run.v = kv + static_cast<size_t>(2 * head + 1) * head_elements;
      run.k_stride = run.v_stride = head_dim;
      run.count = positions;
      float* s = states.data() + static_cast<size_t>(task) * floats;
      const ptrdiff_t at = static_cast<ptrdiff_t>(first) * width + head * heads * head_dim;
      k.attention_begin(tile, q.data() + at, width, nullptr, s);
      k.attention_run(tile, run, s);
      k.attention_end(tile, s, out.data() + at, width);
    });
    benchmark::ClobberMemory();
  }
  state.SetLabel(k.name);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(cache_bytes));
  state.counters["FLOP/s"] = benchmark::Counter(
      4.0 * kv_heads * heads * head_dim * (static_cast<double>(rows) * history + 0.5 * rows * rows),
      benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

// One token's width of the operations between matrix products. Arguments: table, operation.
void Elementwise(benchmark::State& state) {
  const Kernels& k = Table(state);
  constexpr int kN = 2816;
  std::vector<float> a(kN, 0.3f);
  std::vector<float> b(kN, 0.7f);
  std::vector<float> out(kN);
  for (auto _ : state) {
    switch (state.range(1)) {
      case 0:
        k.rms_norm(a.data(), b.data(), 1e-6f, kN, out.data());
        break;
      case 1:
        k.gelu_product(a.data(), b.data(), kN, out.data());
        break;
      case 2:
        k.softmax(a.data(), kN, out.data());
        break;
      default:
        k.soft_cap(a.data(), 30, kN, out.data());
    }
    benchmark::ClobberMemory();
  }
  state.SetLabel(k.name);
  state.SetItemsProcessed(state.iterations() * kN);
}

constexpr int64_t kAvx2 = 1;
constexpr int64_t kAvx512 = 2;

void SingleRowShapes(benchmark::internal::Benchmark* b) {
  const auto affine4 = static_cast<int64_t>(WeightFormat::kAffine4);
  const auto affine8 = static_cast<int64_t>(WeightFormat::kAffine8);
  for (const int64_t threads : {1, 2}) {
    for (const int64_t table : {kAvx512, kAvx2}) {
      for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
               {4096, 2816}, {704, 2816}, {2816, 704}, {2816, 8192}, {32768, 2816}}) {
        b->Args({table, threads, affine4, rows, cols, 64});
      }
      b->Args({table, threads, affine8, 4096, 2816, 64});
    }
  }
}

void MatrixShapes(benchmark::internal::Benchmark* b) {
  const auto affine4 = static_cast<int64_t>(WeightFormat::kAffine4);
  const auto affine8 = static_cast<int64_t>(WeightFormat::kAffine8);
  const auto affine2 = static_cast<int64_t>(WeightFormat::kAffine2);
  const auto bf16 = static_cast<int64_t>(WeightFormat::kBf16);
  for (const int64_t threads : {1, 2}) {
    for (const int64_t table : {kAvx512, kAvx2}) {
      for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
               {4096, 2816}, {2112, 2816}, {2816, 2112}, {704, 2816}, {2816, 704}, {32768, 2816}}) {
        b->Args({table, threads, affine4, rows, cols, 64, 1});
      }
      b->Args({table, threads, affine8, 4096, 2816, 64, 1});
      b->Args({table, threads, affine2, 4096, 2816, 64, 1});
      b->Args({table, threads, bf16, 4096, 2816, 0, 1});
      for (const int64_t n : {2, 3, 4, 5, 6, 8, 12, 16, 32, 128, 512}) {
        b->Args({table, threads, affine4, 2112, 2816, 64, n});
      }
      for (const int64_t n : {4, 8, 128}) {
        b->Args({table, threads, affine4, 704, 2816, 64, n});
        b->Args({table, threads, affine4, 2816, 704, 64, n});
        b->Args({table, threads, affine4, 4096, 2816, 64, n});
        b->Args({table, threads, affine4, 2816, 4096, 64, n});
      }
    }
  }
}

void QuantisedShapes(benchmark::internal::Benchmark* b) {
  const auto affine4 = static_cast<int64_t>(WeightFormat::kAffine4);
  for (const int64_t threads : {1, 2}) {
    for (const int64_t table : {kAvx512, kAvx2}) {
      for (const int64_t n : {8, 32, 128, 512}) {
        b->Args({table, threads, affine4, 704, 2816, 64, n});
        b->Args({table, threads, affine4, 2816, 704, 64, n});
        b->Args({table, threads, affine4, 4096, 2816, 64, n});
      }
    }
  }
}

void AttentionShapes(benchmark::internal::Benchmark* b) {
  for (const int64_t threads : {1, 2}) {
    for (const int64_t table : {kAvx512, kAvx2}) {
      b->Args({table, threads, 8, 2, 256, 1, 1023});
      b->Args({table, threads, 2, 8, 512, 1, 4095});
      b->Args({table, threads, 8, 2, 256, 128, 1024});
      b->Args({table, threads, 2, 8, 512, 128, 4096});
    }
  }
}

BENCHMARK(ReadMemory)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(SingleRow)->Apply(SingleRowShapes)->UseRealTime();
BENCHMARK(Matmul)->Apply(MatrixShapes)->UseRealTime();
BENCHMARK(Quantised)->Apply(QuantisedShapes)->UseRealTime();
BENCHMARK(Attention)->Apply(AttentionShapes)->UseRealTime();
BENCHMARK(Elementwise)->ArgsProduct({{kAvx512, kAvx2}, {0, 1, 2, 3}});

}  // namespace
}  // namespace mference::cpu

BENCHMARK_MAIN();
