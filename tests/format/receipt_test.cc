// The trusted-receipt policy, deferred hashing, and offline verification.
#include "format/receipt.h"

#include <gmock/gmock.h>

#include <thread>

#include "format/toy_directory.h"
#include "format/verify_directory.h"

namespace mference {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kTrusted = VerifyPolicy::kTrustedReceipt;
constexpr auto kFull = VerifyPolicy::kFullSha256;
constexpr auto kAuto = VerifyPolicy::kAuto;

TEST(Receipt, Text) {
  const ToyDirectory toy;
  toy.WriteReceipt();
  const Json receipt = Json::parse(ReadAll(toy.File("verified-install.json")));
  EXPECT_EQ(receipt["schemaVersion"], 1);
  EXPECT_EQ(receipt["modelDirectoryPath"], toy.path().string());
  EXPECT_EQ(receipt["toolVersion"], "MferenceRepack");
  EXPECT_EQ(receipt["verificationTimestamp"], "2026-08-14T10:00:00Z");
  EXPECT_EQ(receipt["files"].size(), 7U);
  EXPECT_TRUE(receipt["files"].contains("manifest.json"));
}

TEST(Receipt, PathIsAbsoluteAndNormal) {
  EXPECT_EQ(ReceiptPath("/a/./b/../c/"), "/a/c");
  EXPECT_EQ(ReceiptPath("x"), (std::filesystem::current_path() / "x").string());
}

TEST(Receipt, IsTrusted) {
  const ToyDirectory toy;
  toy.WriteReceipt();
  EXPECT_EQ(toy.Open(kTrusted).policy(), kTrusted);
  EXPECT_EQ(toy.Open(kAuto).policy(), kTrusted);
  EXPECT_EQ(toy.Open(kFull).policy(), kFull);
  EXPECT_NO_THROW(toy.Open(kTrusted).LayerFile(0));
}

struct ReceiptCase {
  const char* name;
  std::function<void(Json&)> edit;
};

class ReceiptRejection : public testing::TestWithParam<ReceiptCase> {};

TEST_P(ReceiptRejection, IsRefusedOrIgnored) {
  const ToyDirectory toy;
  toy.WriteReceipt();
  toy.EditReceipt(GetParam().edit);
  ExpectError(ErrorCode::kReceiptInvalid, [&] { toy.Open(kTrusted); });
  const ModelDirectory fallback = toy.Open(kAuto);
  EXPECT_EQ(fallback.policy(), kFull);
  EXPECT_NE(fallback.receipt_problem(), "");
}

INSTANTIATE_TEST_SUITE_P(
    Table, ReceiptRejection,
    testing::Values(
        ReceiptCase{"Schema", [](Json& r) { r["schemaVersion"] = 2; }},
        ReceiptCase{"ManifestHash", [](Json& r) { r["manifestSha256"] = std::string(64, '0'); }},
        ReceiptCase{"Path", [](Json& r) { r["modelDirectoryPath"] = "/elsewhere"; }},
        ReceiptCase{"MissingFile", [](Json& r) { r["files"].erase("model_weights.bin"); }},
        ReceiptCase{"MissingManifest", [](Json& r) { r["files"].erase("manifest.json"); }},
        ReceiptCase{"ExtraFile",
                    [](Json& r) { r["files"]["extra"] = r["files"]["manifest.json"]; }},
        ReceiptCase{"Size", [](Json& r) { r["files"]["model_weights.bin"]["size"] = 1; }},
        ReceiptCase{"Hash",
                    [](Json& r) {
                      r["files"]["packed_experts/layer_00.bin"]["sha256"] = std::string(64, 'f');
                    }},
        ReceiptCase{"ManifestRecord", [](Json& r) { r["files"]["manifest.json"]["size"] = 1; }},
        ReceiptCase{"NoTimestamp", [](Json& r) { r.erase("verificationTimestamp"); }}),
    [](const auto& test) { return test.param.name; });

TEST(Receipt, MissingOrUnreadable) {
  const ToyDirectory toy;
  ExpectError(ErrorCode::kReceiptInvalid, [&] { toy.Open(kTrusted); });
  EXPECT_EQ(toy.Open(kAuto).policy(), kFull);
  WriteAll(toy.File("verified-install.json"), "{");
  ExpectError(ErrorCode::kReceiptInvalid, [&] { toy.Open(kTrusted); });
}

TEST(Receipt, MovedDirectory) {
  const ToyDirectory toy;
  toy.WriteReceipt();
  const ScratchDirectory scratch;
  const auto moved = scratch.path() / "moved.gturbo";
  std::filesystem::copy(toy.path(), moved, std::filesystem::copy_options::recursive);
  OpenOptions options;
  options.resolve = ResolveToy;
  options.policy = kTrusted;
  EXPECT_THAT(
      ExpectError(ErrorCode::kReceiptInvalid, [&] { ModelDirectory::Open(moved, options); }),
      HasSubstr("moved or copied"));
  options.policy = kFull;
  EXPECT_NO_THROW(ModelDirectory::Open(moved, options));
  EXPECT_TRUE(VerifyDirectory(moved).ok());
  options.policy = kTrusted;
  EXPECT_NO_THROW(ModelDirectory::Open(moved, options));
}

TEST(Receipt, LayerSizesAreCheckedAtOnce) {
  ToyDirectory toy;
  toy.WriteReceipt();
  std::filesystem::resize_file(toy.File("packed_experts/layer_00.bin"), 32767);
  ExpectError(ErrorCode::kReceiptInvalid, [&] { toy.Open(kTrusted); });
  EXPECT_NO_THROW(toy.Open(kFull));
  toy.ReplaceFile("packed_experts/layer_00.bin", std::string(32768 + 16384, 'x'));
  toy.WriteReceipt();
  ExpectError(ErrorCode::kReceiptInvalid, [&] { toy.Open(kTrusted); });
}

TEST(Receipt, TradesAwayTheHashOfLayers) {
  ToyDirectory toy;
  toy.WriteReceipt();
  toy.FlipByte("packed_experts/layer_00.bin", 5);
  EXPECT_NO_THROW(toy.Open(kTrusted).LayerFile(0));
  toy.FlipByte("model_weights.bin", 21000);
  ExpectError(ErrorCode::kChecksumMismatch, [&] { toy.Open(kTrusted); });
}

TEST(DeferredHashing, CatchesAFlippedByte) {
  for (const char* file : {"model_weights.bin", "tokenizer/tokenizer.json"}) {
    ToyDirectory toy;
    EXPECT_NO_THROW(toy.Open(kFull, /*defer=*/true).FinishVerification());
    toy.FlipByte(file, ReadAll(toy.File(file)).size() - 1);
    const ModelDirectory model = toy.Open(kFull, /*defer=*/true);
    ExpectError(ErrorCode::kChecksumMismatch, [&] { model.FinishVerification(); });
    ExpectError(ErrorCode::kChecksumMismatch, [&] { model.FinishVerification(); });
  }
}

TEST(DeferredHashing, SurvivesMovesAndAbandonment) {
  ToyDirectory toy;
  ModelDirectory first = toy.Open(kFull, /*defer=*/true);
  const ModelDirectory second = std::move(first);
  EXPECT_NO_THROW(second.FinishVerification());
  for (int i = 0; i < 20; ++i) toy.Open(kFull, /*defer=*/true);
}

TEST(Layers, ConcurrentFirstUse) {
  ToyDirectory toy;
  const ModelDirectory model = toy.Open();
  std::vector<int> found(8);
  std::vector<std::thread> threads;
  threads.reserve(found.size());
  for (int& fd : found) threads.emplace_back([&] { fd = model.LayerFile(0).get(); });
  for (std::thread& thread : threads) thread.join();
  for (const int fd : found) EXPECT_EQ(fd, found.front());
}

TEST(Verify, CountsAndRenewsTheReceipt) {
  ToyDirectory toy;
  toy.WriteReceipt();
  uint64_t last = 0;
  VerifyOptions options;
  options.on_progress = [&](const VerifyProgress& progress) {
    EXPECT_GT(progress.bytes_done, last);
    EXPECT_LE(progress.bytes_done, progress.bytes_total);
    last = progress.bytes_done;
  };
  const VerifyReport report = VerifyDirectory(toy.path(), options);
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.file_count, 7U);
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(toy.path())) {
    const bool is_receipt = entry.path().filename() == "verified-install.json";
    if (entry.is_regular_file() && !is_receipt) bytes += entry.file_size();
  }
  EXPECT_EQ(report.bytes, bytes);
  EXPECT_EQ(last + ReadAll(toy.File("manifest.json")).size(), bytes);
  EXPECT_TRUE(report.unexpected.empty());
  EXPECT_EQ(report.receipt, toy.File("verified-install.json"));
  const Json receipt = Json::parse(ReadAll(report.receipt));
  EXPECT_EQ(receipt["toolVersion"], "MferenceRepack verify-install");
  EXPECT_EQ(receipt["sourceRepoID"], "toy/source");
  EXPECT_EQ(receipt["sourceRevision"], std::string(40, 'a'));
  EXPECT_EQ(toy.Open(kTrusted).policy(), kTrusted);
}

TEST(Verify, DropsProvenanceThatNoLongerBinds) {
  const std::function<void(Json&)> edits[] = {
      [](Json& r) { r["toolVersion"] = "SomethingElse"; },
      [](Json& r) { r["modelDirectoryPath"] = "/elsewhere"; },
      [](Json& r) { r["files"].erase("manifest.json"); },
  };
  for (const auto& edit : edits) {
    const ToyDirectory toy;
    toy.WriteReceipt();
    toy.EditReceipt(edit);
    EXPECT_TRUE(VerifyDirectory(toy.path()).ok());
    EXPECT_FALSE(Json::parse(ReadAll(toy.File("verified-install.json"))).contains("sourceRepoID"));
  }
}

TEST(Verify, ReportsEveryDamagedFile) {
  ToyDirectory toy;
  toy.FlipByte("packed_experts/layer_00.bin", 0);
  toy.FlipByte("packed_experts/layout.json", 3);
  std::filesystem::remove(toy.File("tokenizer/tokenizer.json"));
  const VerifyReport report = VerifyDirectory(toy.path());
  std::vector<std::string> paths;
  for (const FileProblem& problem : report.problems) paths.push_back(problem.path);
  EXPECT_THAT(paths, ElementsAre("packed_experts/layer_00.bin", "packed_experts/layout.json",
                                 "tokenizer/tokenizer.json"));
  EXPECT_EQ(report.problems.at(0).code, ErrorCode::kChecksumMismatch);
  EXPECT_EQ(report.problems.at(2).code, ErrorCode::kMissingFile);
  EXPECT_FALSE(std::filesystem::exists(toy.File("verified-install.json")));
}

TEST(Verify, ListsUnexpectedEntries) {
  ToyDirectory toy;
  WriteAll(toy.File("notes.txt"), "x");
  WriteAll(toy.File("packed_experts/layer_01.bin"), "x");
  WriteAll(toy.File("other/deep/file"), "x");
  WriteAll(toy.File("tokenizer/anything"), "x");
  WriteAll(toy.File("packed_experts/.DS_Store"), "x");
  const VerifyReport report = VerifyDirectory(toy.path());
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(report.unexpected, ElementsAre("notes.txt", "other/", "packed_experts/layer_01.bin"));
}

TEST(Verify, RefusesWhatWasHashedRightButWrittenWrong) {
  {
    ToyDirectory toy;
    toy.EditLayout([](Json& l) { l["layers"][0]["experts"][0]["offset"] = 7; });
    ExpectError(ErrorCode::kLayoutCorrupt, [&] { VerifyDirectory(toy.path()); });
  }
  {
    ToyDirectory toy;
    toy.ReplaceFile("model_weights.bin", ToyWeights() + "x");
    ExpectError(ErrorCode::kIndexCorrupt, [&] { VerifyDirectory(toy.path()); });
  }
  {
    ToyDirectory toy;
    toy.EditManifest([](Json& m) { m["arch"]["headDim"] = 17; });
    VerifyOptions options;
    EXPECT_TRUE(VerifyDirectory(toy.path(), options).ok());
    options.resolve = ResolveToy;
    ExpectError(ErrorCode::kArchMismatch, [&] { VerifyDirectory(toy.path(), options); });
  }
}

TEST(Verify, StopsWhenTheCallbackThrows) {
  ToyDirectory toy;
  VerifyOptions options;
  options.on_progress = [](const VerifyProgress&) { Fail(ErrorCode::kCancelled, "enough"); };
  ExpectError(ErrorCode::kCancelled, [&] { VerifyDirectory(toy.path(), options); });
  EXPECT_FALSE(std::filesystem::exists(toy.File("verified-install.json")));
}

}  // namespace
}  // namespace mference
