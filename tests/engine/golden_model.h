// Models of the tests, installed once per process, and reference tensors to compare with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/loaded_model.h"

namespace mference::testing_support {

// The .gturbo directory made from a source snapshot, in a scratch folder that goes with the
// process.
const std::filesystem::path& InstalledSnapshot(const std::filesystem::path& snapshot);

// tests/data/goldens/FAMILY.
std::filesystem::path GoldenPath(const std::string& family);

// Reference tensors of one golden: float or integer values of any width, copied out.
class Reference {
 public:
  explicit Reference(const std::filesystem::path& file);

  std::vector<float> Floats(const std::string& name) const;
  std::vector<int32_t> Ints(const std::string& name) const;

 private:
  struct View {
    std::string dtype;
    std::string_view bytes;
  };
  View Find(const std::string& name) const;

  std::string content_;
  Json header_;
};

struct Difference {
  double max = 0;
  double rms = 0;
  size_t at = 0;  // where the largest is
};
Difference Compare(std::span<const float> got, std::span<const float> expected);

// Checks every element against `tolerance` and prints the worst and its neighbours on failure.
::testing::AssertionResult Near(std::span<const float> got, std::span<const float> expected,
                                double tolerance);

// Feeds `tokens` in steps of at most `chunk` rows from where the state stands; logits of all rows,
// [tokens, vocab].
std::vector<float> LogitsOf(LoadedModel& model, std::span<const int32_t> tokens, int32_t chunk);

// Greedy continuation of `prompt`, `count` tokens, without stop tokens.
std::vector<int32_t> GreedyContinuation(LoadedModel& model, const std::vector<int32_t>& prompt,
                                        size_t count);

// Collects everything a probe is shown.
class Recorder : public BackendProbe {
 public:
  void OnTensor(const char* name, int32_t layer, std::span<const float> values,
                int32_t cols) override;
  void OnRouting(int32_t store_layer, int32_t top_k, std::span<const int32_t> experts,
                 std::span<const float> weights) override;

  // By "embed" or "layer3.attn"; rows of later steps follow those of earlier ones.
  std::map<std::string, std::vector<float>> tensors;
  std::map<int32_t, std::vector<int32_t>> experts;  // by layer, [rows, top_k]
  std::map<int32_t, std::vector<float>> weights;
};

}  // namespace mference::testing_support
