// Every row of the specification's rejection table, on a real directory.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cmath>

#include "base/sha256.h"
#include "format/toy_directory.h"

namespace mference {
namespace {

using testing::HasSubstr;

constexpr auto kTrusted = VerifyPolicy::kTrustedReceipt;

struct ManifestCase {
  const char* name;
  ErrorCode code;
  std::function<void(Json&)> edit;
};

class ManifestRejection : public testing::TestWithParam<ManifestCase> {};

TEST_P(ManifestRejection, IsRefused) {
  ToyDirectory toy;
  toy.EditManifest(GetParam().edit);
  ExpectError(GetParam().code, [&] { toy.Open(); });
}

Json ListedFile() { return {{"size", 1}, {"sha256", std::string(64, '0')}}; }

INSTANTIATE_TEST_SUITE_P(
    Table, ManifestRejection,
    testing::Values(
        ManifestCase{"MissingKey", ErrorCode::kManifestCorrupt, [](Json& m) { m.erase("files"); }},
        ManifestCase{"WrongType", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["numLayers"] = "one"; }},
        ManifestCase{"MissingArchField", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["arch"].erase("headDim"); }},
        ManifestCase{"FractionalInt", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["arch"]["headDim"] = 16.5; }},
        ManifestCase{"MaskOutOfByte", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["arch"]["fullAttentionLayerMask"] = {256}; }},
        ManifestCase{"EmptyModelId", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["modelID"] = ""; }},
        ManifestCase{"FlagNotBool", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["flags"]["aneSharedExpert"] = 1; }},
        ManifestCase{"NegativeSize", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["files"]["model_weights.bin"]["size"] = -1; }},
        ManifestCase{"BadHash", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["files"]["model_weights.bin"]["sha256"] = "12"; }},
        ManifestCase{"DotDotPath", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["files"]["tokenizer/../x"] = ListedFile(); }},
        ManifestCase{"AbsolutePath", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["files"]["/etc/passwd"] = ListedFile(); }},
        ManifestCase{"EmptyComponent", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["files"]["a//b"] = ListedFile(); }},
        ManifestCase{"DotComponent", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["files"]["./a"] = ListedFile(); }},
        ManifestCase{"NulInPath", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["files"][std::string("a\0b", 3)] = ListedFile(); }},
        ManifestCase{"CaseCollision", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["files"]["Model_Weights.bin"] = ListedFile(); }},
        ManifestCase{"ComposedName", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["files"]["caf\xc3\xa9"] = ListedFile(); }},
        ManifestCase{"ListsManifest", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["files"]["manifest.json"] = ListedFile(); }},
        ManifestCase{"ListsReceipt", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["files"]["verified-install.json"] = ListedFile(); }},
        ManifestCase{"ListsTokenizer", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["files"]["tokenizer"] = ListedFile(); }},
        ManifestCase{"FileIsDirectory", ErrorCode::kManifestCorrupt,
                     [](Json& m) { m["files"]["packed_experts"] = ListedFile(); }},
        ManifestCase{"UnknownFamily", ErrorCode::kUnknownFamily,
                     [](Json& m) { m["arch"]["family"] = "gemma5"; }},
        ManifestCase{"Magic", ErrorCode::kNotGturbo, [](Json& m) { m["magic"] = "GTURB0"; }},
        ManifestCase{"Version", ErrorCode::kUnsupportedVersion,
                     [](Json& m) { m["versionMajor"] = 2; }},
        ManifestCase{"NegativeMinor", ErrorCode::kUnsupportedVersion,
                     [](Json& m) { m["versionMinor"] = -1; }},
        ManifestCase{"UnknownFlag", ErrorCode::kUnknownFlag,
                     [](Json& m) { m["flags"]["zeta"] = false; }},
        ManifestCase{"PackedKv", ErrorCode::kRemovedFeature,
                     [](Json& m) { m["flags"]["turboQuantKV"] = true; }},
        ManifestCase{"ArchInt", ErrorCode::kArchMismatch,
                     [](Json& m) { m["arch"]["headDim"] = 17; }},
        ManifestCase{"ArchDoubleOneUlp", ErrorCode::kArchMismatch,
                     [](Json& m) { m["arch"]["partialRotaryFactor"] = std::nextafter(0.25, 1.0); }},
        ManifestCase{"ArchExtension", ErrorCode::kArchMismatch,
                     [](Json& m) { m["arch"]["hcMult"] = 4; }},
        ManifestCase{"OtherFamily", ErrorCode::kArchMismatch,
                     [](Json& m) { m["arch"]["family"] = "maple"; }},
        ManifestCase{"LayersDisagree", ErrorCode::kArchMismatch,
                     [](Json& m) { m["numLayers"] = 2; }},
        ManifestCase{"QuantBits", ErrorCode::kQuantUnsupported,
                     [](Json& m) { m["quant"]["routedExpert"]["weightBits"] = 3; }},
        ManifestCase{"QuantScheme", ErrorCode::kQuantUnsupported,
                     [](Json& m) { m["quant"]["embedding"]["scheme"] = "gguf"; }},
        ManifestCase{"QuantGroup", ErrorCode::kQuantUnsupported,
                     [](Json& m) { m["quant"]["attention"]["groupSize"] = 32; }},
        ManifestCase{"FlashHead", ErrorCode::kFlashHeadInvalid,
                     [](Json& m) {
                       m["flashHead"] = {{"nClusters", 16},   {"clusterSize", 8},
                                         {"nProbes", 1},      {"groupSize", 64},
                                         {"bits", 4},         {"headGroupSize", 64},
                                         {"headBits", 4},     {"scaledCentroids", true},
                                         {"forceTokens", {1}}};
                     }},
        ManifestCase{"Stride", ErrorCode::kStrideMisaligned,
                     [](Json& m) { m["expertStride"] = 16000; }},
        ManifestCase{"NoWeightsListed", ErrorCode::kMissingFile,
                     [](Json& m) { m["files"].erase("model_weights.bin"); }},
        ManifestCase{"NoLayoutListed", ErrorCode::kMissingFile,
                     [](Json& m) { m["files"].erase("packed_experts/layout.json"); }},
        ManifestCase{"NoLayerListed", ErrorCode::kMissingFile,
                     [](Json& m) { m["files"].erase("packed_experts/layer_00.bin"); }},
        ManifestCase{"NoConfigListed", ErrorCode::kMissingFile,
                     [](Json& m) { m["files"].erase("tokenizer/config.json"); }}),
    [](const auto& test) { return test.param.name; });

TEST(Rejections, NotADirectory) {
  ScratchDirectory scratch;
  OpenOptions options;
  options.resolve = ResolveToy;
  const auto open = [&](const std::filesystem::path& path) {
    return ExpectError(ErrorCode::kNotADirectory, [&] { ModelDirectory::Open(path, options); });
  };
  EXPECT_THAT(open(scratch.path() / "absent"), HasSubstr("absent"));
  WriteAll(scratch.path() / "file", "x");
  open(scratch.path() / "file");
}

TEST(Rejections, PartialInstall) {
  ToyDirectory toy;
  std::filesystem::remove(toy.File("manifest.json"));
  EXPECT_THAT(ExpectError(ErrorCode::kPartialInstall, [&] { toy.Open(); }), HasSubstr("resume"));
}

TEST(Rejections, ManifestTooLarge) {
  ToyDirectory toy;
  WriteAll(toy.File("manifest.json"), std::string((size_t{4} << 20) + 1, ' '));
  ExpectError(ErrorCode::kMetadataTooLarge, [&] { toy.Open(); });
}

TEST(Rejections, ManifestNotJson) {
  ToyDirectory toy;
  for (const char* text : {"", "[]", "{", "{\"magic\": \"GTURBO\"", "\xff\xfe"}) {
    WriteAll(toy.File("manifest.json"), text);
    ExpectError(ErrorCode::kManifestCorrupt, [&] { toy.Open(); });
  }
  WriteAll(toy.File("manifest.json"), std::string(1000000, '['));
  EXPECT_THAT(ExpectError(ErrorCode::kManifestCorrupt, [&] { toy.Open(); }),
              HasSubstr("nested deeper"));
}

TEST(Rejections, QuantMissing) {
  ToyDirectory toy;
  toy.EditManifest([](Json& m) { m.erase("quant"); });
  EXPECT_NO_THROW(toy.Open());
  OpenOptions options;
  options.resolve = [](const Manifest&, std::string_view) {
    return ExpectedModel{ToyArch(), /*quant_required=*/true};
  };
  ExpectError(ErrorCode::kQuantMissing, [&] { ModelDirectory::Open(toy.path(), options); });
}

TEST(Rejections, ArchMessageNamesFieldAndBothValues) {
  ToyDirectory toy;
  toy.EditManifest([](Json& m) { m["arch"]["ropeTheta"] = 10001; });
  const std::string message = ExpectError(ErrorCode::kArchMismatch, [&] { toy.Open(); });
  EXPECT_THAT(message, HasSubstr("ropeTheta is 10001"));
  EXPECT_THAT(message, HasSubstr("needs 10000"));
}

TEST(Rejections, ChecksumOfCommonFiles) {
  for (const char* file : {"model_weights.bin", "packed_experts/layout.json",
                           "tokenizer/config.json", "tokenizer/tokenizer.json"}) {
    ToyDirectory toy;
    toy.FlipByte(file, ReadAll(toy.File(file)).size() - 1);
    EXPECT_THAT(ExpectError(ErrorCode::kChecksumMismatch, [&] { toy.Open(); }), HasSubstr(file));
  }
}

TEST(Rejections, CommonFileMissingOnDisk) {
  ToyDirectory toy;
  std::filesystem::remove(toy.File("packed_experts/layout.json"));
  ExpectError(ErrorCode::kLayoutCorrupt, [&] { toy.Open(); });
  std::filesystem::remove(toy.File("model_weights.bin"));
  ExpectError(ErrorCode::kMissingFile, [&] { toy.Open(); });
}

TEST(Rejections, TrailingGarbageAfterThePayload) {
  ToyDirectory toy;
  toy.ReplaceFile("model_weights.bin", ToyWeights() + "x");
  EXPECT_THAT(ExpectError(ErrorCode::kIndexCorrupt, [&] { toy.Open(); }), HasSubstr("21251"));
  toy.ReplaceFile("model_weights.bin", ToyWeights().substr(0, 21249));
  ExpectError(ErrorCode::kIndexCorrupt, [&] { toy.Open(); });
}

TEST(Rejections, LayoutTooLarge) {
  ToyDirectory toy;
  std::filesystem::resize_file(toy.File("packed_experts/layout.json"), (uint64_t{64} << 20) + 1);
  ExpectError(ErrorCode::kLayoutCorrupt, [&] { toy.Open(); });
}

TEST(Rejections, LayerOnFirstUse) {
  {
    ToyDirectory toy;
    const ModelDirectory model = toy.Open();
    toy.FlipByte("packed_experts/layer_00.bin", 20000);
    ExpectError(ErrorCode::kChecksumMismatch, [&] { model.LayerFile(0); });
    // A failure is not remembered as success, nor for ever.
    ExpectError(ErrorCode::kChecksumMismatch, [&] { model.LayerFile(0); });
    toy.FlipByte("packed_experts/layer_00.bin", 20000);
    EXPECT_NO_THROW(model.LayerFile(0));
  }
  {
    ToyDirectory toy;
    const ModelDirectory model = toy.Open();
    std::filesystem::remove(toy.File("packed_experts/layer_00.bin"));
    ExpectError(ErrorCode::kMissingFile, [&] { model.LayerFile(0); });
  }
  {
    ToyDirectory toy;
    const ModelDirectory model = toy.Open();
    std::filesystem::resize_file(toy.File("packed_experts/layer_00.bin"), 32767);
    ExpectError(ErrorCode::kChecksumMismatch, [&] { model.LayerFile(0); });
  }
  {
    ToyDirectory toy;
    toy.WriteReceipt();
    const ModelDirectory model = toy.Open(kTrusted);
    std::filesystem::resize_file(toy.File("packed_experts/layer_00.bin"), 32767);
    ExpectError(ErrorCode::kReceiptInvalid, [&] { model.LayerFile(0); });
  }
  {
    ToyDirectory toy;
    ExpectError(ErrorCode::kInvalidArgument, [&] { toy.Open().LayerFile(1); });
    ExpectError(ErrorCode::kInvalidArgument, [&] { toy.Open().LayerFile(-1); });
  }
}

TEST(Rejections, LayerFileUnderANameThatIsNotListed) {
  ToyDirectory toy;
  toy.EditLayout([](Json& l) { l["layers"][0]["file"] = "other.bin"; });
  const ModelDirectory model = toy.Open();
  ExpectError(ErrorCode::kMissingFile, [&] { model.LayerFile(0); });
}

TEST(Rejections, TensorLookups) {
  ToyDirectory toy;
  const ModelDirectory model = toy.Open();
  ExpectError(ErrorCode::kTensorNotFound, [&] { model.Tensor("language_model.lm_head.weight"); });
  const ResidentTensor& norm = model.Tensor("language_model.model.norm.weight");
  const ResidentTensor& embedding = model.Tensor("language_model.model.embed_tokens.weight");
  const uint32_t vector_shape[] = {64};
  const uint32_t other_shape[] = {65};
  const uint32_t matrix_shape[] = {128, 64};
  EXPECT_NO_THROW(RequirePlain(norm, DType::kBf16, vector_shape));
  EXPECT_EQ(RequireAffine(embedding, matrix_shape), (AffineEncoding{4, 64}));
  EXPECT_NO_THROW(RequireAffine(embedding, matrix_shape, {4, 64}));
  const auto mismatch = [](const std::function<void()>& action) {
    ExpectError(ErrorCode::kTensorSizeMismatch, action);
  };
  mismatch([&] { RequirePlain(norm, DType::kBf16, other_shape); });
  mismatch([&] { RequirePlain(norm, DType::kF32, vector_shape); });
  mismatch([&] { RequirePlain(norm, DType::kBf16, matrix_shape); });
  mismatch([&] { RequirePlain(embedding, DType::kU32, matrix_shape); });
  mismatch([&] { RequireAffine(norm, vector_shape); });
  mismatch([&] { RequireAffine(embedding, vector_shape); });
  mismatch([&] { RequireAffine(embedding, matrix_shape, {8, 64}); });
  mismatch([&] { RequireAffine(embedding, matrix_shape, {4, 32}); });
  ResidentTensor damaged = embedding;
  damaged.scales.bytes -= 2;
  mismatch([&] { RequireAffine(damaged, matrix_shape); });
}

// Links and special files, on every component.
TEST(Rejections, SubstitutedFiles) {
  ScratchDirectory elsewhere;
  for (const char* file : {"manifest.json", "model_weights.bin", "packed_experts/layout.json",
                           "tokenizer/config.json", "tokenizer/tokenizer.json"}) {
    ToyDirectory linked;
    const auto copy = elsewhere.path() / std::filesystem::path(file).filename();
    std::filesystem::rename(linked.File(file), copy);
    std::filesystem::create_symlink(copy, linked.File(file));
    ExpectError(ErrorCode::kIo, [&] { linked.Open(); });
    std::filesystem::remove(linked.File(file));
    ASSERT_EQ(mkfifo(linked.File(file).c_str(), 0600), 0);
    ExpectError(ErrorCode::kIo, [&] { linked.Open(); });
  }
  ToyDirectory toy;
  const ModelDirectory model = toy.Open();
  std::filesystem::rename(toy.File("packed_experts"), elsewhere.path() / "experts");
  std::filesystem::create_directory_symlink(elsewhere.path() / "experts",
                                            toy.File("packed_experts"));
  ExpectError(ErrorCode::kIo, [&] { model.LayerFile(0); });
  ExpectError(ErrorCode::kIo, [&] { toy.Open(); });
}

TEST(Acceptances, TheRootMayBeALink) {
  ToyDirectory toy;
  ScratchDirectory scratch;
  std::filesystem::create_directory_symlink(toy.path(), scratch.path() / "link");
  OpenOptions options;
  options.resolve = ResolveToy;
  EXPECT_NO_THROW(ModelDirectory::Open(scratch.path() / "link", options));
}

TEST(Acceptances, WhatTheSpecificationAllows) {
  const std::function<void(Json&)> edits[] = {
      [](Json& m) { m["versionMinor"] = 7; },
      [](Json& m) { m["quant"]["sharedExpert"]["weightBits"] = 8; },
      [](Json& m) { m["quant"]["embedding"]["scheme"] = "Affine"; },
      [](Json& m) { m["quant"]["embedding"]["biasType"] = "bf16"; },
      [](Json& m) { m["arch"]["family"] = "gemma4"; },
      [](Json& m) { m["arch"]["headDim"] = 16.0; },
      [](Json& m) { m["arch"]["numSharedExperts"] = 1; },
      [](Json& m) {
        m["future"] = {{"anything", 1}};
      },
      [](Json& m) { m.erase("bitWidthOverridesHonored"); },
      [](Json& m) { m["files"]["packed_experts/layer_0.bin"] = ListedFile(); },
      [](Json& m) {
        std::string hash = m["files"]["model_weights.bin"]["sha256"];
        for (char& c : hash) c = static_cast<char>(std::toupper(c));
        m["files"]["model_weights.bin"]["sha256"] = hash;
      },
  };
  for (const auto& edit : edits) {
    ToyDirectory toy;
    ASSERT_FALSE(Json::parse(ReadAll(toy.File("manifest.json")))["arch"].contains("family"));
    toy.EditManifest(edit);
    EXPECT_NO_THROW(toy.Open()) << ReadAll(toy.File("manifest.json"));
  }
}

}  // namespace
}  // namespace mference
