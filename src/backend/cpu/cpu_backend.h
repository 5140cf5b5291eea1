// The CPU backend: executes each operation at once, on its thread pool, with the kernels of the
// best instruction set at hand.
//
// Work is split over threads by ranges of outputs, and every output is computed by one thread in a
// fixed order, so results do not depend on the number of threads. After `ReserveScratch` no
// operation allocates.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/guess_bias.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/thread_pool.h"
#include "backend/cpu/weight_moves.h"
#include "base/slab.h"
#include "experts/expert_store.h"

namespace mference::cpu {

class CpuBackend final : public Backend {
 public:
  // `kernels` is static. `threads` >= 1 counts the driving thread. `precise` keeps activations in
  // FP32 throughout; otherwise those of most matrix products are rounded, to 8 bits in steps of
  // many rows and to 16 bits in steps of one.
  CpuBackend(const Kernels& kernels, int threads, bool precise);
  ~CpuBackend() override;

  // Steps of at least this many rows are prefill, bound by arithmetic: they may round activations.
  static constexpr int32_t kMinQuantisedRows = 8;
  // Steps of at most this many rows compute experts in the order their reads land.
  static constexpr int32_t kMaxRowsInAnyOrder = 4;
  static constexpr int32_t kMaxTopK = 16;
  // Query heads per KV head of a single row, in the widest family (DeepSeek: one KV head for 64).
  static constexpr int32_t kMaxSingleRowHeads = 64;

  const Kernels& kernels() const { return kernels_; }
  int threads() const { return pool_.threads(); }

  // Where routed experts come from; must be set before the first step that routes, and outlive it.
  void SetExpertStore(ExpertStore* store) { store_ = store; }

  // The codes or values, scales and biases of all matrices, but for those that are read from the
  // file. Matrices may share some.
  std::vector<std::span<const std::byte>> WeightRanges() const;
  // Where copies of such ranges are told of, which every step then begins by taking. Borrowed.
  void SetWeightMoves(WeightMoves* moves) { moves_ = moves; }
  // Takes them now, between two steps.
  void TakeWeightMoves();

  Matrix LoadMatrix(const MatrixWeights& weights, MatrixInput input) override;
  Matrix LoadTable(const MatrixWeights& weights) override;
  std::vector<FileRange> TableRanges() const override;
  void ReadTablesFromFile() override;
  Vector LoadVector(const VectorWeights& weights, float factor) override;
  RopeTable LoadRope(std::span<const double> frequencies, int32_t rotary_dim) override;
  ExpertLayer LoadExpertLayer(const ExpertLayerWeights& weights) override;
  Tensor NewTensor(int32_t cols, ElementType type) override;
  uint64_t ScratchBytes(int32_t max_rows) const override;
  void ReserveScratch(int32_t max_rows, MemoryLedger& ledger) override;

  void BeginStep(const StepParams& params, std::span<const int32_t> tokens,
                 SequenceState& state) override;
  void EndStep() override;

  void Embed(const Matrix& table, float factor, Tensor out) override;
  void RmsNorm(Tensor x, Vector weight, float eps, Tensor out) override;
  void HeadRmsNorm(Tensor x, int32_t head_dim, Vector weight, float eps, Tensor out) override;
  void Rope(Tensor x, int32_t head_dim, RopeTable table, Tensor out) override;
  void AddRmsNorm(Tensor residual, Tensor x, Vector weight, float eps, float scale) override;
  void Add(Tensor a, Tensor b, Tensor out) override;
  void AddGated(Tensor a, Tensor x, Tensor gate, Tensor out) override;
  void MultiplySigmoid(Tensor x, Tensor gate, Tensor out) override;
  void GatedHeadRmsNorm(Tensor x, int32_t head_dim, Vector weight, float eps, Tensor gate,
                        Tensor out) override;
  void SplitHeads(Tensor x, int32_t head_dim, Tensor first, Tensor second) override;
  void Convert(Tensor x, Tensor out) override;
  using Backend::MatMul;
  void MatMul(Tensor x, std::span<const Product> products) override;
  void GatedMatMul(Tensor x, const Matrix& gate, const Matrix& up, Activation activation,
                   Tensor out) override;
  void Attention(const AttentionSpec& spec, Tensor q, Tensor k, Tensor v, Tensor out) override;
  void Commit(StateBlock block, Tensor rows) override;
  void ShortConvolution(const ShortConvolutionSpec& spec, Tensor x, Tensor out) override;
  void GatedDeltaNet(const DeltaNetSpec& spec, Tensor qkv, Tensor a, Tensor b, Tensor out) override;
  Routing Route(Tensor x, const RouterSpec& spec) override;
  void RoutedExperts(Tensor x, Routing routing, Tensor out) override;
  void PredictExperts(Tensor residual, Vector norm, float eps, const RouterSpec& spec) override;
  void Observe(const char* name, int32_t layer, Tensor x) override;
  std::span<const float> Head(Tensor x, int32_t first_row, int32_t rows, const Matrix& weights,
                              float soft_cap) override;
  void SetProbe(BackendProbe* probe) override { probe_ = probe; }

 private:
  struct TensorInfo {
    int32_t cols = 0;
    ElementType type = ElementType::kF32;
  };
  struct RopeInfo {
    std::vector<double> frequencies;
    int32_t rotary_dim = 0;
  };
  // A matrix that is only looked up, and where its rows lie in its file.
  struct TableInfo {
    int32_t matrix = -1;
    std::string name;
    const FileDescriptor* file = nullptr;
    uint64_t data_offset = 0;
    uint64_t scales_offset = 0;
    uint64_t biases_offset = 0;
    size_t row_bytes = 0;        // codes, or values
    size_t row_scale_bytes = 0;  // scales; biases take as many
    bool from_file = false;
  };
  struct ExpertLayerInfo {
    ExpertLayerWeights weights;
    WeightMatrix gate, up, down;  // shapes; pointers are filled in per blob
  };
  // Places of everything in the scratch slab, in bytes, for some number of rows.
  struct ScratchPlan {
    std::vector<size_t> tensors;
    std::vector<size_t> rope;  // [rows, 2 * pairs]: cosines, then sines, per table
    size_t prepared = 0;       // activations in kernel order
    size_t gated = 0;          // the `up` half of a gated product
    size_t attention = 0;      // kernel states, one per lane or split
    size_t attention_bytes = 0;
    size_t delta = 0;           // one head's rows and chunk, per lane; see recurrent.cc
    size_t history = 0;         // [taps - 1, channels]: a convolution's tail in FP32
    size_t logits = 0;          // [kMaxLogitsRows, vocab]
    size_t router_logits = 0;   // [rows, experts]
    size_t routing = 0;         // int32 tables of a routing, see routed_experts.cc
    size_t predicted_from = 0;  // [hidden]: the state that a prediction reads
    size_t rounded_rows = 0;    // for many rows: each prepared alone, see RunManyRows
    size_t expert_inner = 0;    // [rows or pairs, 2, intermediate]
    size_t expert_outputs = 0;  // [rows or pairs, hidden]
    size_t pair_inputs = 0;     // for few rows: prepared inputs of all pairs' gates,
    size_t pair_inner = 0;      // and of their down projections
    size_t total = 0;
  };
  // What becomes of the activations of a matrix product.
  enum class Rounding : uint8_t { kNone, kTo16Bits, kTo8Bits };

  // The routing of the current layer, grouped by expert.
  struct RoutingTables {
    int32_t layer_id = -1;
    int32_t top_k = 0;
    int32_t* ids = nullptr;       // [rows, top_k], ascending in a row
    float* weights = nullptr;     // [rows, top_k]
    int32_t* distinct = nullptr;  // [experts]: those that some row chose, ascending
    int32_t distinct_count = 0;
    int32_t* choosing = nullptr;    // [distinct_count]: rows that chose each
    int32_t* pair_begin = nullptr;  // [experts + 1]: where an expert's pairs begin
    int32_t* pairs = nullptr;       // [rows * top_k]: row * top_k + rank, by expert, then row
  };

  void MoveWeights(const WeightMove& move);
  static WeightMatrix ViewOf(const MatrixWeights& weights);
  ScratchPlan PlanScratch(int32_t max_rows) const;
  size_t PreparedBytes(const WeightMatrix& shape, int32_t max_rows) const;
  // Of each of a few rows, whatever the rounding.
  size_t PreparedRowBytes(const WeightMatrix& shape) const;
  // Of a row prepared alone, rounded to 8 bits; 0 where rows never are.
  size_t RoundedRowBytes(const WeightMatrix& shape) const;
  size_t AttentionStateFloats() const;
  size_t DeltaScratchFloats() const;

  float* Floats(Tensor tensor) const;
  uint16_t* Halves(Tensor tensor) const;
  const float* WeightsOf(Vector vector) const;
  std::byte* Prepared() const { return scratch_.data() + plan_.prepared; }

  // The row of a table, read into `buffer`; false when the read failed.
  static bool ReadTableRow(const TableInfo& table, int32_t row, std::span<std::byte> buffer);
  void EmbedFromFile(const TableInfo& table, float factor, Tensor out);

  // Rows are split over threads where there is enough to do.
  void ForRows(int32_t rows, FunctionRef<void(int32_t row)> body);
  // Calls body(task, lane) for each task; a lane is a thread's own scratch.
  void ForTasks(int32_t tasks, FunctionRef<void(int32_t task, int32_t lane)> body);
  // What products with weights of this format take in the current step.
  Rounding RoundingFor(const WeightMatrix& shape) const;
  // Prepares row i of n, on the calling thread.
  void PrepareRow(const WeightMatrix& shape, Rounding rounding, const float* x, int32_t n,
                  int32_t i, std::byte* prepared) const;
  // Prepares n rows, over the threads, to Prepared().
  void Prepare(const WeightMatrix& shape, Rounding rounding, const float* x, ptrdiff_t stride,
               int32_t n);
  // Calls prepare(i) for n rows of `cols` activations, over the threads where that pays.
  void ForPreparedRows(int32_t n, int32_t cols, FunctionRef<void(int32_t i)> prepare);
  // Rows [begin, end) of W times n prepared rows, on the calling thread.
  void Multiply(const WeightMatrix& w, Rounding rounding, const std::byte* prepared, int32_t n,
                float* y, ptrdiff_t stride, int begin, int end) const;
  // Calls body(i, begin, end) on ranges that partition the rows of several matrices, matrix i
  // having rows[i], over the threads.
  void ForRowRanges(std::span<const int32_t> rows,
                    FunctionRef<void(size_t i, int begin, int end)> body);
  void MatMulPrepared(const WeightMatrix& w, Rounding rounding, int32_t n, float* y,
                      ptrdiff_t stride);
  // y = activation(gate x) * (up x) from prepared activations; `up_out` is scratch shaped as y.
  void GatedPrepared(const WeightMatrix& gate, const WeightMatrix& up, Rounding rounding,
                     Activation activation, int32_t n, float* y, float* up_out, ptrdiff_t stride);
  // gate = activation(gate) * up over the columns [begin, end) of n rows.
  void Activate(Activation activation, int32_t n, float* gate, const float* up, ptrdiff_t stride,
                int begin, int end) const;
  // Writes `n` floats of a head, in the tensor's element type.
  void StoreHead(Tensor out, int32_t row, int32_t col, const float* values, int32_t n);

  // An expert's matrices and the pairs that want it.
  struct ExpertWork {
    ExpertLease lease;
    WeightMatrix gate, up, down;
    int32_t begin = 0;  // its first pair
    int32_t count = 0;
  };

  void GroupPairs(RoutingTables& tables) const;
  ExpertWork WorkOf(const ExpertLayerInfo& layer, const ExpertLease& lease) const;
  // The same for experts, each with `rows` output rows.
  void ForExpertRows(std::span<const ExpertWork> experts, int32_t rows,
                     FunctionRef<void(const ExpertWork& expert, int begin, int end)> body);
  void ComputePairs(const ExpertLayerInfo& layer, std::span<const ExpertWork> experts, Tensor x);
  void RunFewRows(const ExpertLayerInfo& layer, ExpertStream& stream, Tensor x, Tensor out);
  void RunManyRows(const ExpertLayerInfo& layer, ExpertStream& stream, Tensor x, Tensor out);
  // The next expert of the stream; false at its end or after a failure, which it records.
  bool NextExpert(ExpertStream& stream, ExpertLease& lease);

  const Kernels& kernels_;
  const bool precise_;
  ThreadPool pool_;
  ExpertStore* store_ = nullptr;
  WeightMoves* moves_ = nullptr;
  BackendProbe* probe_ = nullptr;

  std::vector<TensorInfo> tensors_;
  std::vector<WeightMatrix> matrices_;
  std::vector<TableInfo> tables_;
  std::vector<std::vector<float>> vectors_;
  std::vector<RopeInfo> ropes_;
  std::vector<ExpertLayerInfo> expert_layers_;
  GuessBias guess_bias_;            // [expert_layers_]
  std::vector<int32_t> ascending_;  // 0, 1, 2, ...: as many as the largest layer has experts

  int32_t max_rows_ = 0;
  ScratchPlan plan_;
  Slab scratch_;

  // The current step.
  StepParams params_;
  std::span<const int32_t> tokens_;
  SequenceState* state_ = nullptr;
  RoutingTables routing_;
  std::optional<ExpertStream> stream_;
  bool failed_ = false;
  std::atomic<int32_t> failed_table_row_{-1};
  const TableInfo* failed_table_ = nullptr;
};

}  // namespace mference::cpu
