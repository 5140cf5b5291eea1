// The load-time half of the CPU backend: views of weights, and where everything lies in scratch.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/float16.h"
#include "base/units.h"

namespace mference::cpu {
namespace {

constexpr uint64_t kCacheLine = 64;

// A step of few rows keeps each pair's expert output apart, so that experts may be computed in the
// order in which their reads land; see routed_experts.cc.
constexpr int32_t kFewRows = CpuBackend::kMaxRowsInAnyOrder;

WeightFormat FormatOf(WeightEncoding encoding, int32_t bits, const std::string& name) {
  if (encoding == WeightEncoding::kBf16) return WeightFormat::kBf16;
  if (encoding == WeightEncoding::kF32) return WeightFormat::kF32;
  if (bits == 2) return WeightFormat::kAffine2;
  if (bits == 4) return WeightFormat::kAffine4;
  if (bits == 8) return WeightFormat::kAffine8;
  Fail(ErrorCode::kQuantUnsupported, "{}: {}-bit weights are not supported", name, bits);
}

void RequireGroup(const WeightMatrix& w, const std::string& name) {
  if (!IsAffine(w.format)) return;
  if ((w.group == 32 || w.group == 64 || w.group == 128) && w.cols % w.group == 0) return;
  Fail(
      ErrorCode::kQuantUnsupported,
      "{}: groups of {} columns over {} columns are not supported (32, 64 or 128 that divide them)",
      name, w.group, w.cols);
}

// With coarse blocks for inner values too the demo model's likeliest token changes in more than 1 %
// of all places, see docs/experiments.md.
int BlockFor(MatrixInput input) {
  return input == MatrixInput::kNormed ? kCoarseBlock : kFineBlock;
}

WeightMatrix ShapeOf(const ExpertMatrix& matrix, MatrixInput input, const std::string& name) {
  WeightMatrix w{.format = FormatOf(WeightEncoding::kAffine, matrix.bits, name),
                 .rows = static_cast<int>(matrix.rows),
                 .cols = static_cast<int>(matrix.columns),
                 .group = static_cast<int>(matrix.group_size),
                 .activation_block = BlockFor(input)};
  RequireGroup(w, name);
  return w;
}

// A row of a table is read into a buffer on the stack: 32,768 columns of 4 bits would fit.
constexpr size_t kMaxTableRowBytes = 20 * kKiB;

size_t ElementBytes(ElementType type) { return type == ElementType::kF16 ? 2 : 4; }

}  // namespace

WeightMatrix CpuBackend::ViewOf(const MatrixWeights& weights) {
  WeightMatrix w{.format = FormatOf(weights.encoding, weights.bits, weights.name),
                 .rows = weights.rows,
                 .cols = weights.cols,
                 .group = weights.group,
                 .data = weights.data,
                 .scales = reinterpret_cast<const uint16_t*>(weights.scales),
                 .biases = reinterpret_cast<const uint16_t*>(weights.biases)};
  RequireGroup(w, weights.name);
  return w;
}

Matrix CpuBackend::LoadMatrix(const MatrixWeights& weights, MatrixInput input) {
  matrices_.push_back(ViewOf(weights));
  matrices_.back().activation_block = BlockFor(input);
  return {
      .id = static_cast<int32_t>(matrices_.size()) - 1, .rows = weights.rows, .cols = weights.cols};
}

Matrix CpuBackend::LoadTable(const MatrixWeights& weights) {
  const Matrix table = LoadMatrix(weights, MatrixInput::kNormed);
  const auto columns = static_cast<size_t>(weights.cols);
  TableInfo info{.matrix = table.id,
                 .name = weights.name,
                 .file = weights.file,
                 .data_offset = weights.data_offset,
                 .scales_offset = weights.scales_offset,
                 .biases_offset = weights.biases_offset};
  if (weights.encoding == WeightEncoding::kAffine) {
    info.row_bytes = columns * static_cast<size_t>(weights.bits) / 8;
    info.row_scale_bytes = columns / static_cast<size_t>(weights.group) * sizeof(uint16_t);
  } else {
    info.row_bytes = columns * (weights.encoding == WeightEncoding::kBf16 ? 2 : 4);
  }
  if (info.file != nullptr && info.row_bytes + 2 * info.row_scale_bytes <= kMaxTableRowBytes) {
    tables_.push_back(std::move(info));
  }
  return table;
}

std::vector<std::span<const std::byte>> CpuBackend::WeightRanges() const {
  std::vector<bool> read_from_file(matrices_.size());
  for (const TableInfo& table : tables_) {
    read_from_file[static_cast<size_t>(table.matrix)] = table.from_file;
  }
  std::vector<std::span<const std::byte>> ranges;
  for (size_t i = 0; i < matrices_.size(); ++i) {
    const WeightMatrix& w = matrices_[i];
    if (read_from_file[i]) continue;
    const auto rows = static_cast<size_t>(w.rows);
    ranges.emplace_back(w.data, rows * RowBytes(w));
    if (!IsAffine(w.format)) continue;
    const size_t groups = rows * static_cast<size_t>(w.cols / w.group);
    ranges.push_back(std::as_bytes(std::span(w.scales, groups)));
    ranges.push_back(std::as_bytes(std::span(w.biases, groups)));
  }
  return ranges;
}

void CpuBackend::TakeWeightMoves() {
  if (moves_ == nullptr) return;
  moves_->TakeNew([this](const WeightMove& move) { MoveWeights(move); });
}

void CpuBackend::MoveWeights(const WeightMove& move) {
  const auto* const from = static_cast<const void*>(move.from);
  for (WeightMatrix& w : matrices_) {
    if (w.data == from) w.data = move.to;
    if (w.scales == from) w.scales = reinterpret_cast<const uint16_t*>(move.to);
    if (w.biases == from) w.biases = reinterpret_cast<const uint16_t*>(move.to);
  }
}

std::vector<FileRange> CpuBackend::TableRanges() const {
  std::vector<FileRange> ranges;
  for (const TableInfo& table : tables_) {
    const auto rows = static_cast<uint64_t>(matrices_[static_cast<size_t>(table.matrix)].rows);
    ranges.push_back({table.data_offset, rows * table.row_bytes});
    if (table.row_scale_bytes == 0) continue;
    ranges.push_back({table.scales_offset, rows * table.row_scale_bytes});
    ranges.push_back({table.biases_offset, rows * table.row_scale_bytes});
  }
  return ranges;
}

void CpuBackend::ReadTablesFromFile() {
  for (TableInfo& table : tables_) table.from_file = true;
}

bool CpuBackend::ReadTableRow(const TableInfo& table, int32_t row, std::span<std::byte> buffer) {
  const auto read = [&](uint64_t offset, size_t bytes, std::byte* out) {
    offset += static_cast<uint64_t>(row) * bytes;
    while (bytes > 0) {
      const ssize_t got = pread(table.file->get(), out, bytes, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      out += got;
      offset += static_cast<uint64_t>(got);
      bytes -= static_cast<size_t>(got);
    }
    return true;
  };
  std::byte* const scales = buffer.data() + table.row_bytes;
  return read(table.data_offset, table.row_bytes, buffer.data()) &&
         read(table.scales_offset, table.row_scale_bytes, scales) &&
         read(table.biases_offset, table.row_scale_bytes, scales + table.row_scale_bytes);
}

void CpuBackend::EmbedFromFile(const TableInfo& table, float factor, Tensor out) {
  float* const y = Floats(out);
  ForRows(params_.rows, [&](int32_t row) {
    alignas(kCacheLine) std::array<std::byte, kMaxTableRowBytes> buffer;
    const int32_t id = tokens_[static_cast<size_t>(row)];
    if (!ReadTableRow(table, id, buffer)) {
      failed_table_row_.store(id, std::memory_order_relaxed);
      return;
    }
    WeightMatrix w = matrices_[static_cast<size_t>(table.matrix)];
    w.rows = 1;
    w.data = buffer.data();
    w.scales = reinterpret_cast<const uint16_t*>(buffer.data() + table.row_bytes);
    w.biases =
        reinterpret_cast<const uint16_t*>(buffer.data() + table.row_bytes + table.row_scale_bytes);
    kernels_.dequantize_row(w, 0, factor,
                            y + static_cast<size_t>(row) * static_cast<size_t>(out.cols));
  });
  // The step runs to its end on what `out` held before, and fails there.
  if (failed_table_row_ >= 0) failed_table_ = &table;
}

Vector CpuBackend::LoadVector(const VectorWeights& weights, float factor) {
  std::vector<float> values(static_cast<size_t>(weights.size));
  for (size_t i = 0; weights.data != nullptr && i < values.size(); ++i) {
    if (weights.encoding == WeightEncoding::kF32) {
      std::memcpy(&values[i], weights.data + 4 * i, 4);
    } else {
      uint16_t bits = 0;
      std::memcpy(&bits, weights.data + 2 * i, 2);
      values[i] = FloatFromBf16(bits);
    }
    values[i] *= factor;
  }
  vectors_.push_back(std::move(values));
  return {.id = static_cast<int32_t>(vectors_.size()) - 1, .size = weights.size};
}

RopeTable CpuBackend::LoadRope(std::span<const double> frequencies, int32_t rotary_dim) {
  Check(rotary_dim <= kMaxHeadDim, "rotary_dim exceeds what the kernels hold");
  ropes_.push_back({{frequencies.begin(), frequencies.end()}, rotary_dim});
  return {static_cast<int32_t>(ropes_.size()) - 1};
}

ExpertLayer CpuBackend::LoadExpertLayer(const ExpertLayerWeights& weights) {
  const std::string name = fmt::format("experts of layer {}", weights.store_layer);
  expert_layers_.push_back({.weights = weights,
                            .gate = ShapeOf(weights.blob.gate, MatrixInput::kNormed, name),
                            .up = ShapeOf(weights.blob.up, MatrixInput::kNormed, name),
                            .down = ShapeOf(weights.blob.down, MatrixInput::kInner, name)});
  const ExpertLayerInfo& layer = expert_layers_.back();
  // Gate and up read the same prepared activations.
  if (layer.gate.format != layer.up.format || layer.gate.group != layer.up.group) {
    Fail(ErrorCode::kQuantUnsupported, "{}: gate and up projections are quantised differently",
         name);
  }
  guess_bias_.AddLayer(weights.experts);
  while (static_cast<int32_t>(ascending_.size()) < weights.experts) {
    ascending_.push_back(static_cast<int32_t>(ascending_.size()));
  }
  return {static_cast<int32_t>(expert_layers_.size()) - 1};
}

Tensor CpuBackend::NewTensor(int32_t cols, ElementType type) {
  tensors_.push_back({cols, type});
  return {.id = static_cast<int32_t>(tensors_.size()) - 1, .cols = cols, .type = type};
}

// Which layout activations take depends on the number of rows, so the largest need may be that of a
// narrow step.
size_t CpuBackend::PreparedBytes(const WeightMatrix& shape, int32_t max_rows) const {
  size_t floats = kernels_.matmul_prepared_floats(shape, max_rows);
  for (int32_t n = 1; n < std::min(max_rows, 2 * kFewRows); ++n) {
    floats = std::max(floats, kernels_.matmul_prepared_floats(shape, n));
  }
  const size_t bytes = std::max(floats * sizeof(float), PreparedRowBytes(shape));
  if (precise_ || !IsQuantisable(shape.format)) return bytes;
  return std::max(bytes, kernels_.quantised_prepared_bytes(shape, max_rows));
}

size_t CpuBackend::PreparedRowBytes(const WeightMatrix& shape) const {
  const size_t bytes = kernels_.matmul_prepared_floats(shape, 1) * sizeof(float);
  const size_t rounded =
      precise_ || !IsAffine(shape.format) ? 0 : kernels_.single_row_prepared_bytes(shape);
  return RoundUp(std::max(bytes, rounded), kCacheLine);
}

size_t CpuBackend::RoundedRowBytes(const WeightMatrix& shape) const {
  if (precise_ || !IsQuantisable(shape.format)) return 0;
  return RoundUp(kernels_.quantised_prepared_bytes(shape, 1), kCacheLine);
}

CpuBackend::ScratchPlan CpuBackend::PlanScratch(int32_t max_rows) const {
  ScratchPlan plan;
  const auto rows = static_cast<size_t>(max_rows);
  const auto place = [&plan](size_t bytes) {
    const size_t at = plan.total;
    plan.total = RoundUp(at + bytes, kCacheLine);
    return at;
  };
  for (const TensorInfo& tensor : tensors_) {
    plan.tensors.push_back(
        place(rows * static_cast<size_t>(tensor.cols) * ElementBytes(tensor.type)));
  }
  for (const RopeInfo& rope : ropes_) {
    plan.rope.push_back(place(rows * 2 * rope.frequencies.size() * sizeof(float)));
  }
  size_t prepared = 0;
  size_t widest = 0;
  for (const WeightMatrix& w : matrices_) {
    prepared = std::max(prepared, PreparedBytes(w, max_rows));
    // The head is the one matrix whose outputs do not lie in a tensor of all rows.
    widest = std::max(widest, static_cast<size_t>(w.rows));
  }
  size_t widest_tensor = 0;
  for (const TensorInfo& tensor : tensors_)
    widest_tensor = std::max(widest_tensor, static_cast<size_t>(tensor.cols));
  size_t experts = 0, hidden = 0, intermediate = 0, pair_inputs = 0, pair_inner = 0, rounded = 0;
  for (const ExpertLayerInfo& layer : expert_layers_) {
    prepared = std::max({prepared, PreparedBytes(layer.gate, max_rows),
                         PreparedBytes(layer.up, max_rows), PreparedBytes(layer.down, max_rows)});
    experts = std::max(experts, static_cast<size_t>(layer.weights.experts));
    hidden = std::max(hidden, static_cast<size_t>(layer.gate.cols));
    intermediate = std::max(intermediate, static_cast<size_t>(layer.gate.rows));
    pair_inputs = std::max(pair_inputs, PreparedRowBytes(layer.gate));
    pair_inner = std::max(pair_inner, PreparedRowBytes(layer.down));
    rounded = std::max(rounded, RoundedRowBytes(layer.gate));
  }
  plan.prepared = place(prepared);
  plan.router_logits = place(rows * experts * sizeof(float));
  plan.routing = place((rows * kMaxTopK * 3 + experts * 3 + 1) * sizeof(int32_t));

  // What lives only inside one operation shares one region; logits, which outlive theirs, are gone
  // with the next step anyway.
  const size_t shared = plan.total;
  size_t end = shared;
  const auto overlay = [&](std::initializer_list<std::pair<size_t*, size_t>> parts) {
    plan.total = shared;
    for (const auto& [at, bytes] : parts) *at = place(bytes);
    end = std::max(end, plan.total);
  };
  const size_t few_pairs = static_cast<size_t>(std::min(max_rows, kFewRows)) * kMaxTopK;
  overlay({{&plan.gated, rows * widest_tensor * sizeof(float)}});
  overlay({{&plan.attention, AttentionStateFloats() * sizeof(float)}});
  overlay(
      {{&plan.delta, static_cast<size_t>(pool_.threads()) * DeltaScratchFloats() * sizeof(float)}});
  overlay({{&plan.history, (kConvolutionTaps - 1) * widest_tensor * sizeof(float)}});
  overlay({{&plan.logits,
            static_cast<size_t>(std::min(max_rows, kMaxLogitsRows)) * widest * sizeof(float)}});
  const size_t rows_or_pairs = std::max(rows, few_pairs);
  overlay({{&plan.predicted_from, hidden * sizeof(float)},
           {&plan.rounded_rows, rows * rounded},
           {&plan.expert_inner, rows_or_pairs * 2 * intermediate * sizeof(float)},
           {&plan.expert_outputs, rows_or_pairs * hidden * sizeof(float)},
           {&plan.pair_inputs, few_pairs * pair_inputs},
           {&plan.pair_inner, few_pairs * pair_inner}});
  plan.total = end;
  return plan;
}

uint64_t CpuBackend::ScratchBytes(int32_t max_rows) const { return PlanScratch(max_rows).total; }

void CpuBackend::ReserveScratch(int32_t max_rows, MemoryLedger& ledger) {
  plan_ = PlanScratch(max_rows);
  scratch_ = Slab(ledger, "scratch", plan_.total, Slab::Pages::kInBackground);
  max_rows_ = max_rows;
}

float* CpuBackend::Floats(Tensor tensor) const {
  return reinterpret_cast<float*>(scratch_.data() + plan_.tensors[static_cast<size_t>(tensor.id)]);
}

uint16_t* CpuBackend::Halves(Tensor tensor) const {
  return reinterpret_cast<uint16_t*>(scratch_.data() +
                                     plan_.tensors[static_cast<size_t>(tensor.id)]);
}

const float* CpuBackend::WeightsOf(Vector vector) const {
  return vector.id < 0 ? nullptr : vectors_[static_cast<size_t>(vector.id)].data();
}

}  // namespace mference::cpu
