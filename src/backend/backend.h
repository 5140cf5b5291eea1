// Backend: the operations a forward pass is made of.
//
// A family's forward pass is a straight-line program over this interface, written once for 1..N
// rows. Operations enqueue work on opaque handles; the program never reads data back and never
// branches on a position or on routing, so that a GPU backend can record it once and replay it. The
// CPU backend executes each operation at once, on its thread pool.
//
// Conventions. Activations are `Tensor`s of `[rows, cols]`, where rows is the width of the current
// step (`StepParams::rows`); their memory comes from one scratch arena planned at load for the
// widest chunk. Weights are `Matrix` and `Vector` handles made by `Load*`. A sequence's state (KV
// rings, append-only KV, recurrent matrices) is made of `StateBlock`s of the `SequenceState` that
// is bound for the step. An output may be the same tensor as an input only where an operation says
// so.
//
// One thread drives a backend. A failure inside a step (a read that failed) is recorded
// and surfaces from `EndStep`; the values of that step are then meaningless and must not be used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/sequence_state.h"
#include "base/file.h"
#include "base/ledger.h"
#include "format/layout.h"
#include "format/resident_index.h"

namespace mference {

enum class ElementType : uint8_t { kF32, kF16 };

// Activations, `[rows, cols]`, row-major in `type`.
struct Tensor {
  int32_t id = -1;
  int32_t cols = 0;
  ElementType type = ElementType::kF32;
};

// A weight matrix `[rows, cols]`: y = W x maps cols inputs to rows outputs.
struct Matrix {
  int32_t id = -1;
  int32_t rows = 0;
  int32_t cols = 0;
};

// A matrix to multiply with, and where the product goes.
struct Product {
  Matrix weights;
  Tensor out;
};

// A vector of weights, widened to FP32 at load.
struct Vector {
  int32_t id = -1;
  int32_t size = 0;
};

// Cosines and sines per position and rotated pair.
struct RopeTable {
  int32_t id = -1;
};

// The experts chosen for each row of the step. Valid until the next `Route` of any layer.
struct Routing {
  int32_t id = -1;
};

// The blobs of one MoE layer, as a family's weights describe them.
struct ExpertLayer {
  int32_t id = -1;
};

// What one run of the program covers: rows `first_position` .. `first_position + rows - 1` of the
// bound sequence.
struct StepParams {
  int64_t first_position = 0;
  int32_t rows = 0;
};

enum class Activation : uint8_t { kGeluTanh, kSilu };

// ---- Weights as files have them. Pointers are borrowed and may be only 2-byte aligned.

enum class WeightEncoding : uint8_t { kAffine, kBf16, kF32 };

// A matrix [rows, cols]. Affine: value = scale * code + bias with one BF16 scale and bias per
// `group` columns of a row, codes of `bits` bits packed lowest first (format specification 5.1).
struct MatrixWeights {
  std::string name;  // for messages
  WeightEncoding encoding = WeightEncoding::kAffine;
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t bits = 0;
  int32_t group = 0;
  const std::byte* data = nullptr;    // codes, or the values themselves
  const std::byte* scales = nullptr;  // affine only: BF16 [rows, cols / group]
  const std::byte* biases = nullptr;
  // The file that the pointers map, and where in it they point: for tables whose rows are read
  // instead (see Backend::LoadTable). Borrowed.
  const FileDescriptor* file = nullptr;
  uint64_t data_offset = 0;
  uint64_t scales_offset = 0;
  uint64_t biases_offset = 0;
};

// Where the inputs of a matrix come from: how finely a backend that rounds activations has to.
enum class MatrixInput : uint8_t {
  kInner,   // attention, or a product with a gate: a few values may be far larger than the others
  kNormed,  // an RMS norm
};

struct VectorWeights {
  std::string name;
  WeightEncoding encoding = WeightEncoding::kBf16;  // kBf16 or kF32
  int32_t size = 0;
  const std::byte* data = nullptr;
};

struct ExpertLayerWeights {
  int32_t store_layer = 0;  // the layer's number in the expert store
  int32_t experts = 0;
  Activation activation = Activation::kGeluTanh;
  ExpertBlob blob;  // where gate, up and down lie in each expert's blob
};

// The `top_k` largest logits win, ties to the lower id; their weights are the softmax over the
// chosen logits, times `per_expert_scale` where a family has it.
struct RouterSpec {
  ExpertLayer experts;
  Matrix projection;  // [experts, hidden]
  int32_t top_k = 0;
  Vector per_expert_scale = {};  // [experts], or empty for 1
};

struct AttentionSpec {
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  float scale = 1.0f;
  // Key t is visible to the query at p iff t <= p and (window == 0 or p - t < window).
  int32_t window = 0;
  StateBlock keys = {};  // history, rows of kv_heads * head_dim
  StateBlock values = {};
};

// Sees intermediate values, and may set the routing: for tests, traces and laboratories, never for
// results.
class BackendProbe {
 public:
  virtual ~BackendProbe() = default;
  // `values` [rows, cols], valid during the call.
  virtual void OnTensor(const char* name, int32_t layer, std::span<const float> values,
                        int32_t cols) = 0;
  // The experts to use instead of the best, [rows, top_k], or none. The router's logits still weigh
  // them. Called once per layer and step; the ids must stay valid until the next call.
  virtual std::span<const int32_t> ForceExperts(int32_t /*store_layer*/, int32_t /*rows*/,
                                                int32_t /*top_k*/) {
    return {};
  }
  // `experts` and `weights` [rows, top_k], in ascending expert id within a row.
  virtual void OnRouting(int32_t store_layer, int32_t top_k, std::span<const int32_t> experts,
                         std::span<const float> weights) = 0;
};

// A causal depthwise convolution with a carried tail, followed by SiLU.
struct ShortConvolutionSpec {
  Vector weights;  // [channels, taps], the last tap for the current row
  int32_t taps = 0;
  StateBlock tail = {};  // the newest taps - 1 input rows, oldest first, in the KV type
};

// The gated delta rule (Qwen's linear attention). Per value head n with state S [value_dim,
// key_dim], key head n / (value_heads / key_heads), and for each row
//   q = l2(q) / sqrt(key_dim), k = l2(k), l2(x) = x / sqrt(sum(x^2) + 1e-6)
//   alpha = exp(-exp(a_log) * softplus(a + dt_bias)), beta = sigmoid(b)
//   S = alpha S;  S = S + beta (v - S k) k^T;  y = S q
struct DeltaNetSpec {
  int32_t key_heads = 0;
  int32_t value_heads = 0;
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  Vector a_log;           // [value_heads]
  Vector dt_bias;         // [value_heads]
  StateBlock state = {};  // FP32 [value_heads, value_dim, key_dim]
};

class Backend {
 public:
  virtual ~Backend() = default;
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // ---- Load time. Throw on mismatch or when the budget does not hold.

  // A resident matrix, quantised or not, as its file has it. The weights must outlive the backend.
  // `input` is where what it is multiplied with comes from.
  virtual Matrix LoadMatrix(const MatrixWeights& weights, MatrixInput input) = 0;
  // The same for a matrix of which single rows are looked up (`Embed`) and nothing else: it need
  // not be held.
  virtual Matrix LoadTable(const MatrixWeights& weights) = 0;
  // Where in their file the tables lie whose rows can be read as they are looked up.
  virtual std::vector<FileRange> TableRanges() const = 0;
  // From now on they are: the tables take no memory. Before the first step.
  virtual void ReadTablesFromFile() = 0;
  // A resident vector times `factor`.
  virtual Vector LoadVector(const VectorWeights& weights, float factor = 1.0f) = 0;
  // Angles position * frequencies[pair]. Within the first `rotary_dim` columns of a head, the first
  // `frequencies.size()` of the split-half pairs (x_i, x_{i + rotary_dim/2}) rotate; all other
  // columns pass unrotated.
  virtual RopeTable LoadRope(std::span<const double> frequencies, int32_t rotary_dim) = 0;
  virtual ExpertLayer LoadExpertLayer(const ExpertLayerWeights& weights) = 0;
  // Declares an activation tensor; its memory comes with `ReserveScratch`.
  virtual Tensor NewTensor(int32_t cols, ElementType type = ElementType::kF32) = 0;
  // Bytes of scratch that steps of at most `max_rows` rows need, all tensors and the backend's own.
  virtual uint64_t ScratchBytes(int32_t max_rows) const = 0;
  // Called once, after all loading and before the first step.
  virtual void ReserveScratch(int32_t max_rows, MemoryLedger& ledger) = 0;

  // ---- A step. It may be left between two layers without its end; its state then stays open.

  virtual void BeginStep(const StepParams& params, std::span<const int32_t> tokens,
                         SequenceState& state) = 0;
  // Waits for everything enqueued; advances the bound state by the step's rows. Throws kIo when a
  // read failed: the state is then unchanged except for rows past its length.
  virtual void EndStep() = 0;

  // out[t] = table[token[t]] * factor.                     table [vocab, hidden] -> [rows, hidden]
  virtual void Embed(const Matrix& table, float factor, Tensor out) = 0;

  // out = x / sqrt(mean(x^2) + eps) * weight (no weight: 1), over each row.   May be in place.
  virtual void RmsNorm(Tensor x, Vector weight, float eps, Tensor out) = 0;
  // The same over each head of `head_dim` columns, the weight [head_dim] shared by all.  In place
  // ok.
  virtual void HeadRmsNorm(Tensor x, int32_t head_dim, Vector weight, float eps, Tensor out) = 0;
  // Rotates each head of x by the row's position; out may be F16 (then rounded to it) or x itself.
  virtual void Rope(Tensor x, int32_t head_dim, RopeTable table, Tensor out) = 0;
  // out = x in out's element type.
  virtual void Convert(Tensor x, Tensor out) = 0;
  // residual = (residual + RmsNorm(x, weight)) * scale.
  virtual void AddRmsNorm(Tensor residual, Tensor x, Vector weight, float eps, float scale) = 0;
  // out = a + b.                                                              May be in place.
  virtual void Add(Tensor a, Tensor b, Tensor out) = 0;
  // out = a + sigmoid(gate) * x, one gate per row, [rows, 1].                 May be in place.
  virtual void AddGated(Tensor a, Tensor x, Tensor gate, Tensor out) = 0;
  // out = x * sigmoid(gate), element by element.                              May be in place.
  virtual void MultiplySigmoid(Tensor x, Tensor gate, Tensor out) = 0;
  // out = RmsNorm over each head of `head_dim` columns of x, times silu(gate). May be in place.
  virtual void GatedHeadRmsNorm(Tensor x, int32_t head_dim, Vector weight, float eps, Tensor gate,
                                Tensor out) = 0;
  // x [rows, heads * 2 * head_dim] holds two interleaved halves per head; each goes to a tensor of
  // its own, [rows, heads * head_dim].
  virtual void SplitHeads(Tensor x, int32_t head_dim, Tensor first, Tensor second) = 0;

  // out[t] = W x[t] for each of several matrices.
  virtual void MatMul(Tensor x, std::span<const Product> products) = 0;
  void MatMul(Tensor x, const Matrix& weights, Tensor out) {
    const Product product{weights, out};
    MatMul(x, {&product, 1});
  }
  // out[t] = activation(gate x[t]) * (up x[t]), for two matrices of the same input and format.
  virtual void GatedMatMul(Tensor x, const Matrix& gate, const Matrix& up, Activation activation,
                           Tensor out) = 0;

  // Softmax attention of the step's rows over the committed history and the step's own `k`, `v`
  // (in the state's element type), causal, scaled, windowed.
  //   q, out [rows, heads * head_dim]; k, v [rows, kv_heads * head_dim]
  virtual void Attention(const AttentionSpec& spec, Tensor q, Tensor k, Tensor v, Tensor out) = 0;
  // Stores the step's rows into a ring or append-only block, after every operation that reads it.
  virtual void Commit(StateBlock block, Tensor rows) = 0;

  // out = silu(convolution of the tail and x), [rows, channels] both; then the tail moves on.
  virtual void ShortConvolution(const ShortConvolutionSpec& spec, Tensor x, Tensor out) = 0;
  // qkv [rows, (2 * key_heads * key_dim + value_heads * value_dim)]: q, k, v, each head-major;
  // a, b [rows, value_heads]; out [rows, value_heads * value_dim]. The state moves on.
  virtual void GatedDeltaNet(const DeltaNetSpec& spec, Tensor qkv, Tensor a, Tensor b,
                             Tensor out) = 0;

  // Chooses experts from x [rows, hidden] and starts reading those that are not cached.
  virtual Routing Route(Tensor x, const RouterSpec& spec) = 0;
  // out[t] = sum over the row's experts, in ascending id, of weight * down(act(gate x) * (up x)).
  virtual void RoutedExperts(Tensor x, Routing routing, Tensor out) = 0;

  // A hint before the turn of a later layer: its router, run on `residual` as it stands now, tells
  // which experts that layer will probably choose, because one layer changes the residual little.
  // `norm` and `eps` are those of the router's own input. What is missing may be read ahead, and
  // results never depend on it. Costs nothing where nothing is read ahead.
  virtual void PredictExperts(Tensor residual, Vector norm, float eps, const RouterSpec& spec) = 0;

  // Shows `x` to the probe, if there is one. `name` must be a literal.
  virtual void Observe(const char* name, int32_t layer, Tensor x) = 0;

  // ---- After a step.

  // Logits of rows `first_row` .. `first_row + rows - 1` of the last step, from its final
  // activations: W x, soft-capped as cap * tanh(l / cap) if cap > 0. The values, [rows, vocab],
  // stay valid until the next call. `rows` is at most kMaxLogitsRows.
  virtual std::span<const float> Head(Tensor x, int32_t first_row, int32_t rows,
                                      const Matrix& weights, float soft_cap) = 0;
  // Bounds the logits buffer: 8 rows of a 262,144-entry vocabulary are 8 MiB.
  static constexpr int32_t kMaxLogitsRows = 8;

  // Receives intermediate values of later steps; nullptr turns it off. Borrowed.
  virtual void SetProbe(BackendProbe* probe) = 0;
};

}  // namespace mference
