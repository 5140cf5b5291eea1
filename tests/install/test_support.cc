#include "install/test_support.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace mference::testing {

TempDirectory::TempDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "mference-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = std::filesystem::canonical(name);
}

TempDirectory::~TempDirectory() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

std::filesystem::path GoldenSnapshot(std::string_view folder) {
  return std::filesystem::path(MFERENCE_TEST_DATA) / "goldens" / folder / "snapshot";
}

std::vector<std::string> GoldenFolders() {
  return {"gemma4", "qwen3_5_moe", "deepseek_v4", "inkling", "maple"};
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void WriteAll(const std::filesystem::path& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

std::map<std::string, std::string> ReadTree(const std::filesystem::path& directory) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    tree.emplace(entry.path().lexically_relative(directory).string(), ReadAll(entry.path()));
  }
  return tree;
}

InstallOptions TestOptions(const std::filesystem::path& output) {
  InstallOptions options;
  options.output = output;
  options.reserve_bytes = 0;
  options.now = [] { return std::time_t{1'786'702'000}; };
  return options;
}

}  // namespace mference::testing
