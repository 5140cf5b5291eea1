// The catalogue: names, pins, and which models load.
#include "model/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <set>

#include "base/error.h"
#include "model/quantization_rules.h"

namespace mference {
namespace {

using ::testing::HasSubstr;

std::string GoldenConfig(const std::string& folder) {
  std::ifstream file(std::string(MFERENCE_TEST_DATA) + "/goldens/" + folder +
                     "/snapshot/config.json");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

template <typename Action>
void ExpectError(ErrorCode code, const std::string& message, Action action) {
  try {
    action();
    FAIL() << "no error, expected " << ErrorCodeName(code);
  } catch (const Error& error) {
    EXPECT_EQ(ErrorCodeName(error.code()), std::string(ErrorCodeName(code))) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

TEST(Catalogue, EveryPinIsComplete) {
  std::set<std::string_view> names;
  for (const PinnedSource& source : PinnedSources()) {
    EXPECT_EQ(source.revision.size(), 40u) << source.name;
    EXPECT_EQ(source.index_sha256.size(), 64u) << source.name;
    EXPECT_FALSE(source.licence.empty()) << source.name;
    EXPECT_EQ(source.arch().family, source.family) << source.name;
    EXPECT_EQ(source.name, SchemaOf(source.family).key);
    EXPECT_GE(source.installed_bytes, source.plan.weights_file_bytes + source.plan.pool_bytes());
    EXPECT_TRUE(names.insert(source.name).second);
    for (const std::string_view alias : source.aliases) EXPECT_TRUE(names.insert(alias).second);
    EXPECT_EQ(FindPinnedByIndex(source.index_sha256), &source);
    EXPECT_EQ(FindPinnedByModelId(source.model_id), &source);
    EXPECT_EQ(&PinnedOf(source.family), &source);
  }
  EXPECT_EQ(PinnedSources().size(), 5u);
}

TEST(Catalogue, NamesAreFoundWhateverTheirCase) {
  EXPECT_EQ(FindPinned("Gemma4")->family, Family::kGemma4);
  EXPECT_EQ(FindPinned("deepseekv4flash")->name, "deepseek_v4");
  EXPECT_EQ(FindPinned("mlx-community/qwen3.6-35B-a3b-4bit")->name, "qwen36");
  EXPECT_EQ(FindPinned("gemma"), nullptr);
  EXPECT_EQ(FindPinned(""), nullptr);
}

TEST(Catalogue, UnknownFamiliesAreRefusedByName) {
  for (const char* config : {R"({"model_type": "llama"})", R"({"model_type": "qwen3_5"})",
                             R"({"model_type": "gemma4_text"})"}) {
    ExpectError(ErrorCode::kUnknownFamily, "supported are gemma4, qwen3_5_moe, deepseek_v4",
                [&] { DeriveArch(ParseConfig(config, "config.json"), "config.json"); });
  }
  ExpectError(ErrorCode::kUnknownFamily, "qwen38", [] { SchemaOf(Family::kQwen38); });
  ExpectError(ErrorCode::kSourceInvalid, "model_type",
              [] { DeriveArch(ParseConfig("{}", "config.json"), "config.json"); });
  ExpectError(ErrorCode::kMetadataTooLarge, "allowed",
              [] { ParseConfig(std::string(kMaxConfigBytes + 1, ' '), "config.json"); });
}

TEST(Catalogue, ScalesAreTheDoublesOfTheFormat) {
  // The decimal literal of 128^-0.5 is one unit in the last place away.
  EXPECT_EQ(PinnedOf(Family::kMaple).arch().attention_scale, 1.0 / std::sqrt(128.0));
  EXPECT_EQ(PinnedOf(Family::kDeepseekV4Flash).arch().attention_scale, 1.0 / std::sqrt(512.0));
  EXPECT_EQ(PinnedOf(Family::kInklingSmall).arch().attention_scale, 1.0 / 128.0);
  EXPECT_EQ(PinnedOf(Family::kQwen36).arch().attention_scale, 0.0625);
}

TEST(ResolveModel, AnUnpinnedModelIsWhatItsConfigSays) {
  Manifest manifest;
  manifest.model_id = "unknown/snapshot";
  const ExpectedModel expected = ResolveModel(manifest, GoldenConfig("gemma4"));
  EXPECT_EQ(expected.arch.hidden_size, 128);
  EXPECT_FALSE(expected.quant_required);
}

TEST(ResolveModel, APinnedModelIdNeedsThePinnedArchitecture) {
  Manifest manifest;
  manifest.model_id = "mlx-community/gemma-4-26b-a4b-it-4bit";
  ExpectError(ErrorCode::kArchMismatch, "hiddenSize",
              [&] { ResolveModel(manifest, GoldenConfig("gemma4")); });
}

TEST(DeriveArch, ReadsTheTinyCheckpoints) {
  const auto arch = [](const char* folder) {
    return DeriveArch(ParseConfig(GoldenConfig(folder), "config.json"), "config.json");
  };
  const ArchConfig gemma4 = arch("gemma4");
  EXPECT_EQ(gemma4.num_layers, 6);
  EXPECT_EQ(gemma4.layer_kinds[5], LayerKind::kFullAttention);
  EXPECT_EQ(gemma4.full_head_dim, 64);
  EXPECT_EQ(gemma4.sliding_window, 16);
  EXPECT_EQ(gemma4.top_k_experts, 4);

  const ArchConfig qwen36 = arch("qwen3_5_moe");
  EXPECT_EQ(qwen36.family, Family::kQwen36);
  EXPECT_EQ(qwen36.layer_kinds[0], LayerKind::kGatedDeltaNet);
  EXPECT_EQ(qwen36.linear_num_v_heads, 4);
  EXPECT_EQ(qwen36.attention_scale, 0.125);
  EXPECT_EQ(qwen36.rope_theta, 1e7);

  const ArchConfig deepseek = arch("deepseek_v4");
  EXPECT_EQ(deepseek.ca_csa_compress_rate, 4);
  EXPECT_EQ(deepseek.ca_hca_compress_rate, 16);
  EXPECT_EQ(deepseek.layer_kinds[2], LayerKind::kCompressedSparse);
  EXPECT_EQ(deepseek.layer_kinds[3], LayerKind::kHeavilyCompressed);
  EXPECT_EQ(deepseek.swiglu_limit, 1.5);
  EXPECT_EQ(deepseek.hc_eps, 1e-4);
  EXPECT_EQ(deepseek.partial_rotary_factor, 0.125);

  const ArchConfig inkling = arch("inkling");
  EXPECT_EQ(inkling.moe_intermediate_size, 64);
  EXPECT_EQ(inkling.dense_intermediate_size, 256);
  EXPECT_EQ(inkling.num_dense_layers, 2);
  EXPECT_EQ(inkling.attention_scale, 1.0 / 32);
  EXPECT_EQ(inkling.layer_kinds[5], LayerKind::kFullAttention);

  const ArchConfig maple = arch("maple");
  EXPECT_EQ(maple.swiglu_limit, 7.0);
  EXPECT_EQ(maple.num_shared_experts, 0);
  EXPECT_EQ(maple.layer_kinds[7], LayerKind::kFullAttention);
}

// One changed member of a config that was right.
struct ConfigDamage {
  const char* folder;
  const char* pointer;  // JSON pointer
  Json value;           // discarded: the member is removed
  const char* message;
};

TEST(DeriveArch, NamesTheFieldThatItCannotHonour) {
  const ConfigDamage damages[] = {
      {"gemma4", "/text_config/num_kv_shared_layers", 2, "num_kv_shared_layers"},
      {"gemma4", "/text_config/hidden_size_per_layer_input", 64, "hidden_size_per_layer_input"},
      {"gemma4", "/text_config/attention_k_eq_v", false, "attention_k_eq_v"},
      {"gemma4", "/text_config/hidden_size", 0, "hidden_size"},
      {"gemma4", "/text_config/hidden_size", uint64_t{1} << 40, "hidden_size"},
      {"gemma4", "/text_config/hidden_size", "128", "hidden_size"},
      {"gemma4", "/text_config/num_hidden_layers", 7, "layer_types"},
      {"gemma4", "/text_config/top_k_experts", 17, "experts"},
      {"gemma4", "/text_config/num_key_value_heads", 3, "heads"},
      {"gemma4", "/text_config/rope_parameters/full_attention/rope_type", "yarn", "rope_type"},
      {"qwen3_5_moe", "/text_config/attention_bias", true, "attention_bias"},
      {"qwen3_5_moe", "/text_config/tie_word_embeddings", true, "tie_word_embeddings"},
      {"qwen3_5_moe", "/text_config/linear_num_value_heads", 3, "linear_num_value_heads"},
      {"deepseek_v4", "/scoring_func", "sigmoid", "scoring_func"},
      {"deepseek_v4", "/n_shared_experts", 2, "n_shared_experts"},
      {"deepseek_v4", "/num_key_value_heads", 2, "num_key_value_heads"},
      {"deepseek_v4", "/num_hash_layers", 7, "num_hash_layers"},
      {"deepseek_v4", "/compress_ratios/3", 8, "compress_ratios[3]"},
      {"inkling", "/text_config/gate_activation", "softmax", "gate_activation"},
      {"inkling", "/text_config/swa_head_dim", 64, "swa_head_dim"},
      {"inkling", "/text_config/local_layer_ids/0", 6, "local_layer_ids[0]"},
      {"inkling", "/text_config/final_logit_softcapping", 30.0, "final_logit_softcapping"},
      {"maple", "/router_dtype", "bf16", "router_dtype"},
      {"maple", "/rope_scaling", Json{{"type", "yarn"}}, "rope_scaling"},
      {"maple", "/num_shared_experts", 1, "num_shared_experts"},
      {"maple", "/layer_types/0", "linear_attention", "layer_types[0]"},
  };
  for (const ConfigDamage& damage : damages) {
    SCOPED_TRACE(damage.pointer);
    Json config = ParseConfig(GoldenConfig(damage.folder), "config.json");
    config[Json::json_pointer(damage.pointer)] = damage.value;
    ExpectError(ErrorCode::kSourceInvalid, damage.message,
                [&] { DeriveArch(config, "config.json"); });
  }
}

TEST(DeriveArch, TakesTheOtherSpellings) {
  Json deepseek = ParseConfig(GoldenConfig("deepseek_v4"), "config.json");
  const ArchConfig expected = DeriveArch(deepseek, "config.json");
  deepseek.erase("compress_ratios");
  deepseek["layer_types"] = {"sliding_attention",           "sliding_attention",
                             "compressed_sparse_attention", "heavily_compressed_attention",
                             "compressed_sparse_attention", "heavily_compressed_attention"};
  deepseek.erase("num_hash_layers");
  deepseek["mlp_layer_types"] = {"hash_moe", "hash_moe", "hash_moe", "moe", "moe", "moe"};
  deepseek["rope_scaling"]["rope_type"] = deepseek["rope_scaling"]["type"];
  deepseek["rope_scaling"].erase("type");
  EXPECT_TRUE(DeriveArch(deepseek, "config.json") == expected);

  Json inkling = ParseConfig(GoldenConfig("inkling"), "config.json");
  const ArchConfig small = DeriveArch(inkling, "config.json");
  inkling["text_config"]["intermediate_size"] = 256;  // the dense width, under its re-saved name
  inkling["text_config"].erase("dense_intermediate_size");
  EXPECT_TRUE(DeriveArch(inkling, "config.json") == small);
}

TEST(QuantizationRules, DefaultsAndOverrides) {
  const Json config = {{"quantization",
                        {{"bits", 4},
                         {"group_size", 64},
                         {"mode", "affine"},
                         {"recipe", "uniform"},
                         {"model.a", {{"bits", 8}, {"group_size", 64}}},
                         {"model.b", false},
                         {"model.c", true}}}};
  const QuantizationRules rules =
      QuantizationRules::Read(JsonReader(config, "c", ErrorCode::kSourceInvalid));
  EXPECT_EQ(rules.For("model.a")->bits, 8);
  EXPECT_FALSE(rules.For("model.b"));
  EXPECT_EQ(rules.For("model.c")->bits, 4);
  EXPECT_EQ(rules.For("anything")->group_size, 64);
  EXPECT_EQ(rules.override_count(), 2u);
  for (const Json& bad :
       {Json{{"bits", 3}, {"group_size", 64}}, Json{{"bits", 4}, {"group_size", 48}},
        Json{{"bits", 4}}, Json{{"bits", 4}, {"group_size", 64}, {"mode", "mxfp4"}}, Json(4)}) {
    const Json broken = {{"quantization_config", bad}};
    EXPECT_THROW(QuantizationRules::Read(JsonReader(broken, "c", ErrorCode::kSourceInvalid)), Error)
        << bad;
  }
}

TEST(FateOf, FollowsTheFamilysRules) {
  const ArchConfig gemma4 = PinnedOf(Family::kGemma4).arch();
  const auto fate = [&](std::string_view name) { return FateOf(Gemma4Schema(), gemma4, name); };
  EXPECT_EQ(fate("vision_tower.x"), TensorFate::kExcluded);
  EXPECT_EQ(fate("embed_vision.x"), TensorFate::kExcluded);
  EXPECT_EQ(fate("language_model.model.layers.3.experts.switch_glu.gate_proj.weight"),
            TensorFate::kRouted);
  EXPECT_EQ(fate("language_model.model.layers.3.mlp.gate_proj.weight"), TensorFate::kResident);
  EXPECT_EQ(fate("language_model.model.layers.30.layer_scalar"), TensorFate::kUnknown);
  EXPECT_EQ(fate("language_model.model.layers.x.layer_scalar"), TensorFate::kUnknown);
  EXPECT_EQ(fate("lm_head.weight"), TensorFate::kUnknown);

  const ArchConfig deepseek = PinnedOf(Family::kDeepseekV4Flash).arch();
  EXPECT_EQ(FateOf(DeepseekV4Schema(), deepseek, "model.layers.43.attn_norm.weight"),
            TensorFate::kExcluded);
  EXPECT_EQ(FateOf(DeepseekV4Schema(), deepseek, "mtp.norm.weight"), TensorFate::kExcluded);
  EXPECT_EQ(FateOf(DeepseekV4Schema(), deepseek, "lm_head.scales"), TensorFate::kResident);

  const ArchConfig inkling = PinnedOf(Family::kInklingSmall).arch();
  EXPECT_EQ(
      FateOf(InklingSchema(), inkling, "model.llm.layers.2.mlp.shared_experts.up_proj.weight"),
      TensorFate::kResident);
  EXPECT_EQ(FateOf(InklingSchema(), inkling, "model.llm.layers.2.mlp.experts.up_proj.weight"),
            TensorFate::kRouted);
  EXPECT_EQ(FateOf(MapleSchema(), PinnedOf(Family::kMaple).arch(), "lm_head_flash.token_map"),
            TensorFate::kExcluded);
}

}  // namespace
}  // namespace mference
