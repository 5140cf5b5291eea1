// What the install tests share: temporary directories, snapshots, whole-tree comparison.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "install/installer.h"

namespace mference::testing {

// Removed with everything in it.
class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// tests/data/goldens/FOLDER/snapshot.
std::filesystem::path GoldenSnapshot(std::string_view folder);
// The folders: gemma4, qwen3_5_moe, deepseek_v4, inkling, maple.
std::vector<std::string> GoldenFolders();

std::string ReadAll(const std::filesystem::path& path);
void WriteAll(const std::filesystem::path& path, std::string_view content);
// Every regular file under `directory`: relative path to content.
std::map<std::string, std::string> ReadTree(const std::filesystem::path& directory);

// A checkpoint of Maple's family with two layers of 64 columns and two experts: 30 KB.
void WriteMicroSnapshot(const std::filesystem::path& directory);

// Options that give the same bytes every time: a fixed clock and no reserve.
InstallOptions TestOptions(const std::filesystem::path& output);

}  // namespace mference::testing
