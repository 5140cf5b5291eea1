#include "synth/config_json.h"

#include "base/error.h"
#include "base/json.h"
#include "model/catalogue.h"
#include "model/checkpoint_schema.h"
#include "synth/statistics.h"
#include "synth/tokenizer_json.h"

namespace mference {
namespace {

constexpr int64_t kMaxPositions = 262144;

// Defaults, and an override for each matrix that departs from them.
Json Quantization(const ArchConfig& arch) {
  Json rules = {{"group_size", kSynthGroup}, {"bits", 4}, {"mode", "affine"}};
  constexpr std::string_view kWeight = ".weight";
  for (const TensorSpec& spec : SchemaOf(arch.family).resident_tensors(arch)) {
    if (spec.storage != Storage::kAffine) continue;
    const int bits = SynthStatistics::BitsOf(spec.name);
    if (bits == 4) continue;
    rules[spec.name.substr(0, spec.name.size() - kWeight.size())] = {{"group_size", kSynthGroup},
                                                                     {"bits", bits}};
  }
  return rules;
}

Json LayerTypes(const ArchConfig& arch, const char* other) {
  Json types = Json::array();
  for (const LayerKind kind : arch.layer_kinds) {
    types.push_back(kind == LayerKind::kFullAttention ? "full_attention" : other);
  }
  return types;
}

Json Gemma4TextConfig(const ArchConfig& arch) {
  return {{"model_type", "gemma4_text"},
          {"hidden_size", arch.hidden_size},
          {"num_hidden_layers", arch.num_layers},
          {"num_attention_heads", arch.num_heads},
          {"num_key_value_heads", arch.num_kv_heads},
          {"num_global_key_value_heads", arch.num_full_kv_heads},
          {"head_dim", arch.head_dim},
          {"global_head_dim", arch.full_head_dim},
          {"intermediate_size", arch.ffn_intermediate},
          {"moe_intermediate_size", arch.moe_intermediate_size},
          {"num_experts", arch.num_experts},
          {"top_k_experts", arch.top_k_experts},
          {"sliding_window", arch.sliding_window},
          {"rms_norm_eps", 1e-6},
          {"final_logit_softcapping", arch.final_logit_softcap},
          {"tie_word_embeddings", true},
          {"attention_k_eq_v", true},
          {"hidden_activation", arch.hidden_activation},
          {"max_position_embeddings", kMaxPositions},
          {"enable_moe_block", true},
          {"num_kv_shared_layers", 0},
          {"hidden_size_per_layer_input", 0},
          {"attention_bias", false},
          {"use_double_wide_mlp", false},
          {"bos_token_id", 2},
          {"pad_token_id", 0},
          {"eos_token_id", 1},
          {"vocab_size", arch.vocab_size},
          {"dtype", "bfloat16"},
          {"layer_types", LayerTypes(arch, "sliding_attention")},
          {"rope_parameters",
           {{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", arch.rope_theta}}},
            {"full_attention",
             {{"rope_type", "proportional"},
              {"rope_theta", arch.full_rope_theta},
              {"partial_rotary_factor", arch.partial_rotary_factor}}}}}};
}

Json Qwen36TextConfig(const ArchConfig& arch) {
  return {{"model_type", "qwen3_5_moe_text"},
          {"hidden_size", arch.hidden_size},
          {"num_hidden_layers", arch.num_layers},
          {"num_attention_heads", arch.num_heads},
          {"num_key_value_heads", arch.num_kv_heads},
          {"head_dim", arch.head_dim},
          {"shared_expert_intermediate_size", arch.ffn_intermediate},
          {"moe_intermediate_size", arch.moe_intermediate_size},
          {"num_experts", arch.num_experts},
          {"num_experts_per_tok", arch.top_k_experts},
          {"linear_num_key_heads", arch.linear_num_k_heads},
          {"linear_num_value_heads", arch.linear_num_v_heads},
          {"linear_key_head_dim", arch.linear_key_head_dim},
          {"linear_value_head_dim", arch.linear_value_head_dim},
          {"linear_conv_kernel_dim", arch.linear_conv_kernel_size},
          {"rms_norm_eps", 1e-6},
          {"tie_word_embeddings", false},
          {"attn_output_gate", true},
          {"attention_bias", false},
          {"hidden_act", "silu"},
          {"mlp_only_layers", Json::array()},
          {"max_position_embeddings", kMaxPositions},
          {"eos_token_id", StopTokenIds(arch).back()},
          {"vocab_size", arch.vocab_size},
          {"dtype", "bfloat16"},
          {"layer_types", LayerTypes(arch, "linear_attention")},
          {"rope_parameters",
           {{"rope_type", "default"},
            {"rope_theta", arch.rope_theta},
            {"partial_rotary_factor", arch.partial_rotary_factor}}}};
}

}  // namespace

std::string SyntheticConfigJson(const ArchConfig& arch) {
  Json config = {{"model_type", SchemaOf(arch.family).model_type},
                 {"dtype", "bfloat16"},
                 {"tie_word_embeddings", arch.tie_word_embeddings},
                 {"eos_token_id", StopTokenIds(arch)},
                 {"quantization", Quantization(arch)}};
  switch (arch.family) {
    case Family::kGemma4:
      config["architectures"] = {"Gemma4ForConditionalGeneration"};
      config["text_config"] = Gemma4TextConfig(arch);
      break;
    case Family::kQwen36:
      config["architectures"] = {"Qwen3_5MoeForConditionalGeneration"};
      config["text_config"] = Qwen36TextConfig(arch);
      break;
    default:
      Check(false, "a family with stop tokens and no configuration");
  }
  return config.dump(2) + "\n";
}

std::string SyntheticGenerationConfigJson(const ArchConfig& arch) {
  return Json{{"do_sample", true},
              {"temperature", 1.0},
              {"top_k", 64},
              {"top_p", 0.95},
              {"eos_token_id", StopTokenIds(arch)}}
             .dump(2) +
         "\n";
}

}  // namespace mference
