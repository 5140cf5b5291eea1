#include "install/remote_support.h"

#include <gtest/gtest.h>

#include <map>

#include "format/verify_directory.h"
#include "install/local_install.h"
#include "install/test_support.h"

namespace mference::testing {
namespace {

// The payload and sidecars that an undisturbed local install of the same snapshot gives.
std::map<std::string, std::string> WithoutReceipt(const std::filesystem::path& directory) {
  auto tree = ReadTree(directory);
  tree.erase("verified-install.json");
  return tree;
}

const std::map<std::string, std::string>& ReferenceTree(const std::string& folder) {
  static std::map<std::string, std::map<std::string, std::string>> trees;
  auto& tree = trees[folder];
  if (tree.empty()) {
    const TempDirectory temp;
    InstallLocal(GoldenSnapshot(folder), "tiny", SmallRanges(temp / "m.gturbo"));
    tree = WithoutReceipt(temp / "m.gturbo");
  }
  return tree;
}

}  // namespace

RemoteOptions FastOptions(const HubServer& hub) {
  RemoteOptions options;
  options.base_url = hub.base_url();
  options.http.ca_file = hub.ca_file();
  options.retry = {.base = std::chrono::milliseconds(1),
                   .longest = std::chrono::milliseconds(4),
                   .jitter = std::chrono::milliseconds(0)};
  return options;
}

InstallOptions SmallRanges(const std::filesystem::path& output) {
  InstallOptions options = TestOptions(output);
  options.chunk_bytes = kRemoteChunk;
  return options;
}

RemoteTarget Target() {
  return {.repository = HubServer::kRepository, .revision = "main", .name = "tiny"};
}

void ExpectIntact(const std::filesystem::path& directory, const std::string& folder) {
  EXPECT_TRUE(WithoutReceipt(directory) == ReferenceTree(folder)) << "the installs differ";
  VerifyOptions verify;
  verify.write_receipt = false;
  const VerifyReport report = VerifyDirectory(directory, verify);
  EXPECT_TRUE(report.ok());
  EXPECT_TRUE(report.unexpected.empty());
}

}  // namespace mference::testing
