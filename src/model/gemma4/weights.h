// Gemma 4's weights: which tensors a layer has, and their handles in a backend.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/sequence_state.h"
#include "base/json.h"
#include "format/arch_config.h"
#include "model/resident_weights.h"

namespace mference::gemma4 {

// The numbers the forward pass needs, from the installed config.json. Shapes follow section 1.1 of
// the family's specification.
struct Gemma4Config {
  int32_t hidden_size = 0;
  int32_t ffn_size = 0;  // the dense branch
  int32_t expert_ffn_size = 0;
  int32_t vocab_size = 0;
  int32_t heads = 0;
  int32_t sliding_kv_heads = 0;
  int32_t full_kv_heads = 0;
  int32_t sliding_head_dim = 0;
  int32_t full_head_dim = 0;
  int32_t experts = 0;
  int32_t top_k = 0;
  int32_t sliding_window = 0;
  float norm_eps = 0;
  float soft_cap = 0;
  float embedding_scale = 0;  // sqrt(hidden_size), in FP32
  double sliding_rope_base = 0;
  double full_rope_base = 0;
  double full_rotary_factor = 0;       // share of a full head's pairs that rotate
  std::vector<bool> full_layers = {};  // one per layer: full attention, else sliding
};

// From the checked architecture and, for what it does not hold, the installed config.json.
Gemma4Config ReadConfig(const ArchConfig& arch, const JsonReader& config);

// Rings hold the window and this many rows more: a chunk attends to its own rows in scratch, so the
// rest only serves rewinding a little without a snapshot.
constexpr int32_t kRingSlackRows = 128;

struct LayerWeights {
  int32_t index = 0;
  bool shares_key_projection = false;  // full layers: no v_proj

  Vector input_norm;  // [hidden]
  Matrix q_proj;      // [heads * head_dim, hidden]
  Matrix k_proj;      // [kv_heads * head_dim, hidden]
  Matrix v_proj;      // [kv_heads * head_dim, hidden], sliding layers
  Matrix o_proj;      // [hidden, heads * head_dim]
  Vector q_norm;      // [head_dim]
  Vector k_norm;      // [head_dim]
  RopeTable rope;
  AttentionSpec attention;
  Vector post_attention_norm;  // [hidden]

  Vector router_norm;  // [hidden]: router.scale * hidden^-0.5
  RouterSpec router;
  Vector pre_dense_norm;         // [hidden]: pre_feedforward_layernorm
  Matrix gate_proj;              // [ffn, hidden]
  Matrix up_proj;                // [ffn, hidden]
  Matrix down_proj;              // [hidden, ffn]
  Vector post_dense_norm;        // [hidden]: post_feedforward_layernorm_1
  Vector pre_routed_norm;        // [hidden]: pre_feedforward_layernorm_2
  Vector post_routed_norm;       // [hidden]: post_feedforward_layernorm_2
  Vector post_feedforward_norm;  // [hidden]
  float scalar = 1.0f;           // layer_scalar: multiplies the whole stream
};

struct ModelWeights {
  Matrix embedding;   // [vocab, hidden]; also the head
  Vector final_norm;  // [hidden]
  std::vector<LayerWeights> layers;
};

// Loads every tensor of section 2 and declares the KV blocks in `state_layout`.
ModelWeights LoadWeights(const Gemma4Config& config, const ResidentWeights& resident,
                         Backend& backend, ElementType kv_type, StateLayout& state_layout);

}  // namespace mference::gemma4
