// DeepSeek-V4-Flash's config.json (family specification, section 1.1).
#include "model/deepseek_v4/config.h"

#include <algorithm>
#include <cmath>

#include "model/config_fields.h"

namespace mference::deepseek_v4 {
namespace {

struct Compression {
  std::vector<LayerKind> kinds;  // [layers]
  int64_t csa_rate = 0;
  int64_t hca_rate = 0;
};

// CSA layers pool few positions, HCA layers many. `compress_rates` says which is which; the
// published config only has the ratios, where the smaller of the two is CSA's.
Compression ReadCompression(const JsonReader& config, int64_t layers) {
  Compression result;
  if (config.Has("compress_rates")) {
    const JsonReader rates = config.At("compress_rates");
    result.csa_rate = ReadDimension(rates, "compressed_sparse_attention");
    result.hca_rate = ReadDimension(rates, "heavily_compressed_attention");
  }
  if (config.Has("layer_types")) {
    result.kinds =
        ReadLayerTypes(config, layers,
                       {{"sliding_attention", LayerKind::kSlidingWindow},
                        {"compressed_sparse_attention", LayerKind::kCompressedSparse},
                        {"heavily_compressed_attention", LayerKind::kHeavilyCompressed}});
    if (result.csa_rate == 0) {
      config.At("layer_types").FailHere("layer_types without compress_rates leave the rates open");
    }
    return result;
  }

  // Entries past the last layer belong to the draft head.
  const JsonReader ratios = config.At("compress_ratios");
  const std::vector<int64_t> values = ratios.IntArray();
  if (static_cast<int64_t>(values.size()) < layers) {
    ratios.FailHere(fmt::format("expected at least {} entries, found {}", layers, values.size()));
  }
  std::vector<int64_t> rates;
  for (size_t i = 0; i < static_cast<size_t>(layers); ++i) {
    if (values[i] != 0) rates.push_back(values[i]);
  }
  std::sort(rates.begin(), rates.end());
  rates.erase(std::unique(rates.begin(), rates.end()), rates.end());
  if (result.csa_rate == 0) {
    if (rates.size() != 2 || rates.front() < 2) {
      ratios.FailHere(fmt::format("expected 0 and two rates, found {} rates", rates.size()));
    }
    result.csa_rate = rates.front();
    result.hca_rate = rates.back();
  }
  for (size_t i = 0; i < static_cast<size_t>(layers); ++i) {
    if (values[i] == 0) {
      result.kinds.push_back(LayerKind::kSlidingWindow);
    } else if (values[i] == result.csa_rate) {
      result.kinds.push_back(LayerKind::kCompressedSparse);
    } else if (values[i] == result.hca_rate) {
      result.kinds.push_back(LayerKind::kHeavilyCompressed);
    } else {
      ratios.At(i).FailHere(fmt::format("expected 0, {} or {}, found {}", result.csa_rate,
                                        result.hca_rate, values[i]));
    }
  }
  return result;
}

// The leading layers whose experts come from a table by token id.
int64_t ReadHashLayers(const JsonReader& config, int64_t layers) {
  if (config.Has("num_hash_layers")) {
    const int64_t count = ReadCount(config, "num_hash_layers");
    if (count > layers) config.At("num_hash_layers").FailHere("more than there are layers");
    return count;
  }
  const JsonReader types = config.At("mlp_layer_types");
  int64_t count = 0;
  for (size_t i = 0; i < types.ArraySize(); ++i) {
    const std::string type = types.At(i).String();
    if (type == "hash_moe" && count == static_cast<int64_t>(i)) {
      ++count;
    } else if (type != "moe") {
      types.At(i).FailHere("expected a run of hash_moe, then moe");
    }
  }
  return std::min(count, layers);
}

}  // namespace

ArchConfig DeriveArch(const JsonReader& config) {
  RequirePresent(config, "hidden_act", "silu");
  RequirePresent(config, "scoring_func", "sqrtsoftplus");
  RequireValue(config, "topk_method", "noaux_tc");
  RequirePresent(config, "norm_topk_prob", true);
  RequirePresent(config, "n_shared_experts", 1);
  RequirePresent(config, "num_key_value_heads", 1);
  RequireValue(config, "attention_bias", false);
  RequireValue(config, "tie_word_embeddings", false);

  const JsonReader scaling = config.At("rope_scaling");
  RequirePresent(scaling, scaling.Has("type") ? "type" : "rope_type", "yarn");
  RequireValue(scaling, "mscale", 1.0);
  RequireValue(scaling, "mscale_all_dim", 1.0);

  const int64_t layers = ReadDimension(config, "num_hidden_layers");
  const int64_t head_dim = ReadDimension(config, "head_dim");
  const int64_t rope_dim = ReadDimension(config, "qk_rope_head_dim");
  const int64_t expert_width = ReadDimension(config, "moe_intermediate_size");
  const double rope_theta = config.At("rope_theta").Double();
  Compression compression = ReadCompression(config, layers);
  ArchConfig arch{
      .hidden_size = ReadDimension(config, "hidden_size"),
      .ffn_intermediate = expert_width,  // the shared expert is as wide as a routed one
      .moe_intermediate_size = expert_width,
      .num_heads = ReadDimension(config, "num_attention_heads"),
      .num_kv_heads = 1,
      .num_full_kv_heads = 1,
      .head_dim = head_dim,
      .full_head_dim = head_dim,
      .vocab_size = ReadDimension(config, "vocab_size"),
      .sliding_window = ReadDimension(config, "sliding_window"),
      .rope_theta = rope_theta,
      .full_rope_theta = rope_theta,
      .partial_rotary_factor = static_cast<double>(rope_dim) / static_cast<double>(head_dim),
      .num_layers = layers,
      .num_experts = ReadDimension(config, "n_routed_experts"),
      .top_k_experts = ReadDimension(config, "num_experts_per_tok"),
      .attention_k_eq_v = true,
      .hidden_activation = "silu",
      .layer_kinds = std::move(compression.kinds),
      .family = Family::kDeepseekV4Flash,
      .attention_scale = 1.0 / std::sqrt(static_cast<double>(head_dim)),
      .embedding_scaled_by_sqrt_hidden = false,
      .router_scaled = false,
      .ffn_sandwich_norms = false,
      .ca_q_lora_rank = ReadDimension(config, "q_lora_rank"),
      .ca_o_lora_rank = ReadDimension(config, "o_lora_rank"),
      .ca_o_groups = ReadDimension(config, "o_groups"),
      .ca_rope_head_dim = rope_dim,
      .ca_index_n_heads = ReadDimension(config, "index_n_heads"),
      .ca_index_head_dim = ReadDimension(config, "index_head_dim"),
      .ca_index_top_k = ReadDimension(config, "index_topk"),
      .ca_csa_compress_rate = compression.csa_rate,
      .ca_hca_compress_rate = compression.hca_rate,
      .ca_compress_rope_theta = config.At("compress_rope_theta").Double(),
      .ca_rope_scaling_factor = scaling.At("factor").Double(),
      .ca_rope_scaling_original_max = ReadDimension(scaling, "original_max_position_embeddings"),
      .ca_rope_scaling_beta_fast = scaling.At("beta_fast").Double(),
      .ca_rope_scaling_beta_slow = scaling.At("beta_slow").Double(),
      .hc_mult = ReadDimension(config, "hc_mult"),
      .hc_sinkhorn_iters = ReadDimension(config, "hc_sinkhorn_iters"),
      .hc_eps = config.At("hc_eps").Double(),
      .num_hash_routed_layers = ReadHashLayers(config, layers),
      .router_scoring_func = "sqrtsoftplus",
      .routed_scaling_factor = config.At("routed_scaling_factor").Double(),
      .swiglu_limit = config.At("swiglu_limit").Double(),
  };
  RequireSoundArch(arch, config);
  if (rope_dim > head_dim) config.At("qk_rope_head_dim").FailHere("wider than head_dim");
  if (arch.num_heads % arch.ca_o_groups != 0) {
    config.At("o_groups").FailHere("expected a divisor of num_attention_heads");
  }
  return arch;
}

}  // namespace mference::deepseek_v4
