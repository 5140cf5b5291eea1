// Qwen 3.6's weights: which tensors a layer has, and their handles in a backend.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/sequence_state.h"
#include "base/json.h"
#include "format/arch_config.h"
#include "model/resident_weights.h"

namespace mference::qwen36 {

// The numbers the forward pass needs. Shapes follow section 1.1 of the family's specification.
struct Qwen36Config {
  int32_t hidden_size = 0;
  int32_t vocab_size = 0;  // rows of the head; ids past the tokenizer's are padding
  int32_t shared_ffn_size = 0;
  int32_t expert_ffn_size = 0;
  int32_t experts = 0;
  int32_t top_k = 0;
  // Full attention.
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t rotary_dim = 0;
  double rope_base = 0;
  // Gated DeltaNet.
  int32_t key_heads = 0;
  int32_t value_heads = 0;
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  int32_t conv_taps = 0;
  float norm_eps = 0;
  std::vector<bool> full_layers = {};  // one per layer: full attention, else DeltaNet
};

// From the checked architecture and, for what it does not hold, the installed config.json.
Qwen36Config ReadConfig(const ArchConfig& arch, const JsonReader& config);

// The mixer of a full-attention layer.
struct AttentionWeights {
  Matrix q_proj;  // [heads * 2 * head_dim, hidden]: query and gate, interleaved per head
  Matrix k_proj;  // [kv_heads * head_dim, hidden]
  Matrix v_proj;  // [kv_heads * head_dim, hidden]
  Matrix o_proj;  // [hidden, heads * head_dim]
  Vector q_norm;  // [head_dim]
  Vector k_norm;  // [head_dim]
  RopeTable rope;
  AttentionSpec spec;
};

// The mixer of a linear layer.
struct DeltaNetWeights {
  Matrix qkv_proj;  // [2 * key_heads * key_dim + value_heads * value_dim, hidden]
  Matrix z_proj;    // [value_heads * value_dim, hidden]
  Matrix a_proj;    // [value_heads, hidden]
  Matrix b_proj;    // [value_heads, hidden]
  Matrix out_proj;  // [hidden, value_heads * value_dim]
  Vector norm;      // [value_dim]
  ShortConvolutionSpec convolution;
  DeltaNetSpec spec;
};

struct LayerWeights {
  int32_t index = 0;
  Vector input_norm;                          // [hidden]
  std::optional<AttentionWeights> attention;  // one of the two mixers
  std::optional<DeltaNetWeights> delta_net;

  Vector post_attention_norm;  // [hidden]
  RouterSpec router;
  Matrix shared_gate;       // [1, hidden]: one sigmoid gate per row
  Matrix shared_gate_proj;  // [shared_ffn, hidden]
  Matrix shared_up_proj;    // [shared_ffn, hidden]
  Matrix shared_down_proj;  // [hidden, shared_ffn]
};

struct ModelWeights {
  Matrix embedding;   // [vocab, hidden]
  Matrix head;        // [vocab, hidden]
  Vector final_norm;  // [hidden]
  std::vector<LayerWeights> layers;
};

// Loads every tensor of section 2 and declares the state blocks in `state_layout`.
ModelWeights LoadWeights(const Qwen36Config& config, const ResidentWeights& resident,
                         Backend& backend, ElementType kv_type, StateLayout& state_layout);

}  // namespace mference::qwen36
