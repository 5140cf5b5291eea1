// Qwen 3.6's forward pass: three gated DeltaNet layers to one of gated full attention, routed
// experts with a gated shared expert.
//
// The steps are numbered as in the family's specification, section 3.
#pragma once

#include <memory>

#include "model/forward_passes.h"
#include "model/qwen36/weights.h"

namespace mference::qwen36 {

class Qwen36Model final : public Model {
 public:
  // Loads every resident weight into `backend`, which must outlive the model. K, V and convolution
  // tails are stored in `kv_type`; recurrent state is FP32. Throws kTensorNotFound or
  // kTensorSizeMismatch.
  Qwen36Model(const Qwen36Config& config, const ResidentWeights& resident, Backend& backend,
              ElementType kv_type);

  int32_t vocab_size() const override { return config_.vocab_size; }
  const StateLayout& state_layout() const override { return state_layout_; }
  using Model::Forward;
  bool Forward(std::span<const int32_t> tokens, SequenceState& state,
               const CancelFlag* cancel) override;
  std::span<const float> Logits(int32_t first_row, int32_t rows) override;

 private:
  void FullAttention(const AttentionWeights& weights);
  void DeltaNet(const DeltaNetWeights& weights);
  void FeedForward(const LayerWeights& layer);

  const Qwen36Config config_;
  Backend& backend_;
  StateLayout state_layout_;
  const ModelWeights weights_;

  Tensor hidden_;  // [rows, hidden]: the residual stream
  Tensor normed_;  // [rows, hidden]: what a mixer or feed-forward reads
  Tensor branch_;  // [rows, hidden]: what it wrote
  Tensor mixed_;   // [rows, heads * head_dim] or [rows, value_heads * value_dim]: before out_proj
  Tensor gate_;    // the same: the output gate
  // Full attention.
  Tensor query_gate_;  // [rows, heads * 2 * head_dim]
  Tensor query_;       // [rows, heads * head_dim]
  Tensor key_;         // [rows, kv_heads * head_dim]
  Tensor value_;       // [rows, kv_heads * head_dim]
  Tensor key_kv_;      // the same in the KV type, rotated
  Tensor value_kv_;    // the same in the KV type
  // DeltaNet.
  Tensor qkv_;        // [rows, channels], projected
  Tensor convolved_;  // [rows, channels]
  Tensor a_;          // [rows, value_heads]
  Tensor b_;          // [rows, value_heads]
  // Shared expert.
  Tensor shared_inner_;  // [rows, shared_ffn]
  Tensor shared_;        // [rows, hidden]
  Tensor shared_gate_;   // [rows, 1]
};

std::unique_ptr<Model> MakeQwen36(const ModelSources& sources);

}  // namespace mference::qwen36
