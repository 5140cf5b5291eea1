// Attention on the CPU: tiles of query rows that share a KV head, over the committed history and
// the step's own rows.
#include <algorithm>
#include <array>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"

namespace mference::cpu {
namespace {

// A single row has few tiles (one per KV head), so its history is cut into pieces of this many
// positions that threads take independently and that are merged in order. Fixed, so that the result
// does not depend on the number of threads; 2,048 positions of one FP16 head of 512 are 4 MiB, some
// hundred microseconds of work.
constexpr int64_t kSplitPositions = 2048;

// Pieces kept at once; a longer history is cut into longer pieces.
constexpr int64_t kMaxSplits = 32;

// Positions [begin, end) of a history block, in absolute positions.
struct PositionRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return std::max<int64_t>(0, end - begin); }
};

// Everything about one call that its tiles share.
struct Call {
  const Kernels& kernels;
  const AttentionSpec& spec;
  KvType type;
  int64_t first_position;
  const std::byte* history_keys;
  const std::byte* history_values;
  int64_t history_rows;  // physical rows: of the ring, or of the whole context
  const std::byte* own_keys;
  const std::byte* own_values;

  ptrdiff_t row_elements() const { return ptrdiff_t{spec.kv_heads} * spec.head_dim; }

  KeyValueRun Run(const std::byte* keys, const std::byte* values, int64_t row, int32_t kv_head,
                  int64_t position, int64_t count) const {
    const size_t element = type == KvType::kF16 ? 2 : 4;
    const size_t offset = (static_cast<size_t>(row * row_elements()) +
                           static_cast<size_t>(kv_head) * static_cast<size_t>(spec.head_dim)) *
                          element;
    return {.type = type,
            .k = keys + offset,
            .v = values + offset,
            .k_stride = row_elements(),
            .v_stride = row_elements(),
            .first_position = static_cast<int32_t>(position),
            .count = static_cast<int32_t>(count)};
  }

  // The history's positions of `range`, in one run or, where the ring wraps, two.
  void RunHistory(const AttentionTile& tile, int32_t kv_head, PositionRange range,
                  float* state) const {
    for (int64_t position = range.begin; position < range.end;) {
      const int64_t row = position % history_rows;
      const int64_t count = std::min(range.end - position, history_rows - row);
      kernels.attention_run(tile, Run(history_keys, history_values, row, kv_head, position, count),
                            state);
      position += count;
    }
  }

  // What the first row of a tile can see bounds what the tile needs.
  PositionRange HistoryFor(int64_t first_row) const {
    const int64_t position = first_position + first_row;
    const int64_t begin = spec.window > 0 ? std::max<int64_t>(0, position - spec.window + 1) : 0;
    return {begin, first_position};
  }
};

}  // namespace

size_t CpuBackend::AttentionStateFloats() const {
  size_t floats = 0;
  // The state's size depends on the tile's width and head size alone; take the largest of both.
  const AttentionTile tile{.rows = kMaxTileQueries, .heads = 1, .head_dim = kMaxHeadDim};
  floats = kernels_.attention_state_floats(tile) * static_cast<size_t>(pool_.threads());
  const AttentionTile single{.rows = 1, .heads = kMaxSingleRowHeads, .head_dim = kMaxHeadDim};
  return std::max(floats, kernels_.attention_state_floats(single) * kMaxSplits);
}

void CpuBackend::Attention(const AttentionSpec& spec, Tensor q, Tensor k, Tensor v, Tensor out) {
  const int32_t group = spec.heads / spec.kv_heads;
  const auto bytes_of = [this](Tensor tensor) {
    return tensor.type == ElementType::kF16 ? reinterpret_cast<const std::byte*>(Halves(tensor))
                                            : reinterpret_cast<const std::byte*>(Floats(tensor));
  };
  const Call call{.kernels = kernels_,
                  .spec = spec,
                  .type = k.type == ElementType::kF16 ? KvType::kF16 : KvType::kF32,
                  .first_position = params_.first_position,
                  .history_keys = state_->data(spec.keys),
                  .history_values = state_->data(spec.values),
                  .history_rows = state_->rows(spec.keys),
                  .own_keys = bytes_of(k),
                  .own_values = bytes_of(v)};
  const float* const queries = Floats(q);
  float* const results = Floats(out);
  auto* const states = reinterpret_cast<float*>(scratch_.data() + plan_.attention);

  const int32_t tile_rows = std::max(1, kMaxTileQueries / group);
  const int32_t row_tiles = (params_.rows + tile_rows - 1) / tile_rows;

  const auto tile_of = [&](int32_t first_row, int32_t rows, int32_t* begins, int32_t* ends) {
    for (int32_t i = 0; i < rows; ++i) {
      const int64_t position = params_.first_position + first_row + i;
      begins[i] = spec.window > 0
                      ? static_cast<int32_t>(std::max<int64_t>(0, position - spec.window + 1))
                      : 0;
      ends[i] = static_cast<int32_t>(position + 1);
    }
    return AttentionTile{.rows = rows,
                         .heads = group,
                         .head_dim = spec.head_dim,
                         .scale = spec.scale,
                         .visible_begin = begins,
                         .visible_end = ends};
  };
  const auto finish = [&](const AttentionTile& tile, int32_t first_row, int32_t kv_head,
                          float* state) {
    // The step's own rows, up to the tile's last.
    kernels_.attention_run(tile,
                           call.Run(call.own_keys, call.own_values, 0, kv_head,
                                    params_.first_position, first_row + tile.rows),
                           state);
    const ptrdiff_t at = ptrdiff_t{first_row} * q.cols + ptrdiff_t{kv_head} * group * spec.head_dim;
    kernels_.attention_end(tile, state, results + at, out.cols);
  };
  const auto begin = [&](const AttentionTile& tile, int32_t first_row, int32_t kv_head,
                         float* state) {
    const ptrdiff_t at = ptrdiff_t{first_row} * q.cols + ptrdiff_t{kv_head} * group * spec.head_dim;
    kernels_.attention_begin(tile, queries + at, q.cols, nullptr, state);
  };

  const PositionRange history = call.HistoryFor(0);
  const int64_t splits = params_.rows > 1 ? 1
                                          : std::clamp<int64_t>(history.size() / kSplitPositions, 1,
                                                                kMaxSplits / spec.kv_heads);
  if (splits > 1) {
    int32_t visible_begin = 0;
    int32_t visible_end = 0;
    const AttentionTile tile = tile_of(0, 1, &visible_begin, &visible_end);
    const size_t state_floats = kernels_.attention_state_floats(tile);
    const int64_t piece = (history.size() + splits - 1) / splits;
    ForTasks(static_cast<int32_t>(splits) * spec.kv_heads, [&](int32_t task, int32_t) {
      const auto kv_head = static_cast<int32_t>(task / splits);
      const int64_t from = history.begin + task % splits * piece;
      float* const state = states + static_cast<size_t>(task) * state_floats;
      begin(tile, 0, kv_head, state);
      call.RunHistory(tile, kv_head, {from, std::min(from + piece, history.end)}, state);
    });
    for (int32_t kv_head = 0; kv_head < spec.kv_heads; ++kv_head) {
      float* const first = states + static_cast<size_t>(kv_head * splits) * state_floats;
      for (int64_t split = 1; split < splits; ++split) {
        kernels_.attention_merge(tile, first + static_cast<size_t>(split) * state_floats, first);
      }
      finish(tile, 0, kv_head, first);
    }
    return;
  }

  const AttentionTile widest{.rows = tile_rows, .heads = group, .head_dim = spec.head_dim};
  const size_t lane_floats = kernels_.attention_state_floats(widest);
  ForTasks(row_tiles * spec.kv_heads, [&](int32_t task, int32_t lane) {
    const int32_t kv_head = task % spec.kv_heads;
    const int32_t first_row = task / spec.kv_heads * tile_rows;
    std::array<int32_t, kMaxTileQueries> begins;
    std::array<int32_t, kMaxTileQueries> ends;
    const AttentionTile tile = tile_of(first_row, std::min(tile_rows, params_.rows - first_row),
                                       begins.data(), ends.data());
    float* const state = states + static_cast<size_t>(lane) * lane_floats;
    begin(tile, first_row, kv_head, state);
    call.RunHistory(tile, kv_head, call.HistoryFor(first_row), state);
    finish(tile, first_row, kv_head, state);
  });
}

}  // namespace mference::cpu
