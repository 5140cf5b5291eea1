// Byte-exactness against the figures of the format specification.
#include <gmock/gmock.h>

#include "base/sha256.h"
#include "format/toy_directory.h"

namespace mference {
namespace {

std::string Bytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(WorkedExample, IndexRegion) {
  const ResidentIndex index = ToyIndex();
  EXPECT_EQ(index.index_bytes, 16384U);
  EXPECT_EQ(index.resident_bytes, 4866U);
  EXPECT_EQ(index.tensors[0].weight, (FileRange{16384, 4096}));
  EXPECT_EQ(index.tensors[0].scales, (FileRange{20480, 256}));
  EXPECT_EQ(index.tensors[0].biases, (FileRange{20736, 256}));
  EXPECT_EQ(index.tensors[3].weight, (FileRange{21122, 128}));
  const std::string region = Bytes(SerializeResidentIndex(index));
  EXPECT_EQ(region.substr(0, 24), std::string("\x00\x40\x00\x00\x00\x00\x00\x00\x02\x13\x00\x00"
                                              "\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00",
                                              24));
  EXPECT_EQ(region.substr(24 + 2 * 72, 72),
            std::string("\x94\x01\x00\x00\x2a\x00\x01\x00\x80\x52\x00\x00\x00\x00\x00\x00\x02\x00"
                        "\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00",
                        28) +
                std::string(44, '\0'));
  EXPECT_EQ(Sha256Hex(region), "f5e7d3fa3a598cb2d8eed9bbae0eb98a72236fd88a7cc331524c72729c8affa4");
}

TEST(WorkedExample, Files) {
  const std::string weights = ToyWeights();
  EXPECT_EQ(weights.size(), 21250U);
  EXPECT_EQ(Sha256Hex(weights), "3435a8f1135f91a054b66d600c8b0d471f703ecc81cccbe6fd21cefd59a8209e");
  EXPECT_EQ(Sha256Hex(ToyLayerFile()),
            "1029bc2547cd255e76b1f384405180b88958ae94050eb6b0634c7a7ff5f7fb35");
}

TEST(WorkedExample, LayoutText) {
  std::string text;
  WriteLayout(ToyLayout(), [&text](std::string_view piece) { text += piece; });
  const Json expert = Json::parse(R"({"expert":1,"offset":16384,"size":16384,"tensors":{
   "gate":{"offset":0,"size":2048,"dtype":"U32","shape":[64,64],"bits":4},
   "gate_scales":{"offset":2048,"size":128,"dtype":"BF16","shape":[64,1]},
   "gate_biases":{"offset":2176,"size":128,"dtype":"BF16","shape":[64,1]},
   "up":{"offset":2304,"size":2048,"dtype":"U32","shape":[64,64],"bits":4},
   "up_scales":{"offset":4352,"size":128,"dtype":"BF16","shape":[64,1]},
   "up_biases":{"offset":4480,"size":128,"dtype":"BF16","shape":[64,1]},
   "down":{"offset":4608,"size":2048,"dtype":"U32","shape":[64,64],"bits":4},
   "down_scales":{"offset":6656,"size":128,"dtype":"BF16","shape":[64,1]},
   "down_biases":{"offset":6784,"size":128,"dtype":"BF16","shape":[64,1]}}})");
  const Json layout = Json::parse(text);
  EXPECT_EQ(layout["layers"][0]["experts"][1], expert);
  EXPECT_EQ(layout["layers"][0]["file"], "layer_00.bin");
  EXPECT_EQ(layout["layers"][0]["layer"], 0);
  EXPECT_EQ(layout["expertStride"], 16384);
  EXPECT_EQ(layout["numLayers"], 1);
  EXPECT_EQ(layout["expertsPerLayer"], 2);
}

TEST(WorkedExample, Opens) {
  const ToyDirectory toy;
  const ModelDirectory model = toy.Open();
  EXPECT_EQ(model.manifest().model_id, "toy/one-layer");
  EXPECT_EQ(model.layout().layers.at(0).expert_offsets, (std::vector<uint64_t>{0, 16384}));
  EXPECT_EQ(model.layout().layers.at(0).blob, ToyLayout().layers.at(0).blob);
  const ResidentTensor& scalar = model.Tensor("language_model.model.layers.0.layer_scalar");
  EXPECT_EQ(scalar.weight, (FileRange{21120, 2}));
  // Payload byte i is (7 i + 3) mod 256; the scalar starts at payload byte 4736.
  EXPECT_EQ(Bytes(model.Bytes(scalar.weight)), std::string("\x83\x8a", 2));
  std::string first(1, ' ');
  ReadExactly(model.LayerFile(0), 16384, std::as_writable_bytes(std::span(first)), "layer");
  EXPECT_EQ(first[0], 6);
  EXPECT_EQ(model.ReadSidecar("config.json", 1000), "{\"model_type\": \"toy\"}");
  EXPECT_FALSE(model.HasSidecar("chat_template.jinja"));
}

// The offsets and sizes that the specification lists for each family.
TEST(ExpertBlobs, FamilySizes) {
  const auto blob = [](uint64_t rows, uint64_t columns, int bits, uint64_t gate_group) {
    ExpertBlob result;
    result.gate = {rows, columns, bits, gate_group, {}, {}, {}};
    result.up = {rows, columns, bits, 64, {}, {}, {}};
    result.down = {columns, rows, bits, 64, {}, {}, {}};
    return result;
  };
  ExpertBlob gemma = blob(704, 2816, 4, 64);
  EXPECT_EQ(PackExpertBlob(gemma), 3345408U);
  EXPECT_EQ(gemma.up.scales, (BlobSlice{2106368, 61952}));
  EXPECT_EQ(gemma.down.biases.offset, 3283456U);
  ExpertBlob qwen = blob(512, 2048, 4, 64);
  EXPECT_EQ(PackExpertBlob(qwen), 1769472U);
  ExpertBlob deepseek = blob(2048, 4096, 2, 32);
  EXPECT_EQ(PackExpertBlob(deepseek), 8388608U);
  EXPECT_EQ(deepseek.gate.scales, (BlobSlice{2097152, 524288}));
  EXPECT_EQ(deepseek.down.biases.offset, 8126464U);
  ExpertBlob deepseek_last = blob(2048, 4096, 2, 64);
  EXPECT_EQ(PackExpertBlob(deepseek_last), 7864320U);
  ExpertBlob inkling = blob(2048, 4096, 4, 64);
  EXPECT_EQ(PackExpertBlob(inkling), 14155776U);
  ExpertBlob maple = blob(512, 2048, 2, 64);
  EXPECT_EQ(PackExpertBlob(maple), 983040U);
  EXPECT_EQ(maple.down.weights.offset, 655360U);
}

}  // namespace
}  // namespace mference
