// A loaded model: one family's weights and its forward pass over a backend.
//
// The engine sees every family through this interface; only the catalogue knows which one it is.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/sequence_state.h"

namespace mference {

// Set from a signal handler or another thread; read between steps and between layers.
using CancelFlag = std::atomic<bool>;

// Not thread-safe: the thread that drives the backend calls it.
class Model {
 public:
  virtual ~Model() = default;
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  virtual int32_t vocab_size() const = 0;
  // Blocks of one sequence; the engine allocates them per conversation.
  virtual const StateLayout& state_layout() const = 0;

  // Runs the forward pass over `tokens`, which follow the positions `state` holds, and advances
  // `state`. Between 1 and the backend's reserved rows. Throws kIo when an expert could not be
  // read; `state` is then unusable until it is reset or restored. `cancel` (may be null) is looked
  // at before every layer: where it is set, the pass ends with false and leaves `state` the same
  // way.
  virtual bool Forward(std::span<const int32_t> tokens, SequenceState& state,
                       const CancelFlag* cancel) = 0;
  void Forward(std::span<const int32_t> tokens, SequenceState& state) {
    Forward(tokens, state, nullptr);
  }

  // Logits [rows, vocab_size] of rows of the last `Forward`; valid until the next call of either.
  virtual std::span<const float> Logits(int32_t first_row, int32_t rows) = 0;

 protected:
  static bool IsSet(const CancelFlag* cancel) {
    return cancel != nullptr && cancel->load(std::memory_order_relaxed);
  }
};

}  // namespace mference
