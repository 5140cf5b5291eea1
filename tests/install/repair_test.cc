// Damages installed models in every way a disk can, and repairs them.
#include "install/repair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "install/hub_server.h"
#include "install/local_install.h"
#include "install/local_source.h"
#include "install/registry.h"
#include "install/remote_install.h"
#include "install/test_support.h"

namespace mference {
namespace {

using ::testing::ElementsAre;
using testing::GoldenSnapshot;
using ::testing::HasSubstr;
using testing::ReadAll;
using testing::TempDirectory;
using testing::WriteAll;

constexpr uint64_t kChunk = 65536;

class RepairTest : public ::testing::Test {
 protected:
  RepairTest() {
    InstallOptions options = testing::TestOptions(model_);
    options.chunk_bytes = kChunk;
    InstallLocal(GoldenSnapshot("gemma4"), "tiny", options);
    intact_ = testing::ReadTree(model_);
  }

  RepairResult Repair() {
    LocalSource source(GoldenSnapshot("gemma4"));
    return RepairInstall(model_, source, {});
  }
  void FlipByte(const std::string& file, size_t offset) {
    std::string content = ReadAll(model_ / file);
    content.at(offset) ^= 0x40;
    WriteAll(model_ / file, content);
  }
  void ExpectIntact() {
    auto tree = testing::ReadTree(model_);
    auto intact = intact_;
    tree.erase("verified-install.json");  // has a time of its own
    intact.erase("verified-install.json");
    EXPECT_TRUE(tree == intact);
  }

  TempDirectory temp_;
  std::filesystem::path model_ = temp_ / "m.gturbo";
  std::map<std::string, std::string> intact_;
};

TEST_F(RepairTest, AnIntactModelIsLeftAlone) {
  const RepairResult result = Repair();
  EXPECT_TRUE(result.report.ok());
  EXPECT_TRUE(result.damaged_files.empty());
  EXPECT_EQ(result.fetched_ranges, 0u);
  ExpectIntact();
}

TEST_F(RepairTest, FetchesOnlyTheDamagedRange) {
  FlipByte("packed_experts/layer_03.bin", 5 * 16384 + 100);
  const RepairResult result = Repair();
  EXPECT_THAT(result.damaged_files, ElementsAre("packed_experts/layer_03.bin"));
  EXPECT_EQ(result.fetched_ranges, 1u);
  EXPECT_LE(result.fetched_bytes, kChunk);
  ExpectIntact();
  // The receipt keeps where the model came from.
  EXPECT_EQ(SourceOfInstall(model_)->repository, "local/snapshot");
  EXPECT_THAT(ReadAll(model_ / "verified-install.json"), HasSubstr("local/snapshot"));
}

TEST_F(RepairTest, IndexPaddingSizesSidecarsAndMissingFiles) {
  FlipByte("model_weights.bin", 30);               // the index
  FlipByte("packed_experts/layer_00.bin", 16383);  // padding of the first blob
  std::filesystem::resize_file(model_ / "packed_experts/layer_01.bin", 1000);
  std::filesystem::remove(model_ / "packed_experts/layer_02.bin");
  FlipByte("packed_experts/layout.json", 3);
  FlipByte("tokenizer/config.json", 10);
  std::filesystem::remove(model_ / "tokenizer/tokenizer.json");
  const RepairResult result = Repair();
  EXPECT_EQ(result.damaged_files.size(), 7u);
  ExpectIntact();
}

TEST_F(RepairTest, WithoutARecordWholeFilesAreFetched) {
  std::filesystem::remove(temp_ / "m.gturbo.ranges.json");
  FlipByte("packed_experts/layer_03.bin", 5 * 16384 + 100);
  const RepairResult result = Repair();
  EXPECT_GT(result.fetched_bytes, kChunk);
  ExpectIntact();
}

TEST_F(RepairTest, AnotherSourceIsRefusedAndNothingChanges) {
  FlipByte("packed_experts/layer_03.bin", 5 * 16384 + 100);
  const auto before = testing::ReadTree(model_);
  LocalSource other(GoldenSnapshot("maple"));
  try {
    RepairInstall(model_, other, {});
    FAIL() << "repaired from another model";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInstallState);
  }
  EXPECT_TRUE(testing::ReadTree(model_) == before);
}

TEST(RemoteRepair, AsksTheHubForTheDamagedRangeAlone) {
  testing::HubServer hub(GoldenSnapshot("maple"));
  const TempDirectory temp;
  const std::filesystem::path model = temp / "m.gturbo";
  RemoteOptions remote;
  remote.base_url = hub.base_url();
  remote.http.ca_file = hub.ca_file();
  InstallOptions options = testing::TestOptions(model);
  options.chunk_bytes = kChunk;
  InstallRemote({.repository = testing::HubServer::kRepository, .revision = "main", .name = "m"},
                remote, options);
  const std::string good = ReadAll(model / "packed_experts/layer_05.bin");
  std::string bad = good;
  bad[20'000] ^= 1;
  WriteAll(model / "packed_experts/layer_05.bin", bad);

  const auto origin = SourceOfInstall(model);
  ASSERT_TRUE(origin);
  remote.repository = origin->repository;
  remote.revision = origin->commit;
  const size_t before = hub.ranges_served().size();
  RemoteSource source(remote);
  const RepairResult result = RepairInstall(model, source, {});
  EXPECT_EQ(result.fetched_ranges, 1u);
  EXPECT_EQ(ReadAll(model / "packed_experts/layer_05.bin"), good);
  // Two header reads and the range.
  EXPECT_EQ(hub.ranges_served().size() - before, 3u);
}

TEST(Registry, ListsResolvesAndRemoves) {
  const TempDirectory temp;
  const std::filesystem::path models = temp / "models";
  EXPECT_TRUE(ListModels(models).installed.empty());
  InstallLocal(GoldenSnapshot("maple"), "b", testing::TestOptions(models / "b.gturbo"));
  InstallLocal(GoldenSnapshot("gemma4"), "a", testing::TestOptions(models / "a.gturbo"));
  std::filesystem::create_directory(models / "broken.gturbo");
  const ModelListing listing = ListModels(models);
  ASSERT_EQ(listing.installed.size(), 3u);
  EXPECT_EQ(listing.installed[0].name, "a");
  EXPECT_EQ(listing.installed[0].family, Family::kGemma4);
  EXPECT_FALSE(listing.installed[0].pinned);
  EXPECT_GT(listing.installed[0].bytes, 1'000'000u);
  EXPECT_EQ(listing.installed[1].family, Family::kMaple);
  EXPECT_THAT(listing.installed[2].problem, HasSubstr("did not finish"));

  EXPECT_EQ(ResolveInstalled("a", models), models / "a.gturbo");
  EXPECT_EQ(ResolveInstalled((models / "b.gturbo").string(), models), models / "b.gturbo");
  try {
    ResolveInstalled("gemma4", models);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("mference install gemma4"));
    EXPECT_THAT(error.what(), HasSubstr("a, b"));
  }

  RemoveModel(models / "a.gturbo");
  EXPECT_FALSE(std::filesystem::exists(models / "a.gturbo"));
  EXPECT_FALSE(std::filesystem::exists(models / "a.gturbo.ranges.json"));
  EXPECT_THROW(RemoveModel(models / "a.gturbo"), Error);
  // A directory that is no model is never removed.
  EXPECT_THROW(RemoveModel(models), Error);
  EXPECT_TRUE(std::filesystem::exists(models / "b.gturbo/manifest.json"));
}

}  // namespace
}  // namespace mference
