// Rules of the resident index, each broken in an otherwise intact directory.
#include <gmock/gmock.h>

#include "format/toy_directory.h"

namespace mference {
namespace {

std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>((value >> (8 * i)) & 0xFF);
  return text;
}

struct IndexCase {
  const char* name;
  size_t offset;
  std::string bytes;
};

// Offsets inside an entry, from the specification.
constexpr size_t Entry(size_t number, size_t field) { return 24 + 72 * number + field; }

class IndexRejection : public testing::TestWithParam<IndexCase> {};

TEST_P(IndexRejection, IsRefused) {
  ToyDirectory toy;
  toy.PatchFile("model_weights.bin", GetParam().offset, GetParam().bytes);
  ExpectError(ErrorCode::kIndexCorrupt, [&] { toy.Open(); });
}

INSTANTIATE_TEST_SUITE_P(
    Table, IndexRejection,
    testing::Values(IndexCase{"IndexSizeZero", 0, LittleEndian(0, 8)},
                    IndexCase{"IndexSizeUnaligned", 0, LittleEndian(16385, 8)},
                    IndexCase{"IndexSizeTooLarge", 0, LittleEndian((16 << 20) + 16384, 8)},
                    IndexCase{"IndexBeyondTheFile", 0, LittleEndian(32768, 8)},
                    IndexCase{"ResidentSizeOverflows", 8, LittleEndian(UINT64_MAX, 8)},
                    IndexCase{"ResidentSize", 8, LittleEndian(4867, 8)},
                    IndexCase{"TooManyEntries", 16, LittleEndian(228, 8)},
                    IndexCase{"EntryCountOverflows", 16, LittleEndian(UINT64_MAX / 72 + 2, 8)},
                    IndexCase{"NameInTheEntryTable", Entry(1, 0), LittleEndian(311, 4)},
                    IndexCase{"NameOutsideTheIndex", Entry(1, 0), LittleEndian(16384 - 51, 4)},
                    IndexCase{"EmptyName", Entry(1, 4), LittleEndian(0, 2)},
                    IndexCase{"NameNotUtf8", 352, "\xff"},
                    IndexCase{"NameRepeated", Entry(3, 0),
                              LittleEndian(352, 4) + LittleEndian(52, 2)},
                    IndexCase{"UnknownDtype", Entry(0, 6), LittleEndian(6, 1)},
                    IndexCase{"ReservedByte", Entry(0, 7), LittleEndian(1, 1)},
                    IndexCase{"FirstDimensionZero", Entry(1, 24), LittleEndian(0, 4)},
                    IndexCase{"ZeroBetweenDimensions", Entry(1, 32), LittleEndian(1, 4)},
                    IndexCase{"ElementsOverflow", Entry(1, 24), std::string(16, '\xff')},
                    IndexCase{"NoWeights", Entry(1, 16), LittleEndian(0, 8)},
                    IndexCase{"WeightsInTheIndex", Entry(1, 8), LittleEndian(16383, 8)},
                    IndexCase{"WeightsBeyondTheEnd", Entry(3, 16), LittleEndian(129, 8)},
                    IndexCase{"WeightsOverflow", Entry(3, 16), LittleEndian(UINT64_MAX - 100, 8)},
                    IndexCase{"AbsentScalesWithOffset", Entry(1, 40), LittleEndian(20480, 8)},
                    IndexCase{"ScalesBeyondTheEnd", Entry(0, 40), LittleEndian(21250, 8)},
                    IndexCase{"BiasesInTheIndex", Entry(0, 56), LittleEndian(0, 8)},
                    IndexCase{"WeightsOverlap", Entry(3, 8), LittleEndian(21121, 8)},
                    IndexCase{"ScalesOverlapBiases", Entry(0, 40), LittleEndian(20481, 8)}),
    [](const auto& test) { return test.param.name; });

TEST(ResidentIndex, TruncatedFiles) {
  for (const size_t size : {size_t{0}, size_t{23}, size_t{100}, size_t{16383}}) {
    ToyDirectory toy;
    toy.ReplaceFile("model_weights.bin", ToyWeights().substr(0, size));
    ExpectError(ErrorCode::kIndexCorrupt, [&] { toy.Open(); });
  }
}

TEST(ResidentIndex, EveryDtypeSurvives) {
  std::vector<ResidentTensor> tensors;
  for (uint8_t code = 0; code < kDTypeCount; ++code) {
    const auto dtype = static_cast<DType>(code);
    tensors.push_back({fmt::format("tensor.{}", 9 - code),
                       dtype,
                       {3, 2, 0, 0},
                       {0, 6 * ElementBytes(dtype)},
                       {},
                       {}});
  }
  const ResidentIndex planned = PlanResidentIndex(tensors);
  const ResidentIndex read = ParseResidentIndex(SerializeResidentIndex(planned), "index");
  ASSERT_EQ(read.tensors.size(), 6U);
  for (size_t i = 0; i < 6; ++i) {
    const ResidentTensor* found = read.Find(tensors[i].name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->dtype, tensors[i].dtype);
    EXPECT_EQ(found->weight, planned.tensors[i].weight);
    EXPECT_EQ(found->rank(), 2);
  }
  EXPECT_EQ(read.Find("tensor.3"), nullptr);
}

TEST(ResidentIndex, PlanRefusesWhatTheFormatCannotHold) {
  const ResidentTensor good{"a", DType::kBf16, {2, 0, 0, 0}, {0, 4}, {}, {}};
  const auto refuse = [](std::vector<ResidentTensor> tensors) {
    ExpectError(ErrorCode::kInvalidArgument, [&] { PlanResidentIndex(std::move(tensors)); });
  };
  refuse({good, good});
  ResidentTensor bad = good;
  bad.name = std::string(65536, 'x');
  refuse({bad});
  bad = good;
  bad.name.clear();
  refuse({bad});
  bad = good;
  bad.shape = {0, 2, 0, 0};
  refuse({bad});
  bad = good;
  bad.weight.bytes = 0;
  refuse({bad});
}

// Gemma 4's resident tensors, from the shapes in the specification: the size of the real file.
TEST(ResidentIndex, GemmaTotals) {
  constexpr uint32_t kHidden = 2816;
  std::vector<ResidentTensor> tensors;
  const auto quantised = [&](const std::string& name, uint32_t rows, uint32_t columns,
                             uint32_t bits) {
    const uint64_t companions = uint64_t{2} * rows * (columns / 64);
    tensors.push_back({name + ".weight",
                       DType::kU32,
                       {rows, columns, 0, 0},
                       {0, uint64_t{rows} * columns * bits / 8},
                       {0, companions},
                       {0, companions}});
  };
  const auto vector = [&](const std::string& name, uint32_t size) {
    tensors.push_back({name, DType::kBf16, {size, 0, 0, 0}, {0, uint64_t{2} * size}, {}, {}});
  };
  quantised("language_model.model.embed_tokens", 262144, kHidden, 4);
  for (int layer = 0; layer < 30; ++layer) {
    const bool full = layer % 6 == 5;
    const std::string prefix = fmt::format("language_model.model.layers.{}.", layer);
    quantised(prefix + "self_attn.q_proj", full ? 8192 : 4096, kHidden, 4);
    quantised(prefix + "self_attn.k_proj", full ? 1024 : 2048, kHidden, 4);
    if (!full) quantised(prefix + "self_attn.v_proj", 2048, kHidden, 4);
    quantised(prefix + "self_attn.o_proj", kHidden, full ? 8192 : 4096, 4);
    vector(prefix + "self_attn.q_norm.weight", full ? 512 : 256);
    vector(prefix + "self_attn.k_norm.weight", full ? 512 : 256);
    quantised(prefix + "router.proj", 128, kHidden, 8);
    vector(prefix + "router.scale", kHidden);
    vector(prefix + "router.per_expert_scale", 128);
    quantised(prefix + "mlp.gate_proj", 2112, kHidden, 4);
    quantised(prefix + "mlp.up_proj", 2112, kHidden, 4);
    quantised(prefix + "mlp.down_proj", kHidden, 2112, 4);
    for (const char* norm :
         {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
          "pre_feedforward_layernorm_2", "post_feedforward_layernorm",
          "post_feedforward_layernorm_1", "post_feedforward_layernorm_2"}) {
      vector(prefix + norm + ".weight", kHidden);
    }
    vector(prefix + "layer_scalar", 1);
  }
  vector("language_model.model.norm.weight", kHidden);
  const ResidentIndex index = PlanResidentIndex(tensors);
  EXPECT_EQ(index.tensors.size(), 597U);
  EXPECT_EQ(index.index_bytes, 81920U);
  EXPECT_EQ(index.index_bytes + index.resident_bytes, 1353771068U);
}

}  // namespace
}  // namespace mference
