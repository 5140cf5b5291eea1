#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"

namespace mference::cpu {
namespace {

// Below this many elements, waking a second thread (about a microsecond) costs more than it saves.
constexpr int64_t kParallelElements = 16384;

// Most matrices in one parallel section; further ones take another.
constexpr size_t kMaxProducts = 8;

// Whether activations prepared for one matrix serve the other.
bool TakeSameInput(const WeightMatrix& a, const WeightMatrix& b) {
  return a.format == b.format && a.cols == b.cols && a.group == b.group &&
         ActivationBlock(a) == ActivationBlock(b);
}

}  // namespace

CpuBackend::CpuBackend(const Kernels& kernels, int threads, bool precise)
    : kernels_(kernels), precise_(precise), pool_(threads) {}
CpuBackend::~CpuBackend() = default;

// ---- Step

void CpuBackend::BeginStep(const StepParams& params, std::span<const int32_t> tokens,
                           SequenceState& state) {
  Check(params.rows >= 1 && params.rows <= max_rows_, "a step has 1 to max_rows rows");
  Check(tokens.size() == static_cast<size_t>(params.rows), "one token per row");
  TakeWeightMoves();
  state.BeginStep(params.rows);
  params_ = params;
  tokens_ = tokens;
  state_ = &state;
  failed_ = false;
  failed_table_ = nullptr;
  failed_table_row_ = -1;
  for (size_t i = 0; i < ropes_.size(); ++i) {
    const std::vector<double>& frequencies = ropes_[i].frequencies;
    const size_t pairs = frequencies.size();
    auto* const angles = reinterpret_cast<float*>(scratch_.data() + plan_.rope[i]);
    ForRows(params.rows, [&](int32_t row) {
      float* const cosines = angles + static_cast<size_t>(row) * 2 * pairs;
      const auto position = static_cast<double>(params_.first_position + row);
      for (size_t pair = 0; pair < pairs; ++pair) {
        const double angle = position * frequencies[pair];
        cosines[pair] = static_cast<float>(std::cos(angle));
        cosines[pairs + pair] = static_cast<float>(std::sin(angle));
      }
    });
  }
}

void CpuBackend::EndStep() {
  stream_.reset();
  if (failed_table_ != nullptr) {
    Fail(ErrorCode::kIo, "cannot read row {} of {} from the model's file; is the disk damaged?",
         failed_table_row_.load(), failed_table_->name);
  }
  if (failed_) store_->ThrowLastError();
  state_->CompleteStep(params_.rows);
}

// ---- Threads

void CpuBackend::ForRows(int32_t rows, FunctionRef<void(int32_t row)> body) {
  if (rows == 1) return body(0);
  pool_.ParallelFor(rows, 1, [&](int begin, int end) {
    for (int row = begin; row < end; ++row) body(row);
  });
}

void CpuBackend::ForTasks(int32_t tasks, FunctionRef<void(int32_t task, int32_t lane)> body) {
  std::atomic<int32_t> next{0};
  pool_.Run(std::min(tasks, pool_.threads()), [&](int lane) {
    for (int32_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
      body(task, lane);
    }
  });
}

// ---- Vectors and rows

void CpuBackend::Embed(const Matrix& table, float factor, Tensor out) {
  for (const TableInfo& info : tables_) {
    if (info.from_file && info.matrix == table.id) return EmbedFromFile(info, factor, out);
  }
  const WeightMatrix& w = matrices_[static_cast<size_t>(table.id)];
  float* const y = Floats(out);
  ForRows(params_.rows, [&](int32_t row) {
    kernels_.dequantize_row(w, tokens_[static_cast<size_t>(row)], factor,
                            y + static_cast<size_t>(row) * static_cast<size_t>(out.cols));
  });
}

void CpuBackend::RmsNorm(Tensor x, Vector weight, float eps, Tensor out) {
  const float* const in = Floats(x);
  float* const y = Floats(out);
  const float* const w = WeightsOf(weight);
  ForRows(params_.rows, [&](int32_t row) {
    const size_t at = static_cast<size_t>(row) * static_cast<size_t>(x.cols);
    kernels_.rms_norm(in + at, w, eps, x.cols, y + at);
  });
}

void CpuBackend::HeadRmsNorm(Tensor x, int32_t head_dim, Vector weight, float eps, Tensor out) {
  const float* const in = Floats(x);
  const float* const w = WeightsOf(weight);
  ForRows(params_.rows, [&](int32_t row) {
    std::array<float, kMaxHeadDim> head;
    for (int32_t col = 0; col < x.cols; col += head_dim) {
      kernels_.rms_norm(in + static_cast<size_t>(row) * static_cast<size_t>(x.cols) + col, w, eps,
                        head_dim, head.data());
      StoreHead(out, row, col, head.data(), head_dim);
    }
  });
}

void CpuBackend::Rope(Tensor x, int32_t head_dim, RopeTable table, Tensor out) {
  const RopeInfo& rope = ropes_[static_cast<size_t>(table.id)];
  const auto pairs = static_cast<int32_t>(rope.frequencies.size());
  const auto* const angles =
      reinterpret_cast<const float*>(scratch_.data() + plan_.rope[static_cast<size_t>(table.id)]);
  const float* const in = Floats(x);
  ForRows(params_.rows, [&](int32_t row) {
    const float* const cosines = angles + static_cast<size_t>(row) * 2 * static_cast<size_t>(pairs);
    std::array<float, kMaxHeadDim> head;
    for (int32_t col = 0; col < x.cols; col += head_dim) {
      std::memcpy(head.data(), in + static_cast<size_t>(row) * static_cast<size_t>(x.cols) + col,
                  static_cast<size_t>(head_dim) * sizeof(float));
      kernels_.rope(head.data(), rope.rotary_dim / 2, pairs, cosines, cosines + pairs);
      StoreHead(out, row, col, head.data(), head_dim);
    }
  });
}

void CpuBackend::StoreHead(Tensor out, int32_t row, int32_t col, const float* values, int32_t n) {
  const size_t at = static_cast<size_t>(row) * static_cast<size_t>(out.cols) + col;
  if (out.type == ElementType::kF16) {
    kernels_.f16_from_f32(values, n, Halves(out) + at);
  } else {
    std::memcpy(Floats(out) + at, values, static_cast<size_t>(n) * sizeof(float));
  }
}

void CpuBackend::AddRmsNorm(Tensor residual, Tensor x, Vector weight, float eps, float scale) {
  float* const y = Floats(residual);
  const float* const in = Floats(x);
  const float* const w = WeightsOf(weight);
  ForRows(params_.rows, [&](int32_t row) {
    const size_t at = static_cast<size_t>(row) * static_cast<size_t>(x.cols);
    kernels_.add_rms_norm(in + at, w, eps, scale, x.cols, y + at);
  });
}

void CpuBackend::Add(Tensor a, Tensor b, Tensor out) {
  const float* const left = Floats(a);
  const float* const right = Floats(b);
  float* const y = Floats(out);
  ForRows(params_.rows, [&](int32_t row) {
    const size_t at = static_cast<size_t>(row) * static_cast<size_t>(a.cols);
    kernels_.add_scaled(left + at, right + at, 1.0f, a.cols, y + at);
  });
}

void CpuBackend::AddGated(Tensor a, Tensor x, Tensor gate, Tensor out) {
  const float* const base = Floats(a);
  const float* const in = Floats(x);
  const float* const gates = Floats(gate);
  float* const y = Floats(out);
  ForRows(params_.rows, [&](int32_t row) {
    const size_t at = static_cast<size_t>(row) * static_cast<size_t>(a.cols);
    const float weight = 1.0f / (1.0f + std::exp(-gates[row]));
    if (y != base) std::memcpy(y + at, base + at, static_cast<size_t>(a.cols) * sizeof(float));
    kernels_.accumulate(weight, in + at, a.cols, y + at);
  });
}

void CpuBackend::MultiplySigmoid(Tensor x, Tensor gate, Tensor out) {
  const float* const in = Floats(x);
  const float* const gates = Floats(gate);
  float* const y = Floats(out);
  ForRows(params_.rows, [&](int32_t row) {
    const size_t at = static_cast<size_t>(row) * static_cast<size_t>(x.cols);
    kernels_.sigmoid_product(in + at, gates + at, x.cols, y + at);
  });
}

void CpuBackend::GatedHeadRmsNorm(Tensor x, int32_t head_dim, Vector weight, float eps, Tensor gate,
                                  Tensor out) {
  const float* const in = Floats(x);
  const float* const gates = Floats(gate);
  float* const y = Floats(out);
  const float* const w = WeightsOf(weight);
  ForRows(params_.rows, [&](int32_t row) {
    const size_t begin = static_cast<size_t>(row) * static_cast<size_t>(x.cols);
    for (size_t at = begin; at < begin + static_cast<size_t>(x.cols);
         at += static_cast<size_t>(head_dim)) {
      kernels_.rms_norm(in + at, w, eps, head_dim, y + at);
      kernels_.silu_product(gates + at, y + at, INFINITY, head_dim, y + at);
    }
  });
}

void CpuBackend::SplitHeads(Tensor x, int32_t head_dim, Tensor first, Tensor second) {
  const float* const in = Floats(x);
  float* const halves[] = {Floats(first), Floats(second)};
  ForRows(params_.rows, [&](int32_t row) {
    const float* from = in + static_cast<size_t>(row) * static_cast<size_t>(x.cols);
    const size_t to = static_cast<size_t>(row) * static_cast<size_t>(first.cols);
    for (int32_t col = 0; col < first.cols; col += head_dim) {
      for (float* const half : halves) {
        std::memcpy(half + to + col, from, static_cast<size_t>(head_dim) * sizeof(float));
        from += head_dim;
      }
    }
  });
}

void CpuBackend::Convert(Tensor x, Tensor out) {
  const float* const in = Floats(x);
  ForRows(params_.rows, [&](int32_t row) {
    StoreHead(out, row, 0, in + static_cast<size_t>(row) * static_cast<size_t>(x.cols), x.cols);
  });
}

// ---- Matrices

CpuBackend::Rounding CpuBackend::RoundingFor(const WeightMatrix& shape) const {
  if (precise_) return Rounding::kNone;
  if (params_.rows == 1 && IsAffine(shape.format)) return Rounding::kTo16Bits;
  return params_.rows >= kMinQuantisedRows && IsQuantisable(shape.format) ? Rounding::kTo8Bits
                                                                          : Rounding::kNone;
}

void CpuBackend::PrepareRow(const WeightMatrix& shape, Rounding rounding, const float* x, int32_t n,
                            int32_t i, std::byte* prepared) const {
  // A stride of 0: kernels find row i where they find the first.
  switch (rounding) {
    case Rounding::kNone:
      kernels_.matmul_prepare(shape, x, 0, n, i, i + 1, reinterpret_cast<float*>(prepared));
      break;
    case Rounding::kTo16Bits:
      kernels_.single_row_prepare(shape, x, prepared);
      break;
    case Rounding::kTo8Bits:
      kernels_.quantised_prepare(shape, x, 0, n, i, i + 1, prepared);
      break;
  }
}

void CpuBackend::Prepare(const WeightMatrix& shape, Rounding rounding, const float* x,
                         ptrdiff_t stride, int32_t n) {
  ForPreparedRows(n, shape.cols, [&](int32_t i) {
    PrepareRow(shape, rounding, x + i * stride, n, i, Prepared());
  });
}

void CpuBackend::ForPreparedRows(int32_t n, int32_t cols, FunctionRef<void(int32_t i)> prepare) {
  const auto range = [&](int begin, int end) {
    for (int i = begin; i < end; ++i) prepare(i);
  };
  if (int64_t{n} * cols < kParallelElements) {
    range(0, n);
  } else {
    pool_.ParallelFor(n, 1, range);
  }
}

void CpuBackend::Multiply(const WeightMatrix& w, Rounding rounding, const std::byte* prepared,
                          int32_t n, float* y, ptrdiff_t stride, int begin, int end) const {
  switch (rounding) {
    case Rounding::kNone:
      kernels_.matmul(w, reinterpret_cast<const float*>(prepared), n, y, stride, begin, end);
      break;
    case Rounding::kTo16Bits:
      kernels_.single_row_matmul(w, prepared, y, begin, end);
      break;
    case Rounding::kTo8Bits:
      kernels_.quantised_matmul(w, prepared, n, y, stride, begin, end);
      break;
  }
}

void CpuBackend::ForRowRanges(std::span<const int32_t> rows,
                              FunctionRef<void(size_t i, int begin, int end)> body) {
  const int32_t tile = kernels_.matmul_row_tile;
  const auto tiles_of = [&](size_t i) { return (rows[i] + tile - 1) / tile; };
  int32_t tiles = 0;
  for (size_t i = 0; i < rows.size(); ++i) tiles += tiles_of(i);
  pool_.ParallelFor(tiles, 1, [&](int begin, int end) {
    for (size_t i = 0; end > 0; ++i) {
      const int32_t own = tiles_of(i);
      if (begin < own) body(i, begin * tile, std::min(std::min(end, own) * tile, rows[i]));
      begin = std::max(begin - own, 0);
      end -= own;
    }
  });
}

void CpuBackend::MatMulPrepared(const WeightMatrix& w, Rounding rounding, int32_t n, float* y,
                                ptrdiff_t stride) {
  pool_.ParallelFor(w.rows, kernels_.matmul_row_tile, [&](int begin, int end) {
    Multiply(w, rounding, Prepared(), n, y, stride, begin, end);
  });
}

void CpuBackend::GatedPrepared(const WeightMatrix& gate, const WeightMatrix& up, Rounding rounding,
                               Activation activation, int32_t n, float* y, float* up_out,
                               ptrdiff_t stride) {
  pool_.ParallelFor(gate.rows, kernels_.matmul_row_tile, [&](int begin, int end) {
    Multiply(gate, rounding, Prepared(), n, y, stride, begin, end);
    Multiply(up, rounding, Prepared(), n, up_out, stride, begin, end);
    Activate(activation, n, y, up_out, stride, begin, end);
  });
}

void CpuBackend::Activate(Activation activation, int32_t n, float* gate, const float* up,
                          ptrdiff_t stride, int begin, int end) const {
  for (int32_t row = 0; row < n; ++row) {
    float* const gate_row = gate + row * stride + begin;
    const float* const up_row = up + row * stride + begin;
    if (activation == Activation::kGeluTanh) {
      kernels_.gelu_product(gate_row, up_row, end - begin, gate_row);
    } else {
      kernels_.silu_product(gate_row, up_row, INFINITY, end - begin, gate_row);
    }
  }
}

void CpuBackend::MatMul(Tensor x, std::span<const Product> products) {
  const auto matrix = [&](size_t i) -> const WeightMatrix& {
    return matrices_[static_cast<size_t>(products[i].weights.id)];
  };
  std::array<int32_t, kMaxProducts> rows;
  while (!products.empty()) {
    const WeightMatrix& first = matrix(0);
    size_t count = 0;
    for (; count < std::min(products.size(), rows.size()); ++count) {
      if (!TakeSameInput(first, matrix(count))) break;
      rows[count] = matrix(count).rows;
    }
    const Rounding rounding = RoundingFor(first);
    Prepare(first, rounding, Floats(x), x.cols, params_.rows);
    ForRowRanges(std::span(rows).first(count), [&](size_t i, int begin, int end) {
      const Tensor& out = products[i].out;
      Multiply(matrix(i), rounding, Prepared(), params_.rows, Floats(out), out.cols, begin, end);
    });
    products = products.subspan(count);
  }
}

void CpuBackend::GatedMatMul(Tensor x, const Matrix& gate, const Matrix& up, Activation activation,
                             Tensor out) {
  const WeightMatrix& gate_weights = matrices_[static_cast<size_t>(gate.id)];
  const WeightMatrix& up_weights = matrices_[static_cast<size_t>(up.id)];
  Check(TakeSameInput(gate_weights, up_weights), "gate and up take the same prepared activations");
  const Rounding rounding = RoundingFor(gate_weights);
  auto* const up_out = reinterpret_cast<float*>(scratch_.data() + plan_.gated);
  Prepare(gate_weights, rounding, Floats(x), x.cols, params_.rows);
  GatedPrepared(gate_weights, up_weights, rounding, activation, params_.rows, Floats(out), up_out,
                out.cols);
}

// Logits are few rows, and what everything is judged by: never rounded to 8 bits.
std::span<const float> CpuBackend::Head(Tensor x, int32_t first_row, int32_t rows,
                                        const Matrix& weights, float soft_cap) {
  Check(rows >= 1 && rows <= kMaxLogitsRows && first_row >= 0 && first_row + rows <= params_.rows,
        "logits of rows that the last step had");
  const WeightMatrix& w = matrices_[static_cast<size_t>(weights.id)];
  auto* const logits = reinterpret_cast<float*>(scratch_.data() + plan_.logits);
  const Rounding rounding =
      !precise_ && rows == 1 && IsAffine(w.format) ? Rounding::kTo16Bits : Rounding::kNone;
  Prepare(w, rounding, Floats(x) + static_cast<size_t>(first_row) * static_cast<size_t>(x.cols),
          x.cols, rows);
  pool_.ParallelFor(w.rows, kernels_.matmul_row_tile, [&](int begin, int end) {
    Multiply(w, rounding, Prepared(), rows, logits, w.rows, begin, end);
    if (soft_cap <= 0) return;
    for (int32_t row = 0; row < rows; ++row) {
      float* const values = logits + static_cast<ptrdiff_t>(row) * w.rows + begin;
      kernels_.soft_cap(values, soft_cap, end - begin, values);
    }
  });
  return {logits, static_cast<size_t>(rows) * static_cast<size_t>(w.rows)};
}

// ---- State and probes

void CpuBackend::Commit(StateBlock block, Tensor rows) {
  const StateBlockSpec& spec = state_->spec(block);
  const int64_t capacity = state_->rows(block);
  const size_t row_bytes = static_cast<size_t>(spec.row_bytes);
  const auto* const in = rows.type == ElementType::kF16
                             ? reinterpret_cast<const std::byte*>(Halves(rows))
                             : reinterpret_cast<const std::byte*>(Floats(rows));
  // A chunk wider than the ring leaves only its newest rows there.
  const int64_t first =
      spec.kind == StateKind::kRing ? std::max<int64_t>(0, params_.rows - capacity) : 0;
  for (int64_t row = first; row < params_.rows; ++row) {
    const int64_t position = params_.first_position + row;
    const int64_t slot = spec.kind == StateKind::kRing ? position % capacity : position;
    std::memcpy(state_->data(block) + static_cast<size_t>(slot) * row_bytes,
                in + static_cast<size_t>(row) * row_bytes, row_bytes);
  }
}

void CpuBackend::Observe(const char* name, int32_t layer, Tensor x) {
  if (probe_ == nullptr) return;
  probe_->OnTensor(name, layer,
                   {Floats(x), static_cast<size_t>(params_.rows) * static_cast<size_t>(x.cols)},
                   x.cols);
}

}  // namespace mference::cpu
