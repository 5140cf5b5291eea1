// Embedding rows that are read as they are looked up, where the memory plan says so.
#include <gtest/gtest.h>

#include "base/units.h"
#include "engine/golden_model.h"

namespace mference {
namespace {

using testing_support::GoldenPath;
using testing_support::InstalledSnapshot;
using testing_support::LogitsOf;
using testing_support::Reference;

LoadOptions OptionsFor(const char* family) {
  LoadOptions options;
  options.path = InstalledSnapshot(GoldenPath(family) / "snapshot");
  options.memory_budget_bytes = 512 * kMiB;
  options.context = 256;
  options.chunk_rows = 64;
  options.threads = 2;
  return options;
}

TEST(TableInFile, ATightBudgetGivesTheSameBytes) {
  LoadOptions options = OptionsFor("qwen3_5_moe");
  const std::vector<int32_t> tokens =
      Reference(GoldenPath("qwen3_5_moe") / "reference.safetensors").Ints("seq2.tokens");
  const auto ample = LoadedModel::Load(options);
  EXPECT_EQ(ample->plan().tables_in_file_bytes, 0u);
  options.memory_budget_bytes = ample->plan().smallest_budget_bytes;
  const auto tight = LoadedModel::Load(options);
  const ArchConfig& arch = tight->directory().manifest().arch;
  // 4-bit codes and a BF16 scale and bias per 64 columns.
  EXPECT_EQ(tight->plan().tables_in_file_bytes,
            static_cast<uint64_t>(arch.vocab_size * arch.hidden_size / 64 * 36));
  EXPECT_EQ(tight->ledger().reserved_bytes(), tight->plan().planned_bytes);
  for (const int32_t chunk : {1, 64}) {
    ample->session().Reset();
    tight->session().Reset();
    EXPECT_EQ(LogitsOf(*tight, tokens, chunk), LogitsOf(*ample, tokens, chunk)) << chunk;
  }
}

TEST(TableInFile, AnEmbeddingThatIsTheHeadIsHeld) {
  LoadOptions options = OptionsFor("gemma4");
  const auto ample = LoadedModel::Load(options);
  options.memory_budget_bytes = ample->plan().smallest_budget_bytes;
  EXPECT_EQ(LoadedModel::Load(options)->plan().tables_in_file_bytes, 0u);
}

}  // namespace
}  // namespace mference
