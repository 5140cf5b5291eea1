// safetensors headers, whole and damaged; the streaming writer; the snapshot index.
#include "format/safetensors.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "format/safetensors_writer.h"
#include "format/snapshot_index.h"
#include "format/toy_directory.h"

namespace mference {
namespace {

using testing::HasSubstr;

SafetensorsHeader Parse(const std::string& json, uint64_t data_bytes) {
  return SafetensorsHeader::Parse(json, 8 + json.size() + data_bytes, "file");
}

TEST(Safetensors, ReadsTheDemoSnapshot) {
  const std::filesystem::path snapshot = MFERENCE_DEMO_SNAPSHOT;
  const SnapshotIndex index = ParseSnapshotIndex(ReadAll(snapshot / "model.safetensors.index.json"),
                                                 "model.safetensors.index.json");
  ASSERT_EQ(index.shards.size(), 2U);
  size_t tensors = 0;
  uint64_t bytes = 0;
  for (const std::string& shard : index.shards) {
    const SafetensorsFile file(snapshot / shard);
    for (const SafetensorsTensor& tensor : file.header().tensors()) {
      EXPECT_EQ(index.shard_of_tensor.at(tensor.name), shard);
      EXPECT_EQ(file.Bytes(tensor).size(), tensor.bytes);
      bytes += tensor.bytes;
      ++tensors;
    }
    EXPECT_EQ(file.header().metadata().at("format"), "mlx");
  }
  EXPECT_EQ(tensors, index.shard_of_tensor.size());
  EXPECT_EQ(index.total_size, bytes);
  const SafetensorsFile first(snapshot / index.shards[0]);
  ExpectError(ErrorCode::kTensorNotFound, [&] { first.Tensor("absent"); });
}

TEST(Safetensors, OffsetsAreAbsoluteAndInFileOrder) {
  const std::string json =
      R"({"b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},)"
      R"("a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},"future":{"dtype":"I64",)"
      R"("shape":[0],"data_offsets":[12,12],"note":[{"x":null}]}}   )";
  const SafetensorsHeader header = Parse(json, 12);
  ASSERT_EQ(header.tensors().size(), 3U);
  EXPECT_EQ(header.tensors()[0].name, "a");
  EXPECT_EQ(header.Find("b")->offset, 8 + json.size() + 4);
  EXPECT_EQ(header.Find("b")->shape, (std::vector<uint64_t>{2, 1}));
  EXPECT_EQ(header.Find("c"), nullptr);
}

TEST(Safetensors, DamagedHeaders) {
  const auto tensor = [](const std::string& body) { return "{\"t\":{" + body + "}}"; };
  constexpr const char* kTwice = R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                 R"("t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  constexpr const char* kOverlapping = R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                       R"("u":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}})";
  const std::string damaged[] = {
      "",
      "[]",
      "{",
      "{}x",
      "{\"t\":1}",
      tensor(R"("shape":[1],"data_offsets":[0,4])"),
      tensor(R"("dtype":"F32","data_offsets":[0,4])"),
      tensor(R"("dtype":"F32","shape":[1])"),
      tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"),
      tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"),
      tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"),
      tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"),
      tensor(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"),
      tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"),
      tensor(R"("dtype":"F32","shape":[1],"data_offsets":[6,10])"),
      tensor(R"("dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,0])"),
      tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
      tensor(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])"),
      R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      kTwice,
      kOverlapping,
      "{\"__metadata__\":{\"a\":1}}",
      "{\"a\xff\":{}}",
      "{\"a\\ud800\":{}}",
      "{\"x\":" + std::string(200000, '['),
      "{\"x\":" + std::string(200000, '{'),
  };
  for (const std::string& json : damaged) {
    ExpectError(ErrorCode::kSourceInvalid, [&] { Parse(json, 8); });
  }
}

TEST(Safetensors, UnsupportedDtypesAreRefusedByName) {
  for (const char* dtype : {"F64", "U8", "BOOL", "F8_E4M3", "f32", ""}) {
    const std::string json =
        fmt::format(R"({{"layer.w":{{"dtype":"{}","shape":[1],"data_offsets":[0,8]}}}})", dtype);
    const std::string message = ExpectError(ErrorCode::kSourceInvalid, [&] { Parse(json, 8); });
    EXPECT_THAT(message, HasSubstr(fmt::format("'{}'", dtype)));
    EXPECT_THAT(message, HasSubstr("$.layer.w"));
  }
}

TEST(Safetensors, HeaderLength) {
  const auto length = [](uint64_t value, uint64_t file_bytes) {
    std::array<std::byte, 8> prefix;
    for (size_t i = 0; i < 8; ++i) prefix[i] = static_cast<std::byte>((value >> (8 * i)) & 0xFF);
    return SafetensorsHeader::ParseLength(prefix, file_bytes, "file");
  };
  EXPECT_EQ(length(2, 10), 2U);
  EXPECT_EQ(length(16777216, uint64_t{1} << 30), 16777216U);
  ExpectError(ErrorCode::kSourceInvalid, [&] { length(16777217, uint64_t{1} << 30); });
  ExpectError(ErrorCode::kSourceInvalid, [&] { length(3, 10); });
  ExpectError(ErrorCode::kSourceInvalid, [&] { length(UINT64_MAX, 10); });
  ExpectError(ErrorCode::kSourceInvalid, [&] { length(0, 7); });
}

TEST(Safetensors, DamagedFiles) {
  const ScratchDirectory scratch;
  const auto path = scratch.path() / "model.safetensors";
  for (const std::string& content : {std::string(), std::string("1234567"), std::string(8, '\xff'),
                                     std::string("\x05\0\0\0\0\0\0\0{}", 10)}) {
    WriteAll(path, content);
    ExpectError(ErrorCode::kSourceInvalid, [&] { SafetensorsFile file(path); });
  }
  ExpectError(ErrorCode::kNotFound, [&] { SafetensorsFile file(scratch.path() / "absent"); });
}

std::span<const std::byte> AsBytes(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

TEST(SafetensorsWriter, StreamsRows) {
  const ScratchDirectory scratch;
  const auto path = scratch.path() / "logits.safetensors";
  {
    SafetensorsWriter writer(path,
                             {{"seq0.logits", DType::kF32, {2, 3}},
                              {"seq1.logits", DType::kF32, {1, 3}},
                              {"empty", DType::kI32, {0}}},
                             {{"note", "\"quoted\""}});
    writer.Append(1, AsBytes({7, 8, 9}));
    writer.Append(0, AsBytes({1, 2}));
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.Append(0, AsBytes({3, 4, 5, 6}));
    ExpectError(ErrorCode::kInvalidArgument, [&] { writer.Append(0, AsBytes({1})); });
    ExpectError(ErrorCode::kInvalidArgument, [&] { writer.Append(3, {}); });
    writer.Finish();
  }
  const SafetensorsFile file(path);
  EXPECT_EQ(file.header().metadata().at("note"), "\"quoted\"");
  const SafetensorsTensor& logits = file.Tensor("seq0.logits");
  EXPECT_EQ(logits.shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(logits.offset % 8, 0U);
  std::vector<float> values(6);
  std::memcpy(values.data(), file.Bytes(logits).data(), 24);
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  std::memcpy(values.data(), file.Bytes(file.Tensor("seq1.logits")).data(), 12);
  EXPECT_EQ(values[2], 9);
}

TEST(SafetensorsWriter, LeavesNothingWhenAbandoned) {
  const ScratchDirectory scratch;
  const auto path = scratch.path() / "logits.safetensors";
  {
    SafetensorsWriter writer(path, {{"a", DType::kF32, {2}}});
    writer.Append(0, AsBytes({1}));
    EXPECT_THAT(ExpectError(ErrorCode::kInvalidArgument, [&] { writer.Finish(); }),
                HasSubstr("lacks 4 bytes"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(SafetensorsWriter, ReplacesFilesThroughLinksAndNothingElse) {
  const ScratchDirectory scratch;
  const auto target = scratch.path() / "target";
  const auto link = scratch.path() / "link";
  std::filesystem::create_symlink(target, link);
  EXPECT_THAT(ExpectError(ErrorCode::kInvalidArgument,
                          [&] {
                            SafetensorsWriter writer(link, {{"a", DType::kF32, {1}}});
                          }),
              HasSubstr("link to what does not exist"));
  std::ofstream(target) << "old";
  {
    SafetensorsWriter writer(link, {{"a", DType::kF32, {1}}});
    writer.Append(0, AsBytes({1}));
    writer.Finish();
  }
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(SafetensorsFile(target).header().tensors().size(), 1U);

  const auto fifo = scratch.path() / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::filesystem::path& special : {fifo, scratch.path()}) {
    EXPECT_THAT(ExpectError(ErrorCode::kInvalidArgument,
                            [&] {
                              SafetensorsWriter writer(special, {{"a", DType::kF32, {1}}});
                            }),
                HasSubstr("not a regular file"));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
}

TEST(SafetensorsWriter, RefusesBadDeclarations) {
  const ScratchDirectory scratch;
  const auto path = scratch.path() / "x";
  const auto refuse = [&](const std::vector<SafetensorsSpec>& specs) {
    ExpectError(ErrorCode::kInvalidArgument, [&] { SafetensorsWriter writer(path, specs); });
  };
  refuse({{"", DType::kF32, {1}}});
  refuse({{"__metadata__", DType::kF32, {1}}});
  refuse({{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}});
  refuse({{"a", DType::kF32, {uint64_t{1} << 40, uint64_t{1} << 40}}});
  refuse({{"a", DType::kF32, {uint64_t{1} << 61}}, {"b", DType::kF32, {uint64_t{1} << 61}}});
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(SnapshotIndex, ShardsInOrderOfFirstAppearance) {
  const SnapshotIndex index = ParseSnapshotIndex(
      R"({"weight_map":{"c":"one.safetensors","a":"two.safetensors","b":"one.safetensors"},
          "metadata":{"total_size":12.0,"format":"mlx"},"extra":[]})",
      "index");
  EXPECT_EQ(index.shards, (std::vector<std::string>{"two.safetensors", "one.safetensors"}));
  EXPECT_EQ(index.total_size, 12U);
  EXPECT_EQ(index.shard_of_tensor.at("c"), "one.safetensors");
}

TEST(SnapshotIndex, Damaged) {
  for (const char* text :
       {"", "{}", "[]", R"({"weight_map":{}})", R"({"weight_map":{"a":1}})",
        R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})",
        R"({"weight_map":{"a":"../x.safetensors"}})", R"({"weight_map":{"a":"a/x.safetensors"}})",
        R"({"weight_map":{"a":"x.bin"}})", R"({"weight_map":{"a":"x.safetensors"}} 1)",
        R"({"weight_map":{"a":"x.safetensors"},"metadata":{"total_size":-1}})"}) {
    ExpectError(ErrorCode::kSourceInvalid, [&] { ParseSnapshotIndex(text, "index"); });
  }
  ExpectError(ErrorCode::kMetadataTooLarge,
              [&] { ParseSnapshotIndex(std::string((size_t{4} << 20) + 1, ' '), "index"); });
}

TEST(SnapshotIndex, ShardNames) {
  EXPECT_TRUE(IsSafeShardName("model-00001-of-00003.safetensors"));
  EXPECT_TRUE(IsSafeShardName("model.safetensors"));
  for (const std::string& name :
       {std::string(), std::string(".safetensors"), std::string("..safetensors"),
        std::string("/x.safetensors"), std::string("x y.safetensors"),
        std::string("x%2f.safetensors"), std::string("x?.safetensors"),
        std::string("a\0b.safetensors", 15), std::string("-x.safetensors"),
        std::string(300, 'x') + ".safetensors"}) {
    EXPECT_FALSE(IsSafeShardName(name)) << name;
  }
}

}  // namespace
}  // namespace mference
