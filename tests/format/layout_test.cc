// Rules of layout.json, each broken in an otherwise intact directory, and its size in memory.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include "format/toy_directory.h"

namespace mference {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

struct LayoutCase {
  const char* name;
  std::function<void(Json&)> edit;
};

Json& Expert(Json& layout, size_t expert) { return layout["layers"][0]["experts"][expert]; }

// `edit` on the tensors of both experts, which must stay alike.
std::function<void(Json&)> InTensors(const std::function<void(Json&)>& edit) {
  return [edit](Json& layout) {
    edit(Expert(layout, 0)["tensors"]);
    edit(Expert(layout, 1)["tensors"]);
  };
}

class LayoutRejection : public testing::TestWithParam<LayoutCase> {};

TEST_P(LayoutRejection, IsRefused) {
  ToyDirectory toy;
  toy.EditLayout(GetParam().edit);
  ExpectError(ErrorCode::kLayoutCorrupt, [&] { toy.Open(); });
}

INSTANTIATE_TEST_SUITE_P(
    Table, LayoutRejection,
    testing::Values(
        LayoutCase{"NoStride", [](Json& l) { l.erase("expertStride"); }},
        LayoutCase{"Stride", [](Json& l) { l["expertStride"] = 32768; }},
        LayoutCase{"NumLayers", [](Json& l) { l["numLayers"] = 2; }},
        LayoutCase{"ExpertsPerLayer", [](Json& l) { l["expertsPerLayer"] = 3; }},
        LayoutCase{"LayersNotArray", [](Json& l) { l["layers"] = 1; }},
        LayoutCase{"LayerId", [](Json& l) { l["layers"][0]["layer"] = 1; }},
        LayoutCase{"NegativeLayer", [](Json& l) { l["layers"][0]["layer"] = -1; }},
        LayoutCase{"FileWithSlash", [](Json& l) { l["layers"][0]["file"] = "a/layer_00.bin"; }},
        LayoutCase{"FileDotDot", [](Json& l) { l["layers"][0]["file"] = ".."; }},
        LayoutCase{"FileIsLayout", [](Json& l) { l["layers"][0]["file"] = "LAYOUT.json"; }},
        LayoutCase{"NoFile", [](Json& l) { l["layers"][0].erase("file"); }},
        LayoutCase{"EmptyRoutedLayer", [](Json& l) { l["layers"][0]["experts"] = Json::array(); }},
        LayoutCase{"MissingExpert", [](Json& l) { l["layers"][0]["experts"].erase(1); }},
        LayoutCase{"RepeatedId", [](Json& l) { Expert(l, 1)["expert"] = 0; }},
        LayoutCase{"IdOutOfRange", [](Json& l) { Expert(l, 1)["expert"] = 2; }},
        LayoutCase{"SomeIds", [](Json& l) { Expert(l, 1).erase("expert"); }},
        LayoutCase{"RankOutOfRange", [](Json& l) { Expert(l, 0)["physicalRank"] = 2; }},
        LayoutCase{"RepeatedOffset", [](Json& l) { Expert(l, 1)["offset"] = 0; }},
        LayoutCase{"MisalignedOffset", [](Json& l) { Expert(l, 1)["offset"] = 16385; }},
        LayoutCase{"OffsetOutsideTheFile", [](Json& l) { Expert(l, 1)["offset"] = 32768; }},
        LayoutCase{"OffsetOverflows",
                   [](Json& l) { Expert(l, 1)["offset"] = 18446744073709535232ULL; }},
        LayoutCase{"OffsetBeyond64Bits", [](Json& l) { Expert(l, 1)["offset"] = 1e30; }},
        LayoutCase{"Size", [](Json& l) { Expert(l, 1)["size"] = 6912; }},
        LayoutCase{"NoTensors", [](Json& l) { Expert(l, 0).erase("tensors"); }},
        LayoutCase{"UnlikeExperts",
                   [](Json& l) { Expert(l, 1)["tensors"]["gate"]["offset"] = 7000; }},
        LayoutCase{"MissingTensor", InTensors([](Json& tensors) { tensors.erase("up_biases"); })},
        LayoutCase{"Dtype", InTensors([](Json& tensors) { tensors["up"]["dtype"] = "F32"; })},
        LayoutCase{"ScaleDtype",
                   InTensors([](Json& tensors) { tensors["up_scales"]["dtype"] = "U32"; })},
        LayoutCase{"Bits", InTensors([](Json& tensors) { tensors["up"]["bits"] = 2; })},
        LayoutCase{"BitsNotInt", InTensors([](Json& tensors) { tensors["up"]["bits"] = "4"; })},
        LayoutCase{"ZeroSize", InTensors([](Json& tensors) { tensors["up"]["size"] = 0; })},
        LayoutCase{"WeightSize", InTensors([](Json& tensors) { tensors["up"]["size"] = 2047; })},
        LayoutCase{"ScaleSize",
                   InTensors([](Json& tensors) { tensors["up_scales"]["size"] = 126; })},
        LayoutCase{"Shape", InTensors([](Json& tensors) {
                     tensors["up"]["shape"] = {32, 128};
                   })},
        LayoutCase{"Rank", InTensors([](Json& tensors) { tensors["up"]["shape"] = {4096}; })},
        LayoutCase{"GroupsDoNotDivide", InTensors([](Json& tensors) {
                     tensors["up_scales"]["shape"] = {64, 3};
                   })},
        LayoutCase{"Overlap", InTensors([](Json& tensors) { tensors["up"]["offset"] = 2303; })},
        LayoutCase{"OutsideTheBlob", InTensors([](Json& tensors) {
                     tensors["down_biases"]["offset"] = 16384 - 127;
                   })}),
    [](const auto& test) { return test.param.name; });

TEST(Layout, BrokenText) {
  for (const char* text : {"", "[]", "{", "{\"layers\": [", "{\"layers\": [{}]}", "{} {}",
                           "{\"expertStride\": 01}", "{\"expertStride\": 1,}", "{\"a\": tru}"}) {
    ToyDirectory toy;
    toy.ReplaceFile("packed_experts/layout.json", text);
    ExpectError(ErrorCode::kLayoutCorrupt, [&] { toy.Open(); });
  }
  const std::string deep = "{\"x\": " + std::string(100000, '[');
  EXPECT_THAT(ExpectError(ErrorCode::kLayoutCorrupt, [&] { ParseLayout(deep, "deep"); }),
              testing::HasSubstr("nested deeper"));
}

TEST(Layout, MessagesSayWhere) {
  ToyDirectory toy;
  toy.EditLayout([](Json& l) { Expert(l, 1)["tensors"]["gate"]["offset"] = "x"; });
  EXPECT_THAT(ExpectError(ErrorCode::kLayoutCorrupt, [&] { toy.Open(); }),
              testing::HasSubstr("$.layers[0].experts[1].tensors.gate.offset"));
}

TEST(Layout, PositionalAndReorderedExperts) {
  ToyDirectory toy;
  toy.EditLayout([](Json& l) {
    Expert(l, 0).erase("expert");
    Expert(l, 1).erase("expert");
    Expert(l, 0)["offset"] = 16384;
    Expert(l, 0)["physicalRank"] = 1;
    Expert(l, 1)["offset"] = 0;
    Expert(l, 1)["physicalRank"] = 0;
    l["layers"][0]["comment"] = {{"unknown", {1, 2.5e3, true, nullptr, "\u00e9"}}};
  });
  EXPECT_EQ(toy.Open().layout().layers.at(0).expert_offsets, (std::vector<uint64_t>{16384, 0}));
  toy.EditLayout([](Json& l) {
    Expert(l, 0)["expert"] = 1;
    Expert(l, 1)["expert"] = 0;
  });
  EXPECT_EQ(toy.Open().layout().layers.at(0).expert_offsets, (std::vector<uint64_t>{0, 16384}));
}

TEST(Layout, GroupSizeComesFromTheSizes) {
  Layout layout = ToyLayout();
  layout.layers[0].blob.gate.group_size = 32;
  layout.layers[0].blob.up.bits = 2;
  PackExpertBlob(layout.layers[0].blob);
  std::string text;
  WriteLayout(layout, [&text](std::string_view piece) { text += piece; });
  const Layout read = ParseLayout(text, "layout.json");
  EXPECT_EQ(read.layers.at(0).blob, layout.layers.at(0).blob);
  EXPECT_EQ(read.layers.at(0).blob.gate.group_size, 32U);
  EXPECT_EQ(read.layers.at(0).blob.up.bits, 2);
}

// A dense model has a layout too: an entry per layer, no experts.
TEST(Layout, DenseModel) {
  Layout layout;
  layout.layers.resize(64);
  Manifest manifest;
  manifest.num_layers = 64;
  manifest.arch.num_dense_layers = 64;
  for (int64_t i = 0; i < 64; ++i) layout.layers[static_cast<size_t>(i)].file = LayerFileName(i);
  std::string text;
  WriteLayout(layout, [&text](std::string_view piece) { text += piece; });
  const Layout read = ParseLayout(text, "layout.json");
  EXPECT_EQ(read.layers.size(), 64U);
  EXPECT_EQ(read.LayerPath(7), "packed_experts/layer_07.bin");
  EXPECT_NO_THROW(CheckLayout(read, manifest, "layout.json"));
  manifest.files["packed_experts/layer_07.bin"] = {};
  ExpectError(ErrorCode::kLayoutCorrupt, [&] { CheckLayout(read, manifest, "layout.json"); });
}

// Qwen 3.6's dimensions: tens of megabytes of text, written and read within a few of memory.
TEST(Layout, LargeTextInBoundedMemory) {
  Layout layout;
  layout.experts_per_layer = 256;
  LayerLayout layer;
  layer.blob.gate = {512, 2048, 4, 64, {}, {}, {}};
  layer.blob.up = {512, 2048, 4, 64, {}, {}, {}};
  layer.blob.down = {2048, 512, 4, 64, {}, {}, {}};
  layout.expert_stride = PackExpertBlob(layer.blob);
  for (uint64_t i = 0; i < 256; ++i) layer.expert_offsets.push_back(i * layout.expert_stride);
  for (int64_t i = 0; i < 40; ++i) {
    layer.file = LayerFileName(i);
    layout.layers.push_back(layer);
  }
  const auto peak_kib = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const ScratchDirectory scratch;
  const auto path = scratch.path() / "layout.json";
  const auto before = peak_kib();
  {
    std::FILE* out = std::fopen(path.c_str(), "wb");
    ASSERT_NE(out, nullptr);
    WriteLayout(layout, [&](std::string_view piece) {
      ASSERT_EQ(std::fwrite(piece.data(), 1, piece.size(), out), piece.size());
    });
    std::fclose(out);
  }
  const Layout read = ReadLayout(OpenForReading(path), "layout.json");
  EXPECT_GT(std::filesystem::file_size(path), 5000000U);
  // A sanitizer keeps freed memory aside.
  if (!kSanitized) {
    EXPECT_LT(peak_kib() - before, 4096);
  }
  ASSERT_EQ(read.layers.size(), 40U);
  EXPECT_EQ(read.layers[39].expert_offsets, layer.expert_offsets);
  EXPECT_EQ(read.layers[39].blob, layer.blob);
}

}  // namespace
}  // namespace mference
