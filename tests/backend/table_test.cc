// Tables whose rows are read as they are looked up: the same bytes as held ones, and failures that
// surface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/file.h"
#include "base/units.h"

namespace mference {
namespace {

constexpr int32_t kRows = 50;
constexpr int32_t kCols = 128;

// A 4-bit table at some offset of a file, as a model's file has it, and the same bytes in memory.
class TableTest : public testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(3);
    for (std::byte& byte : content_) byte = static_cast<std::byte>(random() & 0x3F);
    std::string pattern = (std::filesystem::temp_directory_path() / "mference-table-XXXXXX");
    file_ = FileDescriptor(mkstemp(pattern.data()));
    ASSERT_TRUE(file_.valid());
    unlink(pattern.c_str());
    WriteExactly(file_, kOffset, content_, "table");
  }

  MatrixWeights Weights() const {
    return {.name = "embedding",
            .encoding = WeightEncoding::kAffine,
            .rows = kRows,
            .cols = kCols,
            .bits = 4,
            .group = 64,
            .data = content_.data(),
            .scales = content_.data() + kCodes,
            .biases = content_.data() + kCodes + kScales,
            .file = &file_,
            .data_offset = kOffset,
            .scales_offset = kOffset + kCodes,
            .biases_offset = kOffset + kCodes + kScales};
  }

  struct Probe : BackendProbe {
    void OnTensor(const char*, int32_t, std::span<const float> values, int32_t) override {
      got.assign(values.begin(), values.end());
    }
    void OnRouting(int32_t, int32_t, std::span<const int32_t>, std::span<const float>) override {}
    std::vector<float> got;
  };

  // The rows of `tokens`.
  std::vector<float> Look(const std::vector<int32_t>& tokens, bool from_file) {
    MemoryLedger ledger(64 * kMiB);
    cpu::CpuBackend backend(*cpu::SelectKernels("auto").kernels, 2, false);
    const Matrix table = backend.LoadTable(Weights());
    const std::vector<FileRange> ranges = backend.TableRanges();
    EXPECT_EQ(ranges.size(), 3u);
    EXPECT_EQ(ranges.front().offset, kOffset);
    EXPECT_EQ(ranges.back().offset + ranges.back().bytes, kOffset + content_.size());
    const Tensor out = backend.NewTensor(kCols, ElementType::kF32);
    backend.ReserveScratch(static_cast<int32_t>(tokens.size()), ledger);
    if (from_file) backend.ReadTablesFromFile();
    StateLayout layout;
    layout.AddAppend("rows", 8);
    SequenceState state(layout, 64, ledger);
    Probe probe;
    backend.SetProbe(&probe);
    backend.BeginStep({.first_position = 0, .rows = static_cast<int32_t>(tokens.size())}, tokens,
                      state);
    backend.Embed(table, 2.0f, out);
    backend.Observe("embed", -1, out);
    backend.EndStep();
    EXPECT_EQ(state.position(), static_cast<int64_t>(tokens.size()));
    return probe.got;
  }

  static constexpr uint64_t kOffset = 777;
  static constexpr size_t kCodes = size_t{kRows} * kCols / 2;
  static constexpr size_t kScales = size_t{kRows} * kCols / 64 * 2;
  std::vector<std::byte> content_ = std::vector<std::byte>(kCodes + 2 * kScales);
  FileDescriptor file_;
};

TEST_F(TableTest, RowsReadFromTheFileAreTheSame) {
  const std::vector<int32_t> tokens = {0, 49, 7, 7, 31, 1};
  const std::vector<float> held = Look(tokens, false);
  ASSERT_EQ(held.size(), tokens.size() * kCols);
  EXPECT_EQ(Look(tokens, true), held);
  EXPECT_EQ(Look({49}, true), std::vector<float>(held.begin() + kCols, held.begin() + 2 * kCols));
}

TEST_F(TableTest, AFailedReadFailsTheStep) {
  ASSERT_EQ(ftruncate(file_.get(), static_cast<off_t>(kOffset + kCodes + kScales + 5)), 0);
  try {
    Look({0, 30}, true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), testing::HasSubstr("row 30 of embedding"));
  }
  EXPECT_EQ(Look({0}, true).size(), size_t{kCols});
}

}  // namespace
}  // namespace mference
