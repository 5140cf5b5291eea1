// The table of CPU kernels: every arithmetic loop of the CPU backend, once per instruction set.
//
// A kernel computes; it owns nothing, allocates nothing, throws nothing and starts no threads. The
// caller splits work over threads by ranges (rows of a weight matrix, tiles of queries, ranges of a
// vector) and gives scratch. Whatever the split, an output element comes from the same operations
// in the same order, so thread count never changes a byte. Two instruction sets, or two widths of
// a batch, may differ in rounding only.
//
// All activations are FP32. Sizes are positive unless said otherwise. Pointers to weights need only
// their element's alignment (2 bytes for packed codes); pointers to activations, 4 bytes. Outputs
// do not overlap inputs unless a kernel says that it works in place.
//
// `matmul_*` take FP32 activations. Kernels over reduced-precision activations have entries of
// their own beside them, `quantised_*`, never the same names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mference::cpu {

// How the values of a weight matrix are stored.
//
// Affine: unsigned codes of 2, 4 or 8 bits, packed lowest bits first in little-endian order along a
// row, with one BF16 scale and one BF16 bias per `group` columns of each row:
// value = scale * code + bias.
enum class WeightFormat : uint8_t { kAffine2, kAffine4, kAffine8, kBf16, kF32 };

// A borrowed view of a weight matrix W [rows, cols], row-major: y = W x.
// Columns that share a scale when activations are rounded to 8 bits: the coarse ones cost less
// arithmetic, the fine ones less accuracy.
constexpr int kFineBlock = 32;
constexpr int kCoarseBlock = 64;

struct WeightMatrix {
  WeightFormat format = WeightFormat::kF32;
  int rows = 0;
  int cols = 0;                       // a multiple of `group`; of 16 for kBf16 and kF32
  int group = 0;                      // affine: 32, 64 or 128
  const std::byte* data = nullptr;    // codes, or the values themselves
  const uint16_t* scales = nullptr;   // affine: BF16 [rows, cols / group]
  const uint16_t* biases = nullptr;   // affine: BF16 [rows, cols / group]
  int activation_block = kFineBlock;  // what `ActivationBlock` is at most
};

// Bits that one stored value takes, without scales and biases.
constexpr int BitsPerValue(WeightFormat format) {
  switch (format) {
    case WeightFormat::kAffine2:
      return 2;
    case WeightFormat::kAffine4:
      return 4;
    case WeightFormat::kAffine8:
      return 8;
    case WeightFormat::kBf16:
      return 16;
    case WeightFormat::kF32:
      return 32;
  }
  return 0;
}

constexpr bool IsAffine(WeightFormat format) { return BitsPerValue(format) <= 8; }

// Bytes of one row's values, without scales and biases.
constexpr size_t RowBytes(const WeightMatrix& w) {
  return static_cast<size_t>(w.cols) * static_cast<size_t>(BitsPerValue(w.format)) / 8;
}

// Whether `quantised_*` take weights of this format.
constexpr bool IsQuantisable(WeightFormat format) {
  return format == WeightFormat::kAffine2 || format == WeightFormat::kAffine4;
}

// Columns of the blocks that `quantised_*` round activations in.
constexpr int ActivationBlock(const WeightMatrix& w) {
  return w.activation_block < w.group ? w.activation_block : w.group;
}

// ---- Attention

enum class KvType : uint8_t { kF16, kBf16, kF32 };

// Most query vectors (query rows times heads of one KV head) in one tile.
constexpr int kMaxTileQueries = 64;
// Keys are taken in blocks of this many positions, counted from the start of a run. The running
// maximum is updated once per block, so this is part of the result's rounding.
constexpr int kKeyBlock = 64;
constexpr int kMaxHeadDim = 512;

// A tile of query vectors that share one KV head: `rows` query rows times `heads` query heads.
struct AttentionTile {
  int rows = 0;
  int heads = 0;     // rows * heads <= kMaxTileQueries
  int head_dim = 0;  // a multiple of 16, <= kMaxHeadDim
  float scale = 1;   // multiplies the scores
  // Query row i sees the absolute positions [visible_begin[i], visible_end[i]).
  const int32_t* visible_begin = nullptr;  // [rows]
  const int32_t* visible_end = nullptr;    // [rows]
};

// Keys and values of one KV head at consecutive positions. Position first_position + i has its key
// at k + i * k_stride elements and its value at v + i * v_stride.
struct KeyValueRun {
  KvType type = KvType::kF16;
  const void* k = nullptr;
  const void* v = nullptr;
  ptrdiff_t k_stride = 0;
  ptrdiff_t v_stride = 0;
  int32_t first_position = 0;
  int32_t count = 0;  // may be 0
};

// ---- State that every row rewrites

// Taps of a short convolution: the current row and the three before it.
constexpr int kConvolutionTaps = 4;

// A causal depthwise convolution over rows of channels. Row i of x, history and out is at
// i * stride.
struct ConvolutionRows {
  int rows = 0;
  ptrdiff_t stride = 0;
  const float* weights = nullptr;  // [channels, kConvolutionTaps], the last tap for the current row
  const float* history = nullptr;  // the kConvolutionTaps - 1 rows before x, oldest first
  const float* x = nullptr;
  float* out = nullptr;
};

// Most rows that one call of a delta kernel takes.
constexpr int kMaxDeltaRows = 64;
// Both dimensions of a delta rule's state are multiples of kDeltaDimMultiple.
constexpr int kDeltaDimMultiple = 32;
constexpr int kMaxDeltaDim = 128;

// Consecutive rows of one value head under the gated delta rule. With the state S [value_dim,
// key_dim], for each row
//   S = decay S;  S = S + beta (v - S k) k^T;  out = S q
struct DeltaRows {
  int rows = 0;  // <= kMaxDeltaRows
  int key_dim = 0;
  int value_dim = 0;
  const float* q = nullptr;  // [rows, key_dim], normalised and scaled
  const float* k = nullptr;  // [rows, key_dim], normalised
  const float* v = nullptr;  // row i at v + i * v_stride
  ptrdiff_t v_stride = 0;
  const float* decay = nullptr;  // [rows], in [0, 1]
  const float* beta = nullptr;   // [rows], in [0, 1]
  float* out = nullptr;          // row i at out + i * out_stride
  ptrdiff_t out_stride = 0;
};

// ---- The table

// The largest activation that is rounded to 16 bits: 127 * 256 + 127, the largest integer that two
// signed bytes make, q = 256 high + low.
inline constexpr float kSingleRowTop = 32639.0f;

struct Kernels {
  const char* name = nullptr;  // "scalar", "avx2", "avx2-vnni", "avx512", "neon", "neon-i8mm"

  // ---- Weight matrices times rows of activations.
  //
  // `matmul_prepare` rearranges the activations once, in an order that suits the format and the
  // number of rows n; `matmul` may then use them for every matrix of the same format, cols and
  // group. Few rows take a path that decodes weights in registers (bound by memory bandwidth), many
  // rows one that decodes a tile of weights once for all rows (bound by arithmetic).

  // Ranges of weight rows that start at multiples of this are the fastest; any range is right.
  int matmul_row_tile = 1;
  // Floats that prepared activations take. Uses only the format, cols and group of `shape`.
  size_t (*matmul_prepared_floats)(const WeightMatrix& shape, int n) = nullptr;
  // Prepares rows [begin, end) of x [n, cols]; all n rows must be prepared before `matmul`.
  // Row i is at x + i * x_stride. `prepared` is best aligned to 64 bytes.
  void (*matmul_prepare)(const WeightMatrix& shape, const float* x, ptrdiff_t x_stride, int n,
                         int begin, int end, float* prepared) = nullptr;
  // y[i * y_stride + r] = sum over c of W[r, c] * x[i, c], for i in [0, n), r in
  // [row_begin, row_end).
  void (*matmul)(const WeightMatrix& w, const float* prepared, int n, float* y, ptrdiff_t y_stride,
                 int row_begin, int row_end) = nullptr;

  // The same with activations rounded to 8 bits, for formats that `IsQuantisable`. Each block of
  // ActivationBlock columns of a row of x becomes f q + z with integers q in [-128, 127]:
  //   f = (max x - min x) / 255, z = min x + 128 f, q = round((x - min x) / f) - 128, halves to
  //   even.
  // Products of codes and q are then exact, and groups are summed in ascending order. Worth it for
  // prefill, where arithmetic is the bound. A row's result does not depend on n.
  size_t (*quantised_prepared_bytes)(const WeightMatrix& shape, int n) = nullptr;
  void (*quantised_prepare)(const WeightMatrix& shape, const float* x, ptrdiff_t x_stride, int n,
                            int begin, int end, std::byte* prepared) = nullptr;
  // Makes a row that was prepared alone (n = 1) row i of n prepared ones.
  void (*quantised_place)(const WeightMatrix& shape, const std::byte* row, int n, int i,
                          std::byte* prepared) = nullptr;
  void (*quantised_matmul)(const WeightMatrix& w, const std::byte* prepared, int n, float* y,
                           ptrdiff_t y_stride, int row_begin, int row_end) = nullptr;

  // One row of activations rounded to 16 bits, for affine formats: in each group of W's columns x
  // becomes f q with f = max|x| / kSingleRowTop and q = round(x / f), halves to even. Products of a
  // group are then exact integers. For decode, where FP32 arithmetic would be slower than memory.
  size_t (*single_row_prepared_bytes)(const WeightMatrix& shape) = nullptr;
  void (*single_row_prepare)(const WeightMatrix& shape, const float* x,
                             std::byte* prepared) = nullptr;
  void (*single_row_matmul)(const WeightMatrix& w, const std::byte* prepared, float* y,
                            int row_begin, int row_end) = nullptr;

  // out[c] = W[row, c] * factor, the value rounded to FP32 before the product.
  void (*dequantize_row)(const WeightMatrix& w, int row, float factor, float* out) = nullptr;

  // ---- Vectors of n floats. `out` may be an input itself.

  // out = x / sqrt(mean(x^2) + eps) * weight; a null weight stands for ones.
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* out) = nullptr;
  // residual = (residual + rms_norm(x)) * scale.
  void (*add_rms_norm)(const float* x, const float* weight, float eps, float scale, int n,
                       float* residual) = nullptr;
  // out = (a + b) * scale.
  void (*add_scaled)(const float* a, const float* b, float scale, int n, float* out) = nullptr;
  // acc = fma(w, y, acc).
  void (*accumulate)(float w, const float* y, int n, float* acc) = nullptr;
  // out = gelu(gate) * up, with gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
  void (*gelu_product)(const float* gate, const float* up, int n, float* out) = nullptr;
  // out = g sigmoid(g) * u with g = min(gate, limit), u = clamp(up, -limit, limit). limit may be
  // infinity.
  void (*silu_product)(const float* gate, const float* up, float limit, int n,
                       float* out) = nullptr;
  // out = x sigmoid(gate).
  void (*sigmoid_product)(const float* x, const float* gate, int n, float* out) = nullptr;
  // out = x / sqrt(sum(x^2) + eps) * scale.
  void (*l2_normalise)(const float* x, float eps, float scale, int n, float* out) = nullptr;
  // out = exp(x - max x) / sum.
  void (*softmax)(const float* x, int n, float* out) = nullptr;
  // out = cap * tanh(x / cap), cap > 0.
  void (*soft_cap)(const float* x, float cap, int n, float* out) = nullptr;
  // Split-half rotation in place: (x[i], x[i + half]) turns by the angle whose cosine and sine are
  // cosines[i] and sines[i], for i < pairs <= half.
  void (*rope)(float* x, int half, int pairs, const float* cosines, const float* sines) = nullptr;
  // Sum of a[i] * b[i].
  float (*dot)(const float* a, const float* b, int n) = nullptr;
  // Index of the largest value, the lowest among equals; NaNs are skipped. -1 if there is none.
  int (*argmax)(const float* x, int n) = nullptr;

  // Conversions of n values, rounding half to even.
  void (*f16_from_f32)(const float* x, int n, uint16_t* out) = nullptr;
  void (*f32_from_f16)(const uint16_t* x, int n, float* out) = nullptr;
  void (*bf16_from_f32)(const float* x, int n, uint16_t* out) = nullptr;
  void (*f32_from_bf16)(const uint16_t* x, int n, float* out) = nullptr;

  // ---- Attention: softmax(scale q K^T) V over keys that come in several runs.
  //
  //   attention_begin, attention_run for each run, attention_end.
  //
  // Scores, softmax and sums are FP32. `state` is scratch of `attention_state_floats`, one per tile
  // in progress. A run none of whose positions is visible changes nothing. The order of runs is
  // part of the result's rounding.

  size_t (*attention_state_floats)(const AttentionTile& tile) = nullptr;
  // Takes the queries: head h of row i is q + i * q_stride + h * head_dim. A sink (one logit per
  // head, unscaled, or null for none) joins the softmax without a value.
  void (*attention_begin)(const AttentionTile& tile, const float* q, ptrdiff_t q_stride,
                          const float* sinks, float* state) = nullptr;
  void (*attention_run)(const AttentionTile& tile, const KeyValueRun& run, float* state) = nullptr;
  // Adds what `from` saw to `into`, as if its runs had followed: for a fixed split of a long
  // history over threads. Begin `from` without sinks.
  void (*attention_merge)(const AttentionTile& tile, const float* from, float* into) = nullptr;
  // Writes the result in the layout of q. A query that saw nothing at all gives zeros.
  void (*attention_end)(const AttentionTile& tile, float* state, float* out,
                        ptrdiff_t out_stride) = nullptr;

  // ---- State that every row rewrites.

  // out[i, c] = silu(sum over j of weights[c, j] * x[i - (kConvolutionTaps - 1) + j, c]) for the
  // channels c in [begin, end); rows before x are those of the history.
  void (*short_convolution)(const ConvolutionRows& rows, int begin, int end) = nullptr;

  // The delta rule row after row; any split of the rows over calls gives the same bytes. `state`
  // passes through the cache once per call.
  void (*delta_steps)(const DeltaRows& rows, float* state) = nullptr;
  // The same for all rows at once, as matrix products; differs in rounding. `scratch` holds
  // `delta_chunk_floats`.
  size_t (*delta_chunk_floats)(int key_dim, int value_dim) = nullptr;
  void (*delta_chunk)(const DeltaRows& rows, float* state, float* scratch) = nullptr;
};

// The k largest of n scores, in descending order, the lower index first among equals; NaN ranks
// below everything. k <= n. Not worth a version per instruction set: n is a number of experts.
void TopK(const float* scores, int n, int k, int32_t* indices, float* values);

struct KernelChoice {
  const Kernels* kernels = nullptr;  // static; null if `error` says why
  std::string error;
};

// "auto" picks the fastest table that this CPU runs; the others ("scalar", "avx2", "avx2-vnni",
// "avx512", "neon", "neon-i8mm") ask for one. An unknown name, or one this CPU or this build lacks,
// is an error that says what is missing.
KernelChoice SelectKernels(std::string_view name);

}  // namespace mference::cpu
