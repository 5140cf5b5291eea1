#include "install/production_headers.h"

#include <fcntl.h>

#include <algorithm>
#include <random>

#include "base/file.h"
#include "fmt/format.h"
#include "install/snapshot.h"
#include "install/test_support.h"

namespace mference::testing {

void HeaderSource::WriteTo(const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  WriteAll(directory / kSourceIndexFile, index_.dump());
  WriteAll(directory / kSourceConfigFile, config_json_);
  WriteAll(directory / "tokenizer.json", "{}");
  WriteAll(directory / "tokenizer_config.json", "{}");
  // One megabyte of noise, over and over with a moving start.
  std::mt19937_64 random(7);
  std::vector<uint64_t> noise(1 << 18);
  for (uint64_t& word : noise) word = random();
  const auto bytes = std::as_bytes(std::span(noise));
  for (size_t i = 0; i < headers_.size(); ++i) {
    const FileDescriptor file(
        open((directory / ShardName(i)).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    const std::string head = ReadBytes(ShardName(i), 0, 8 + Header(i).size());
    WriteExactly(file, 0, std::as_bytes(std::span(head)), "shard");
    constexpr uint64_t kPiece = uint64_t{1} << 20;
    for (uint64_t done = 0; done < data_bytes_[i]; done += kPiece) {
      const uint64_t start = (done / kPiece * 8) % (bytes.size() - kPiece + 8);
      WriteExactly(file, head.size() + done,
                   bytes.subspan(start, std::min(kPiece, data_bytes_[i] - done)), "shard");
    }
  }
}

namespace {

Json Affine4(uint64_t group = 64) {
  return {{"bits", 4}, {"group_size", group}, {"mode", "affine"}};
}

}  // namespace

std::unique_ptr<HeaderSource> Gemma4Headers(uint64_t layers) {
  Json layer_types;
  Json quantization = Affine4();
  for (uint64_t i = 0; i < layers; ++i) {
    layer_types.push_back(i % 6 == 5 ? "full_attention" : "sliding_attention");
    quantization[fmt::format("language_model.model.layers.{}.router.proj", i)] = {
        {"bits", 8}, {"group_size", 64}};
  }
  const Json config = {
      {"model_type", "gemma4"},
      {"eos_token_id", {1, 106, 50}},
      {"quantization", quantization},
      {"text_config",
       {{"hidden_size", 2816},
        {"num_hidden_layers", layers},
        {"num_attention_heads", 16},
        {"vocab_size", 262144},
        {"num_key_value_heads", 8},
        {"num_global_key_value_heads", 2},
        {"head_dim", 256},
        {"global_head_dim", 512},
        {"intermediate_size", 2112},
        {"moe_intermediate_size", 704},
        {"num_experts", 128},
        {"top_k_experts", 8},
        {"sliding_window", 1024},
        {"rms_norm_eps", 1e-6},
        {"final_logit_softcapping", 30.0},
        {"tie_word_embeddings", true},
        {"attention_k_eq_v", true},
        {"hidden_activation", "gelu_pytorch_tanh"},
        {"max_position_embeddings", 262144},
        {"enable_moe_block", true},
        {"num_kv_shared_layers", 0},
        {"hidden_size_per_layer_input", 0},
        {"attention_bias", false},
        {"use_bidirectional_attention", "vision"},
        {"rope_parameters",
         {{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
          {"full_attention",
           {{"rope_type", "proportional"},
            {"rope_theta", 1000000.0},
            {"partial_rotary_factor", 0.25}}}}},
        {"layer_types", layer_types}}}};
  auto built = std::make_unique<HeaderSource>(config.dump());
  HeaderSource& source = *built;
  constexpr uint64_t kH = 2816;
  source.Add("vision_tower.patch.weight", "BF16", {1024, 1024});
  source.Affine("language_model.model.embed_tokens", {262144, kH});
  for (uint64_t i = 0; i < layers; ++i) {
    const std::string p = fmt::format("language_model.model.layers.{}.", i);
    const bool full = i % 6 == 5;
    for (const char* norm :
         {"input_layernorm", "post_attention_layernorm", "post_feedforward_layernorm",
          "post_feedforward_layernorm_1", "post_feedforward_layernorm_2",
          "pre_feedforward_layernorm", "pre_feedforward_layernorm_2"}) {
      source.Vector(p + norm + ".weight", kH);
    }
    source.Vector(p + "layer_scalar", 1);
    source.Vector(p + "router.scale", kH);
    source.Vector(p + "router.per_expert_scale", 128);
    source.Affine(p + "router.proj", {128, kH}, 8);
    source.Vector(p + "self_attn.q_norm.weight", full ? 512 : 256);
    source.Vector(p + "self_attn.k_norm.weight", full ? 512 : 256);
    source.Affine(p + "self_attn.q_proj", {full ? 8192u : 4096u, kH});
    source.Affine(p + "self_attn.k_proj", {full ? 1024u : 2048u, kH});
    if (!full) source.Affine(p + "self_attn.v_proj", {2048, kH});
    source.Affine(p + "self_attn.o_proj", {kH, full ? 8192u : 4096u});
    source.Affine(p + "mlp.gate_proj", {2112, kH});
    source.Affine(p + "mlp.up_proj", {2112, kH});
    source.Affine(p + "mlp.down_proj", {kH, 2112});
    source.Affine(p + "experts.switch_glu.gate_proj", {128, 704, kH});
    source.Affine(p + "experts.switch_glu.up_proj", {128, 704, kH});
    source.Affine(p + "experts.switch_glu.down_proj", {128, kH, 704});
  }
  source.Vector("language_model.model.norm.weight", kH);
  return built;
}

std::unique_ptr<HeaderSource> Qwen36Headers() {
  Json layer_types;
  Json quantization = Affine4();
  for (int i = 0; i < 40; ++i) {
    layer_types.push_back(i % 4 == 3 ? "full_attention" : "linear_attention");
    for (const char* module : {"gate", "shared_expert_gate"}) {
      quantization[fmt::format("language_model.model.layers.{}.mlp.{}", i, module)] = {
          {"bits", 8}, {"group_size", 64}};
    }
  }
  const Json config = {{"model_type", "qwen3_5_moe"},
                       {"quantization", quantization},
                       {"text_config",
                        {{"hidden_size", 2048},
                         {"num_hidden_layers", 40},
                         {"vocab_size", 248320},
                         {"tie_word_embeddings", false},
                         {"num_attention_heads", 16},
                         {"num_key_value_heads", 2},
                         {"head_dim", 256},
                         {"attn_output_gate", true},
                         {"attention_bias", false},
                         {"linear_num_key_heads", 16},
                         {"linear_num_value_heads", 32},
                         {"linear_key_head_dim", 128},
                         {"linear_value_head_dim", 128},
                         {"linear_conv_kernel_dim", 4},
                         {"num_experts", 256},
                         {"num_experts_per_tok", 8},
                         {"moe_intermediate_size", 512},
                         {"shared_expert_intermediate_size", 512},
                         {"hidden_act", "silu"},
                         {"output_gate_type", "swish"},
                         {"mtp_num_hidden_layers", 1},
                         {"rope_parameters",
                          {{"rope_type", "default"},
                           {"rope_theta", 10000000},
                           {"partial_rotary_factor", 0.25},
                           {"mrope_section", {11, 11, 10}},
                           {"mrope_interleaved", true}}},
                         {"layer_types", layer_types}}}};
  auto built = std::make_unique<HeaderSource>(config.dump());
  HeaderSource& source = *built;
  constexpr uint64_t kH = 2048;
  source.Affine("language_model.lm_head", {248320, kH});
  source.Affine("language_model.model.embed_tokens", {248320, kH});
  for (uint64_t i = 0; i < 40; ++i) {
    const std::string p = fmt::format("language_model.model.layers.{}.", i);
    source.Vector(p + "input_layernorm.weight", kH);
    source.Vector(p + "post_attention_layernorm.weight", kH);
    if (i % 4 == 3) {
      source.Affine(p + "self_attn.q_proj", {8192, kH});
      source.Affine(p + "self_attn.k_proj", {512, kH});
      source.Affine(p + "self_attn.v_proj", {512, kH});
      source.Affine(p + "self_attn.o_proj", {kH, 4096});
      source.Vector(p + "self_attn.q_norm.weight", 256);
      source.Vector(p + "self_attn.k_norm.weight", 256);
    } else {
      source.Vector(p + "linear_attn.A_log", 32);
      source.Vector(p + "linear_attn.dt_bias", 32);
      source.Vector(p + "linear_attn.norm.weight", 128);
      source.Add(p + "linear_attn.conv1d.weight", "BF16", {8192, 4, 1});
      source.Affine(p + "linear_attn.in_proj_qkv", {8192, kH});
      source.Affine(p + "linear_attn.in_proj_z", {4096, kH});
      source.Affine(p + "linear_attn.in_proj_a", {32, kH});
      source.Affine(p + "linear_attn.in_proj_b", {32, kH});
      source.Affine(p + "linear_attn.out_proj", {kH, 4096});
    }
    source.Affine(p + "mlp.gate", {256, kH}, 8);
    source.Affine(p + "mlp.shared_expert_gate", {1, kH}, 8);
    source.Affine(p + "mlp.shared_expert.gate_proj", {512, kH});
    source.Affine(p + "mlp.shared_expert.up_proj", {512, kH});
    source.Affine(p + "mlp.shared_expert.down_proj", {kH, 512});
    source.Affine(p + "mlp.switch_mlp.gate_proj", {256, 512, kH});
    source.Affine(p + "mlp.switch_mlp.up_proj", {256, 512, kH});
    source.Affine(p + "mlp.switch_mlp.down_proj", {256, kH, 512});
  }
  source.Vector("language_model.model.norm.weight", kH);
  return built;
}

std::unique_ptr<HeaderSource> DeepseekV4Headers() {
  Json ratios = {0, 0};
  Json quantization = Affine4();
  for (int i = 2; i < 43; ++i) ratios.push_back(i % 2 == 0 ? 4 : 128);
  ratios.push_back(0);  // the draft head's
  for (int i = 0; i < 43; ++i) {
    const std::string experts = fmt::format("model.layers.{}.ffn.switch_mlp.", i);
    quantization[experts + "gate_proj"] = {{"bits", 2}, {"group_size", i < 42 ? 32 : 64}};
    quantization[experts + "up_proj"] = {{"bits", 2}, {"group_size", 64}};
    quantization[experts + "down_proj"] = {{"bits", 2}, {"group_size", 64}};
  }
  const Json config = {{"model_type", "deepseek_v4"},
                       {"quantization", quantization},
                       {"vocab_size", 129280},
                       {"hidden_size", 4096},
                       {"num_hidden_layers", 43},
                       {"num_attention_heads", 64},
                       {"num_key_value_heads", 1},
                       {"head_dim", 512},
                       {"qk_rope_head_dim", 64},
                       {"q_lora_rank", 1024},
                       {"o_groups", 8},
                       {"o_lora_rank", 1024},
                       {"sliding_window", 128},
                       {"compress_ratios", ratios},
                       {"rope_theta", 10000},
                       {"compress_rope_theta", 160000},
                       {"rope_scaling",
                        {{"type", "yarn"},
                         {"factor", 16},
                         {"original_max_position_embeddings", 65536},
                         {"beta_fast", 32},
                         {"beta_slow", 1}}},
                       {"index_n_heads", 64},
                       {"index_head_dim", 128},
                       {"index_topk", 512},
                       {"n_routed_experts", 256},
                       {"num_experts_per_tok", 6},
                       {"n_shared_experts", 1},
                       {"moe_intermediate_size", 2048},
                       {"scoring_func", "sqrtsoftplus"},
                       {"topk_method", "noaux_tc"},
                       {"norm_topk_prob", true},
                       {"routed_scaling_factor", 1.5},
                       {"swiglu_limit", 10.0},
                       {"num_hash_layers", 3},
                       {"hc_mult", 4},
                       {"hc_sinkhorn_iters", 20},
                       {"hc_eps", 1e-6},
                       {"hidden_act", "silu"},
                       {"tie_word_embeddings", false}};
  auto built = std::make_unique<HeaderSource>(config.dump());
  HeaderSource& source = *built;
  constexpr uint64_t kH = 4096;
  source.Affine("lm_head", {129280, kH});
  source.Affine("model.embed_tokens", {129280, kH});
  source.Add("model.hc_head.base", "F32", {4});
  source.Add("model.hc_head.fn", "F32", {4, 16384});
  source.Add("model.hc_head.scale", "F32", {1});
  for (uint64_t i = 0; i < 43; ++i) {
    const std::string p = fmt::format("model.layers.{}.", i);
    const bool csa = i >= 2 && i % 2 == 0;
    const bool hca = i >= 2 && i % 2 == 1;
    source.Affine(p + "attn.wq_a", {1024, kH});
    source.Vector(p + "attn.q_norm.weight", 1024);
    source.Affine(p + "attn.wq_b", {32768, 1024});
    source.Affine(p + "attn.wkv", {512, kH});
    source.Vector(p + "attn.kv_norm.weight", 512);
    source.Add(p + "attn.attn_sink", "F32", {64});
    source.Affine(p + "attn.wo_a", {8192, 4096});
    source.Affine(p + "attn.wo_b", {kH, 8192});
    if (csa || hca) {
      const uint64_t width = csa ? 1024 : 512;
      source.Affine(p + "attn.compressor.wkv", {width, kH});
      source.Affine(p + "attn.compressor.wgate", {width, kH});
      source.Vector(p + "attn.compressor.norm.weight", 512);
      source.Add(p + "attn.compressor.ape", "BF16", {csa ? 4u : 128u, width});
    }
    if (csa) {
      source.Affine(p + "attn.indexer.compressor.wkv", {256, kH});
      source.Affine(p + "attn.indexer.compressor.wgate", {256, kH});
      source.Vector(p + "attn.indexer.compressor.norm.weight", 128);
      source.Add(p + "attn.indexer.compressor.ape", "BF16", {4, 256});
      source.Affine(p + "attn.indexer.wq_b", {8192, 1024});
      source.Affine(p + "attn.indexer.weights_proj", {64, kH});
    }
    source.Add(p + "ffn.gate.weight", "BF16", {256, kH});
    if (i < 3) {
      source.Add(p + "ffn.gate.tid2eid", "I64", {129280, 6});
    } else {
      source.Add(p + "ffn.gate.e_score_correction_bias", "F32", {256});
    }
    source.Affine(p + "ffn.shared_experts.gate_proj", {2048, kH});
    source.Affine(p + "ffn.shared_experts.up_proj", {2048, kH});
    source.Affine(p + "ffn.shared_experts.down_proj", {kH, 2048});
    source.Affine(p + "ffn.switch_mlp.gate_proj", {256, 2048, kH}, 2, i < 42 ? 32 : 64);
    source.Affine(p + "ffn.switch_mlp.up_proj", {256, 2048, kH}, 2);
    source.Affine(p + "ffn.switch_mlp.down_proj", {256, kH, 2048}, 2);
    source.Vector(p + "attn_norm.weight", kH);
    source.Vector(p + "ffn_norm.weight", kH);
    for (const char* mixer : {"attn_hc.", "ffn_hc."}) {
      source.Add(p + mixer + "fn", "F32", {24, 16384});
      source.Add(p + mixer + "base", "F32", {24});
      source.Add(p + mixer + "scale", "F32", {3});
    }
  }
  // A draft layer that the pinned conversion does not have, but that must not hurt.
  source.Vector("model.layers.43.attn_norm.weight", kH);
  source.Vector("mtp.norm.weight", kH);
  source.Vector("model.norm.weight", kH);
  return built;
}

std::unique_ptr<HeaderSource> InklingHeaders() {
  Json local;
  for (int i = 0; i < 42; ++i) {
    if (i % 6 != 5) local.push_back(i);
  }
  const Json config = {{"model_type", "inkling_mm_model"},
                       {"eos_token_id", 200006},
                       {"quantization", {{"group_size", 64}, {"bits", 4}, {"recipe", "uniform"}}},
                       {"text_config",
                        {{"hidden_size", 4096},
                         {"num_hidden_layers", 42},
                         {"vocab_size", 201024},
                         {"unpadded_vocab_size", 200058},
                         {"num_attention_heads", 32},
                         {"num_key_value_heads", 8},
                         {"head_dim", 128},
                         {"swa_num_attention_heads", 32},
                         {"swa_num_key_value_heads", 8},
                         {"swa_head_dim", 128},
                         {"sliding_window_size", 512},
                         {"local_layer_ids", local},
                         {"d_rel", 16},
                         {"rel_extent", 1024},
                         {"log_scaling_n_floor", 128000},
                         {"log_scaling_alpha", 0.1},
                         {"n_routed_experts", 256},
                         {"num_experts_per_tok", 6},
                         {"n_shared_experts", 2},
                         {"shared_expert_sink", true},
                         {"intermediate_size", 2048},
                         {"dense_intermediate_size", 16384},
                         {"dense_mlp_idx", 2},
                         {"route_scale", 8.0},
                         {"gate_activation", "sigmoid"},
                         {"use_gate_bias", true},
                         {"norm_after_topk", true},
                         {"use_global_scale", true},
                         {"use_sconv", true},
                         {"sconv_kernel_size", 4},
                         {"use_embed_norm", true},
                         {"logits_mup_width_multiplier", 16.0},
                         {"rms_norm_eps", 1e-6},
                         {"q_bias", false},
                         {"o_bias", false},
                         {"final_logit_softcapping", nullptr},
                         {"model_max_length", 1048576}}}};
  auto built = std::make_unique<HeaderSource>(config.dump());
  HeaderSource& source = *built;
  constexpr uint64_t kH = 4096;
  source.Affine("model.llm.embed", {201024, kH});
  source.Affine("model.llm.unembed", {201024, kH});
  source.Vector("model.llm.embed_norm.weight", kH);
  source.Vector("model.llm.norm.weight", kH);
  source.Vector("model.visual.norm.weight", kH);
  source.Vector("model.audio.norm.weight", kH);
  for (uint64_t i = 0; i < 42; ++i) {
    const std::string p = fmt::format("model.llm.layers.{}.", i);
    source.Affine(p + "attn.wq_du", {kH, kH});
    source.Affine(p + "attn.wk_dv", {1024, kH});
    source.Affine(p + "attn.wv_dv", {1024, kH});
    source.Affine(p + "attn.wo_ud", {kH, kH});
    source.Affine(p + "attn.wr_du", {512, kH});
    source.Add(p + "attn.rel_logits_proj.proj", "BF16", {16, i % 6 == 5 ? 1024u : 512u});
    source.Vector(p + "attn.q_norm.weight", 128);
    source.Vector(p + "attn.k_norm.weight", 128);
    source.Add(p + "attn.k_sconv.weight", "BF16", {1024, 4, 1});
    source.Add(p + "attn.v_sconv.weight", "BF16", {1024, 4, 1});
    source.Add(p + "attn_sconv.weight", "BF16", {kH, 4, 1});
    source.Add(p + "mlp_sconv.weight", "BF16", {kH, 4, 1});
    source.Vector(p + "attn_norm.weight", kH);
    source.Vector(p + "mlp_norm.weight", kH);
    if (i < 2) {
      source.Affine(p + "mlp.gate_proj", {16384, kH});
      source.Affine(p + "mlp.up_proj", {16384, kH});
      source.Affine(p + "mlp.down_proj", {kH, 16384});
      source.Add(p + "mlp.global_scale", "BF16", {1});
      continue;
    }
    source.Add(p + "mlp.gate.weight", "BF16", {258, kH});
    source.Add(p + "mlp.gate.bias", "F32", {256});
    source.Add(p + "mlp.gate.global_scale", "F32", {1});
    source.Affine(p + "mlp.shared_experts.gate_proj", {2, 2048, kH});
    source.Affine(p + "mlp.shared_experts.up_proj", {2, 2048, kH});
    source.Affine(p + "mlp.shared_experts.down_proj", {2, kH, 2048});
    source.Affine(p + "mlp.experts.gate_proj", {256, 2048, kH});
    source.Affine(p + "mlp.experts.up_proj", {256, 2048, kH});
    source.Affine(p + "mlp.experts.down_proj", {256, kH, 2048});
  }
  return built;
}

std::unique_ptr<HeaderSource> MapleHeaders() {
  Json layer_types;
  for (int i = 0; i < 24; ++i) {
    layer_types.push_back(i % 4 == 3 ? "full_attention" : "sliding_attention");
  }
  const Json config = {{"model_type", "maple"},
                       {"quantization",
                        {{"bits", 2},
                         {"group_size", 128},
                         {"mode", "affine"},
                         {"model.word_embeddings", {{"bits", 4}, {"group_size", 64}}},
                         {"lm_head", {{"bits", 4}, {"group_size", 64}}}}},
                       {"hidden_size", 2048},
                       {"num_hidden_layers", 24},
                       {"vocab_size", 151936},
                       {"num_attention_heads", 16},
                       {"num_key_value_heads", 4},
                       {"head_dim", 128},
                       {"sliding_window", 512},
                       {"rope_theta", 10000},
                       {"partial_rotary_factor", 0.5},
                       {"rope_scaling", nullptr},
                       {"max_position_embeddings", 128000},
                       {"tie_word_embeddings", false},
                       {"num_experts", 256},
                       {"num_experts_per_tok", 8},
                       {"moe_intermediate_size", 512},
                       {"moe_shared_expert_intermediate_size", 512},
                       {"num_shared_experts", 0},
                       {"first_k_dense_replace", 0},
                       {"norm_topk_prob", true},
                       {"router_dtype", "fp32"},
                       {"hidden_act", "silu"},
                       {"use_qk_norm", true},
                       {"use_bias", false},
                       {"use_rmsnorm", true},
                       {"layer_types", layer_types}};
  auto built = std::make_unique<HeaderSource>(config.dump());
  HeaderSource& source = *built;
  constexpr uint64_t kH = 2048;
  source.Affine("lm_head", {151936, kH});
  source.Affine("model.word_embeddings", {151936, kH});
  for (uint64_t i = 0; i < 24; ++i) {
    const std::string p = fmt::format("model.layers.{}.", i);
    source.Vector(p + "input_layernorm.weight", kH);
    source.Add(p + "mlp.gate.weight", "BF16", {256, kH});
    source.Ternary(p + "mlp.switch_mlp.down_proj", {256, kH, 512});
    source.Ternary(p + "mlp.switch_mlp.gate_proj", {256, 512, kH});
    source.Ternary(p + "mlp.switch_mlp.up_proj", {256, 512, kH});
    source.Vector(p + "post_attention_layernorm.weight", kH);
    source.Vector(p + "self_attn.k_norm.weight", 128);
    source.Vector(p + "self_attn.q_norm.weight", 128);
    source.Ternary(p + "self_attn.k_proj", {512, kH});
    source.Ternary(p + "self_attn.o_proj", {kH, kH});
    source.Ternary(p + "self_attn.q_proj", {kH, kH});
    source.Ternary(p + "self_attn.v_proj", {512, kH});
  }
  source.Vector("model.norm.weight", kH);
  return built;
}

}  // namespace mference::testing
