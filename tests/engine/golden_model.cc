#include "engine/golden_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "install/installer.h"
#include "install/local_source.h"

namespace mference::testing_support {
namespace {

// Removed when the process ends.
class ScratchFolder {
 public:
  ScratchFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("mference_models_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

const std::filesystem::path& InstalledSnapshot(const std::filesystem::path& snapshot) {
  static const ScratchFolder scratch;
  static std::map<std::filesystem::path, std::filesystem::path> installed;
  const auto known = installed.find(snapshot);
  if (known != installed.end()) return known->second;
  LocalSource source(snapshot);
  InstallOptions options;
  options.output = scratch.path() / (std::to_string(installed.size()) + ".gturbo");
  Install(source, options);
  return installed[snapshot] = options.output;
}

std::filesystem::path GoldenPath(const std::string& family) {
  return std::filesystem::path(MFERENCE_TEST_DATA) / "goldens" / family;
}

template <typename Value>
std::vector<Value> Reference::Values(const std::string& name) const {
  const std::span<const std::byte> bytes = file_.Bytes(file_.Tensor(name));
  std::vector<Value> values(bytes.size() / sizeof(Value));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
template std::vector<float> Reference::Values(const std::string& name) const;
template std::vector<int32_t> Reference::Values(const std::string& name) const;

Difference Compare(std::span<const float> got, std::span<const float> expected) {
  Difference difference;
  double squares = 0;
  for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    const double d = std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
    squares += d * d;
    if (!(d <= difference.max)) {  // a NaN counts as the worst
      difference.max = d;
      difference.at = i;
    }
  }
  difference.rms = std::sqrt(squares / static_cast<double>(std::max<size_t>(1, got.size())));
  return difference;
}

::testing::AssertionResult Near(std::span<const float> got, std::span<const float> expected,
                                double tolerance) {
  if (got.size() != expected.size()) {
    return ::testing::AssertionFailure()
           << "got " << got.size() << " values, expected " << expected.size();
  }
  const Difference difference = Compare(got, expected);
  if (difference.max <= tolerance) return ::testing::AssertionSuccess();
  ::testing::AssertionResult failure = ::testing::AssertionFailure();
  failure << "largest difference " << difference.max << " (rms " << difference.rms << ") exceeds "
          << tolerance << "\n  index  expected  got  difference";
  const size_t begin = difference.at < 3 ? 0 : difference.at - 3;
  for (size_t i = begin; i < std::min(got.size(), begin + 7); ++i) {
    failure << "\n  " << i << "  " << expected[i] << "  " << got[i] << "  " << got[i] - expected[i];
  }
  return failure;
}

std::vector<float> LogitsOf(LoadedModel& model, std::span<const int32_t> tokens, int32_t chunk) {
  std::vector<float> all;
  const auto vocab = static_cast<size_t>(model.model().vocab_size());
  all.reserve(tokens.size() * vocab);
  while (!tokens.empty()) {
    const size_t rows = std::min(tokens.size(), static_cast<size_t>(chunk));
    model.model().Forward(tokens.first(rows), model.session().state());
    for (size_t row = 0; row < rows;) {
      const size_t count = std::min<size_t>(rows - row, Backend::kMaxLogitsRows);
      const std::span<const float> logits =
          model.model().Logits(static_cast<int32_t>(row), static_cast<int32_t>(count));
      all.insert(all.end(), logits.begin(), logits.end());
      row += count;
    }
    tokens = tokens.subspan(rows);
  }
  return all;
}

std::vector<int32_t> GreedyContinuation(LoadedModel& model, const std::vector<int32_t>& prompt,
                                        size_t count) {
  std::vector<int32_t> tokens;
  std::span<const float> logits = model.session().Prefill(prompt).logits;
  while (true) {
    tokens.push_back(Argmax(logits));
    if (tokens.size() == count) return tokens;
    logits = model.session().Append(tokens.back());
  }
}

void Recorder::OnTensor(const char* name, int32_t layer, std::span<const float> values, int32_t) {
  const std::string key =
      layer < 0 ? std::string(name) : "layer" + std::to_string(layer) + "." + name;
  std::vector<float>& all = tensors[key];
  all.insert(all.end(), values.begin(), values.end());
}

void Recorder::OnRouting(int32_t store_layer, int32_t, std::span<const int32_t> ids,
                         std::span<const float> values) {
  experts[store_layer].insert(experts[store_layer].end(), ids.begin(), ids.end());
  weights[store_layer].insert(weights[store_layer].end(), values.begin(), values.end());
}

}  // namespace mference::testing_support
