// A file without a name whose bytes are known, and a mapping of it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"

namespace mference::testing_support {

constexpr size_t kMiB = size_t{1} << 20;

class PatternFileTest : public testing::Test {
 protected:
  explicit PatternFileTest(size_t bytes) {
    std::vector<std::byte> content(bytes);
    for (size_t at = 0; at < bytes; ++at) content[at] = Expected(at);
    std::string path =
        (std::filesystem::temp_directory_path() / "mference_pattern_XXXXXX").string();
    file_ = FileDescriptor(mkstemp(path.data()));
    unlink(path.c_str());
    WriteExactly(file_, 0, content, "test file");
    mapping_ = MappedFile(file_, "test file");
  }

  static std::byte Expected(size_t at) { return static_cast<std::byte>(at * 31 / 7 % 251); }

  FileDescriptor file_;
  MappedFile mapping_;
};

}  // namespace mference::testing_support
