// The arch table, the quant slots of every family, FlashHead, and round trips.
#include <gmock/gmock.h>

#include <cmath>

#include "format/path_rules.h"
#include "format/toy_directory.h"

namespace mference {
namespace {

using testing::HasSubstr;

Json ArchJson(const ArchConfig& arch) {
  std::string text;
  JsonWriter json([&text](std::string_view piece) { text += piece; });
  WriteArch(arch, json);
  json.Finish();
  return Json::parse(text);
}

ParsedArch Reparse(const Json& arch) {
  return ParseArch(JsonReader(arch, "manifest.json", ErrorCode::kManifestCorrupt));
}

// The toy with the extension values of another family.
ArchConfig Deepseek() {
  ArchConfig arch = ToyArch();
  arch.family = Family::kDeepseekV4Flash;
  arch.attention_scale = 1.0 / std::sqrt(512.0);
  arch.ca_q_lora_rank = 1024;
  arch.ca_o_lora_rank = 1024;
  arch.ca_o_groups = 8;
  arch.ca_rope_head_dim = 64;
  arch.ca_index_n_heads = 64;
  arch.ca_index_head_dim = 128;
  arch.ca_index_top_k = 512;
  arch.ca_csa_compress_rate = 4;
  arch.ca_hca_compress_rate = 128;
  arch.ca_compress_rope_theta = 160000;
  arch.ca_rope_scaling_factor = 16;
  arch.ca_rope_scaling_original_max = 65536;
  arch.ca_rope_scaling_beta_fast = 32;
  arch.ca_rope_scaling_beta_slow = 1;
  arch.hc_mult = 4;
  arch.hc_sinkhorn_iters = 20;
  arch.hc_eps = 1e-6;
  arch.num_hash_routed_layers = 3;
  arch.router_scoring_func = "sqrtsoftplus";
  arch.routed_scaling_factor = 1.5;
  arch.swiglu_limit = 10;
  arch.layer_kinds = {LayerKind::kCompressedSparse};
  return arch;
}

ArchConfig Maple() {
  ArchConfig arch = ToyArch();
  arch.family = Family::kMaple;
  arch.attention_scale = 1.0 / std::sqrt(128.0);
  arch.rope_neox_subdim = true;
  arch.swiglu_limit = 7;
  arch.num_shared_experts = 0;
  arch.router_norm_after_top_k = true;
  return arch;
}

TEST(Arch, FieldsThatEachFamilyWrites) {
  const auto count = [](Family family) {
    ArchConfig arch = ToyArch();
    arch.family = family;
    return ArchJson(arch).size();
  };
  // Counted in the specification's table: 21 base fields, 13 for every later family, and the rest.
  EXPECT_EQ(count(Family::kGemma4), 21U);
  EXPECT_EQ(count(Family::kQwen36), 34U);
  EXPECT_EQ(count(Family::kQwen38), 37U);
  EXPECT_EQ(count(Family::kDeepseekV4Flash), 55U);
  EXPECT_EQ(count(Family::kInklingSmall), 52U);
  EXPECT_EQ(count(Family::kMaple), 40U);
}

TEST(Arch, RoundTrips) {
  for (const ArchConfig& arch : {ToyArch(), Deepseek(), Maple()}) {
    const ParsedArch parsed = Reparse(ArchJson(arch));
    EXPECT_TRUE(parsed.config == arch);
    EXPECT_NO_THROW(CheckArch(parsed, arch, "manifest.json"));
  }
  EXPECT_FALSE(ToyArch() == Maple());
}

TEST(Arch, EveryDeepseekExtensionIsNeeded) {
  const Json complete = ArchJson(Deepseek());
  int refused = 0;
  for (const auto& [key, value] : complete.items()) {
    if (!key.starts_with("ca") && !key.starts_with("hc")) continue;
    Json damaged = complete;
    damaged.erase(key);
    EXPECT_THAT(ExpectError(ErrorCode::kArchMismatch,
                            [&] { CheckArch(Reparse(damaged), Deepseek(), "manifest.json"); }),
                HasSubstr(key + " is absent"));
    ++refused;
  }
  EXPECT_EQ(refused, 17);
}

TEST(Arch, MapleNamesTwelveFields) {
  const Json complete = ArchJson(Maple());
  const char* required[] = {"family",
                            "attnOutputGate",
                            "attentionScale",
                            "embeddingScaledBySqrtHidden",
                            "routerScaled",
                            "ffnSandwichNorms",
                            "ropeNeoxSubdim",
                            "routerScoringFunc",
                            "routedScalingFactor",
                            "swigluLimit",
                            "numSharedExperts",
                            "routerNormAfterTopK"};
  for (const char* field : required) {
    Json damaged = complete;
    damaged.erase(field);
    EXPECT_THAT(ExpectError(ErrorCode::kArchMismatch,
                            [&] { CheckArch(Reparse(damaged), Maple(), "manifest.json"); }),
                HasSubstr(field));
  }
  // Others may be left out where the default is right.
  for (const char* field : {"sharedExpertGated", "linearNumKHeads", "numDenseLayers"}) {
    Json shorter = complete;
    shorter.erase(field);
    EXPECT_NO_THROW(CheckArch(Reparse(shorter), Maple(), "manifest.json"));
  }
}

TEST(Arch, DoublesAreExact) {
  const double scale = 1.0 / std::sqrt(128.0);
  for (const double other : {std::nextafter(scale, 0.0), std::nextafter(scale, 1.0)}) {
    ArchConfig arch = Maple();
    arch.attention_scale = other;
    const ParsedArch parsed = Reparse(ArchJson(arch));
    EXPECT_EQ(parsed.config.attention_scale, other);
    ExpectError(ErrorCode::kArchMismatch, [&] { CheckArch(parsed, Maple(), "manifest.json"); });
  }
}

TEST(Quant, SlotsOfEachFamily) {
  const auto accepts = [](Family family, const QuantConfig& quant) {
    try {
      CheckQuant(quant, family, "manifest.json");
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kQuantUnsupported);
      return false;
    }
  };
  const QuantConfig usual{AffineSlot(4), AffineSlot(4), AffineSlot(8), AffineSlot(4),
                          AffineSlot(4)};
  const QuantConfig dense{AffineSlot(4), AffineSlot(4), AbsentSlot(), AbsentSlot(), AbsentSlot()};
  const QuantConfig maple{AffineSlot(4), AffineSlot(4), UnquantizedSlot(), AbsentSlot(),
                          AffineSlot(2)};
  for (const Family family : {Family::kGemma4, Family::kQwen36, Family::kDeepseekV4Flash,
                              Family::kInklingSmall, Family::kQwen38, Family::kMaple}) {
    const bool is_dense = family == Family::kQwen38;
    const bool is_maple = family == Family::kMaple;
    EXPECT_EQ(accepts(family, usual), !is_dense && !is_maple) << FamilyName(family);
    EXPECT_EQ(accepts(family, dense), is_dense) << FamilyName(family);
    EXPECT_EQ(accepts(family, maple), is_maple) << FamilyName(family);
  }
  QuantConfig other = usual;
  other.routed_expert = AffineSlot(2);
  other.shared_expert = AffineSlot(8);
  EXPECT_TRUE(accepts(Family::kDeepseekV4Flash, other));
  other.router = AffineSlot(4);
  EXPECT_FALSE(accepts(Family::kDeepseekV4Flash, other));
  other = maple;
  other.routed_expert = AffineSlot(4);
  EXPECT_FALSE(accepts(Family::kMaple, other));
}

TEST(FlashHead, Rules) {
  ArchConfig arch = Maple();  // vocabulary of 128
  const FlashHeadConfig good{16, 8, 4, 64, 4, 64, 4, true, {0, 127}};
  EXPECT_NO_THROW(CheckFlashHead(good, arch, "manifest.json"));
  const std::function<void(FlashHeadConfig&)> edits[] = {
      [](FlashHeadConfig& h) { h.n_clusters = 0; },
      [](FlashHeadConfig& h) { h.cluster_size = 7; },
      [](FlashHeadConfig& h) { h.n_clusters = h.cluster_size = int64_t{1} << 33; },
      [](FlashHeadConfig& h) { h.n_clusters = h.cluster_size = -8; },
      [](FlashHeadConfig& h) { h.n_probes = 0; },
      [](FlashHeadConfig& h) { h.n_probes = 17; },
      [](FlashHeadConfig& h) { h.group_size = 32; },
      [](FlashHeadConfig& h) { h.head_group_size = 32; },
      [](FlashHeadConfig& h) { h.bits = 8; },
      [](FlashHeadConfig& h) { h.head_bits = 8; },
      [](FlashHeadConfig& h) { h.scaled_centroids = false; },
      [](FlashHeadConfig& h) {
        h.force_tokens = {1, 1};
      },
      [](FlashHeadConfig& h) { h.force_tokens = {128}; },
      [](FlashHeadConfig& h) { h.force_tokens = {-1}; },
  };
  for (const auto& edit : edits) {
    FlashHeadConfig bad = good;
    edit(bad);
    ExpectError(ErrorCode::kFlashHeadInvalid, [&] { CheckFlashHead(bad, arch, "manifest.json"); });
  }
  arch.family = Family::kQwen36;
  ExpectError(ErrorCode::kFlashHeadInvalid, [&] { CheckFlashHead(good, arch, "manifest.json"); });
}

TEST(Manifest, RoundTripsWithEverything) {
  Manifest manifest;
  manifest.model_id = "maple \"preview\"\n";
  manifest.arch = Maple();
  manifest.quant =
      QuantConfig{AffineSlot(4), AffineSlot(4), UnquantizedSlot(), AbsentSlot(), AffineSlot(2)};
  manifest.flash_head = FlashHeadConfig{16, 8, 4, 64, 4, 64, 4, true, {0, 127}};
  manifest.files["a/b"] = {UINT32_MAX + uint64_t{7}, std::string(64, 'a')};
  manifest.experts_per_layer = 2;
  manifest.num_layers = 1;
  manifest.expert_stride = 16384;
  const Manifest read = ParseManifest(ManifestToJson(manifest), "manifest.json");
  EXPECT_EQ(read.model_id, manifest.model_id);
  EXPECT_TRUE(read.arch == manifest.arch);
  EXPECT_EQ(read.quant, manifest.quant);
  EXPECT_EQ(read.flash_head, manifest.flash_head);
  EXPECT_EQ(read.files, manifest.files);
  EXPECT_EQ(read.source_snapshot_hash, std::nullopt);
  EXPECT_EQ(read.expert_stride, 16384U);
}

TEST(Manifest, LayersWithRoutedExperts) {
  Manifest manifest;
  manifest.num_layers = 4;
  manifest.experts_per_layer = 2;
  manifest.expert_stride = 16384;
  manifest.arch.num_dense_layers = 2;
  manifest.files[std::string(kWeightsFile)] = {};
  manifest.files[std::string(kLayoutFile)] = {};
  manifest.files["packed_experts/layer_02.bin"] = {};
  ExpectError(ErrorCode::kMissingFile,
              [&] { CheckManifestStructure(manifest, false, "manifest.json"); });
  manifest.files["packed_experts/layer_3.bin"] = {};  // unpadded, as in old fixtures
  EXPECT_NO_THROW(CheckManifestStructure(manifest, false, "manifest.json"));
}

TEST(PathRules, Sets) {
  EXPECT_EQ(PathSetProblem({"a/b", "a/c", "ab", "a-b"}), "");
  EXPECT_NE(PathSetProblem({"a/b", "A/B"}), "");
  EXPECT_NE(PathSetProblem({"a", "a/b"}), "");
  EXPECT_NE(PathSetProblem({"A", "a/b/c"}), "");
  EXPECT_NE(PathProblem("a\\b"), "");
  EXPECT_NE(PathProblem("a/"), "");
  EXPECT_NE(PathProblem(""), "");
  EXPECT_EQ(PathProblem("tokenizer/chat_template.jinja"), "");
}

}  // namespace
}  // namespace mference
