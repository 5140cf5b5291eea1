// Gemma 4's forward pass: sliding and full attention, a dense branch beside the routed experts.
//
// The steps are numbered as in the family's specification, section 3.
#pragma once

#include <memory>
#include <vector>

#include "model/forward_passes.h"
#include "model/gemma4/weights.h"

namespace mference::gemma4 {

class Gemma4Model final : public Model {
 public:
  // Loads every resident weight into `backend`, which must outlive the model. K and V are stored
  // and attended to in `kv_type`. Throws kTensorNotFound or kTensorSizeMismatch.
  Gemma4Model(const Gemma4Config& config, const ResidentWeights& resident, Backend& backend,
              ElementType kv_type);

  int32_t vocab_size() const override { return config_.vocab_size; }
  const StateLayout& state_layout() const override { return state_layout_; }
  using Model::Forward;
  bool Forward(std::span<const int32_t> tokens, SequenceState& state,
               const CancelFlag* cancel) override;
  std::span<const float> Logits(int32_t first_row, int32_t rows) override;

 private:
  void Attention(const LayerWeights& layer);
  void FeedForward(const LayerWeights& layer);
  // Hints the experts of the layer after this one.
  void PredictNext(const LayerWeights& layer);

  const Gemma4Config config_;
  Backend& backend_;
  StateLayout state_layout_;
  const ModelWeights weights_;

  // Scratch, by what it holds; names as in the specification. Attention tensors have the wider of
  // the two layer kinds' columns and are narrowed per layer.
  Tensor hidden_;    // [rows, hidden]: the residual stream
  Tensor normed_;    // [rows, hidden]: what a projection reads
  Tensor branch_;    // [rows, hidden]: what a projection wrote, before its norm
  Tensor dense_;     // [rows, hidden]: the dense branch, normed
  Tensor inner_;     // [rows, ffn]: gelu(gate) * up of the dense branch
  Tensor query_;     // [rows, heads * head_dim]
  Tensor attended_;  // [rows, heads * head_dim]
  Tensor key_;       // [rows, kv_heads * head_dim]: projected, then normed
  Tensor value_;     // [rows, kv_heads * head_dim]: projected
  Tensor key_kv_;    // [rows, kv_heads * head_dim] in the KV type, rotated
  Tensor value_kv_;  // [rows, kv_heads * head_dim] in the KV type, normed
};

std::unique_ptr<Model> MakeGemma4(const ModelSources& sources);

}  // namespace mference::gemma4
