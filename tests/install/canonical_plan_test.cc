// Plans the five production checkpoints from source headers written down here, from the format
// specification's shapes and independently of the code under test, and compares the sizes with the
// published ones to the byte. Nothing is downloaded.
#include <gtest/gtest.h>

#include <array>

#include "install/production_headers.h"
#include "install/repack_plan.h"
#include "install/snapshot.h"

namespace mference {
namespace {

// The published figures (gturbo-format 3.5 and 4.2).
struct Published {
  std::string name;
  std::unique_ptr<testing::HeaderSource> (*source)();
  uint64_t entries;
  uint64_t index_bytes;
  uint64_t weights_bytes;
  uint64_t blob_bytes;  // of the first routed layer
  uint64_t stride;
  uint64_t layer_file_bytes;
  uint64_t layer_files;
  uint64_t pool_bytes;
  std::array<uint64_t, 9> slices;       // of the first routed layer's blobs
  std::array<uint64_t, 9> last_slices;  // of the last layer's
};

void ExpectSlices(const ExpertBlob& blob, const std::array<uint64_t, 9>& offsets) {
  const ExpertMatrix* matrices[] = {&blob.gate, &blob.up, &blob.down};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(matrices[i]->weights.offset, offsets[3 * i]);
    EXPECT_EQ(matrices[i]->scales.offset, offsets[3 * i + 1]);
    EXPECT_EQ(matrices[i]->biases.offset, offsets[3 * i + 2]);
  }
}

class CanonicalPlanOf : public ::testing::TestWithParam<Published> {};

TEST_P(CanonicalPlanOf, ComesToThePublishedSizes) {
  const Published& published = GetParam();
  const auto source = published.source();
  const Snapshot snapshot = LoadSnapshot(*source, nullptr);
  const PinnedSource* pinned = FindPinned(published.name);
  ASSERT_NE(pinned, nullptr);
  EXPECT_TRUE(snapshot.arch == pinned->arch()) << "the config derives to another architecture";

  const RepackPlan plan = PlanRepack(snapshot, kMaxChunkBytes);
  EXPECT_EQ(plan.resident_index.tensors.size(), published.entries);
  EXPECT_EQ(plan.resident_index.index_bytes, published.index_bytes);
  EXPECT_EQ(plan.ranges.outputs.front().path, "model_weights.bin");
  EXPECT_EQ(plan.ranges.outputs.front().bytes, published.weights_bytes);
  EXPECT_EQ(plan.layout.expert_stride, published.stride);
  EXPECT_EQ(plan.ranges.outputs.size() - 1, published.layer_files);
  uint64_t pool = 0;
  for (size_t i = 1; i < plan.ranges.outputs.size(); ++i) {
    EXPECT_EQ(plan.ranges.outputs[i].bytes, published.layer_file_bytes);
    pool += plan.ranges.outputs[i].bytes;
  }
  EXPECT_EQ(pool, published.pool_bytes);
  const auto& first = plan.layout.layers[static_cast<size_t>(snapshot.arch.num_dense_layers)];
  EXPECT_EQ(first.blob.down.biases.offset + first.blob.down.biases.bytes, published.blob_bytes);
  ExpectSlices(first.blob, published.slices);
  ExpectSlices(plan.layout.layers.back().blob, published.last_slices);

  // The catalogue promises the same before a download.
  EXPECT_EQ(pinned->plan.resident_entries, published.entries);
  EXPECT_EQ(pinned->plan.weights_file_bytes, published.weights_bytes);
  EXPECT_EQ(pinned->plan.expert_stride, published.stride);
  EXPECT_EQ(pinned->plan.layer_file_bytes, published.layer_file_bytes);
  EXPECT_EQ(pinned->plan.pool_bytes(), published.pool_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Published, CanonicalPlanOf,
    ::testing::Values(
        Published{"gemma4",
                  [] { return testing::Gemma4Headers(); },
                  597,
                  81920,
                  1'353'771'068,
                  3'345'408,
                  3'358'720,
                  429'916'160,
                  30,
                  12'897'484'800,
                  {0, 991232, 1053184, 1115136, 2106368, 2168320, 2230272, 3221504, 3283456},
                  {0, 991232, 1053184, 1115136, 2106368, 2168320, 2230272, 3221504, 3283456}},
        Published{"qwen36",
                  testing::Qwen36Headers,
                  613,
                  81920,
                  1'389'476'096,
                  1'769'472,
                  1'769'472,
                  452'984'832,
                  40,
                  18'119'393'280,
                  {0, 524288, 557056, 589824, 1114112, 1146880, 1179648, 1703936, 1736704},
                  {0, 524288, 557056, 589824, 1114112, 1146880, 1179648, 1703936, 1736704}},
        Published{"deepseek_v4",
                  testing::DeepseekV4Headers,
                  1199,
                  131072,
                  4'312'867'932,
                  8'388'608,
                  8'388'608,
                  2'147'483'648,
                  43,
                  92'341'796'864,
                  {0, 2097152, 2621440, 3145728, 5242880, 5505024, 5767168, 7864320, 8126464},
                  {0, 2097152, 2359296, 2621440, 4718592, 4980736, 5242880, 7340032, 7602176}},
        Published{"inkling",
                  testing::InklingHeaders,
                  840,
                  98304,
                  3'415'372'964,
                  14'155'776,
                  14'155'776,
                  3'623'878'656,
                  40,
                  144'955'146'240,
                  {0, 4194304, 4456448, 4718592, 8912896, 9175040, 9437184, 13631488, 13893632},
                  {0, 4194304, 4456448, 4718592, 8912896, 9175040, 9437184, 13631488, 13893632}},
        Published{"maple",
                  testing::MapleHeaders,
                  219,
                  32768,
                  517'029'888,
                  983'040,
                  983'040,
                  251'658'240,
                  24,
                  6'039'797'760,
                  {0, 262144, 294912, 327680, 589824, 622592, 655360, 917504, 950272},
                  {0, 262144, 294912, 327680, 589824, 622592, 655360, 917504, 950272}}),
    [](const auto& instance) { return instance.param.name; });

// The order does not come from the source: the same tensors listed the other way around.
TEST(CanonicalPlan, OrderIsTheFormats) {
  const auto source = testing::MapleHeaders();
  const RepackPlan plan = PlanRepack(LoadSnapshot(*source, nullptr), kMaxChunkBytes);
  const std::vector<ResidentTensor>& tensors = plan.resident_index.tensors;
  const std::vector<std::string> layer = {
      "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
      "self_attn.o_proj.weight", "self_attn.q_norm.weight", "self_attn.k_norm.weight",
      "mlp.gate.weight",         "input_layernorm.weight",  "post_attention_layernorm.weight"};
  EXPECT_EQ(tensors.front().name, "model.word_embeddings.weight");
  for (size_t i = 0; i < layer.size(); ++i) {
    EXPECT_EQ(tensors[1 + 23 * layer.size() + i].name, "model.layers.23." + layer[i]);
  }
  EXPECT_EQ(tensors[tensors.size() - 2].name, "model.norm.weight");
  EXPECT_EQ(tensors.back().name, "lm_head.weight");
}

TEST(CanonicalPlan, UnlistedTensorsComeLastInTheirLayer) {
  const auto source = testing::MapleHeaders();
  source->Vector("model.layers.3.zeta.weight", 8);
  source->Vector("model.layers.3.alpha", 8);
  source->Vector("model.extra.weight", 8);
  const RepackPlan plan = PlanRepack(LoadSnapshot(*source, nullptr), kMaxChunkBytes);
  std::vector<std::string> names;
  for (const ResidentTensor& tensor : plan.resident_index.tensors) names.push_back(tensor.name);
  const size_t layer3_end = 1 + 4 * 9;
  EXPECT_EQ(names[layer3_end], "model.layers.3.alpha");
  EXPECT_EQ(names[layer3_end + 1], "model.layers.3.zeta.weight");
  EXPECT_EQ(names[names.size() - 3], "model.extra.weight");  // before norm and head
}

}  // namespace
}  // namespace mference
