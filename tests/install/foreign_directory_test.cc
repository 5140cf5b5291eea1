// A name on a command line can be anybody's folder: what is no model is neither replaced nor
// removed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "install/local_install.h"
#include "install/model_tree.h"
#include "install/registry.h"
#include "install/test_support.h"

namespace mference {
namespace {

using testing::GoldenSnapshot;
using ::testing::HasSubstr;
using testing::ReadTree;
using testing::TempDirectory;
using testing::TestOptions;
using testing::WriteAll;

class ForeignDirectory : public ::testing::Test {
 protected:
  void ExpectRefused(const std::function<void()>& action, std::string_view why) {
    const auto before = Files();
    try {
      action();
      FAIL() << "went through";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string(why)));
    }
    EXPECT_EQ(Files(), before);
  }

  // Without the locks, which stay.
  std::map<std::string, std::string> Files() const {
    auto files = ReadTree(temp_.path());
    std::erase_if(files, [](const auto& file) { return file.first.ends_with(".install.lock"); });
    return files;
  }

  void InstallOver(const std::filesystem::path& output) {
    InstallOptions options = TestOptions(output);
    options.overwrite = true;
    InstallLocal(GoldenSnapshot("gemma4"), "tiny", options);
  }

  TempDirectory temp_;
};

TEST_F(ForeignDirectory, IsNotOverwritten) {
  for (const char* name : {"documents", "documents.gturbo"}) {
    std::filesystem::create_directory(temp_ / name);
    WriteAll(temp_ / name / "letter.txt", "dear");
    ExpectRefused([&] { InstallOver(temp_ / name); }, "is not a model");
  }
}

TEST_F(ForeignDirectory, IsNotRemoved) {
  std::filesystem::create_directory(temp_ / "extension");
  WriteAll(temp_ / "extension" / "manifest.json", R"({"manifest_version": 3, "name": "x"})");
  ExpectRefused([&] { RemoveModel(temp_ / "extension"); }, "nothing was removed");
  std::filesystem::create_directory(temp_ / "notes.gturbo");
  WriteAll(temp_ / "notes.gturbo" / "letter.txt", "dear");
  ExpectRefused([&] { RemoveModel(temp_ / "notes.gturbo"); }, "nothing was removed");
}

TEST_F(ForeignDirectory, IsLeftAloneBesideAModel) {
  std::filesystem::create_directory(temp_ / "m.gturbo.replaced");
  WriteAll(temp_ / "m.gturbo.replaced" / "letter.txt", "dear");
  InstallOver(temp_ / "m.gturbo");
  RemoveModel(temp_ / "m.gturbo");
  EXPECT_EQ(testing::ReadAll(temp_ / "m.gturbo.replaced" / "letter.txt"), "dear");
  EXPECT_FALSE(std::filesystem::exists(temp_ / "m.gturbo"));
}

// Damage must not keep anybody from replacing or removing a model.
TEST_F(ForeignDirectory, ADamagedModelIsStillAModel) {
  InstallOver(temp_ / "m.gturbo");
  WriteAll(temp_ / "m.gturbo" / "manifest.json", "{");
  EXPECT_TRUE(LooksLikeModel(PosixFiles(), temp_ / "m.gturbo"));
  InstallOver(temp_ / "m.gturbo");
  std::filesystem::remove(temp_ / "m.gturbo" / "manifest.json");
  RemoveModel(temp_ / "m.gturbo");
  EXPECT_FALSE(std::filesystem::exists(temp_ / "m.gturbo"));
}

}  // namespace
}  // namespace mference
