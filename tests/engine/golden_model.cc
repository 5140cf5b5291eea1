#include "engine/golden_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/file.h"
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

// The header of a safetensors file: a length of 8 bytes, then JSON. Read here without the product's
// reader, which knows fewer types and is under test itself.
Reference::Reference(const std::filesystem::path& file)
    : content_(ReadTextFile(file, uint64_t{1} << 30)) {
  uint64_t length = 0;
  std::memcpy(&length, content_.data(), sizeof(length));
  header_ = Json::parse(std::string_view(content_).substr(8, length));
}

Reference::View Reference::Find(const std::string& name) const {
  const Json& tensor = header_.at(name);
  const size_t data = content_.size() - [this] {
    size_t end = 0;
    for (const auto& [key, value] : header_.items()) {
      if (key != "__metadata__") end = std::max(end, value.at("data_offsets")[1].get<size_t>());
    }
    return end;
  }();
  const size_t begin = tensor.at("data_offsets")[0];
  const size_t end = tensor.at("data_offsets")[1];
  return {tensor.at("dtype"), std::string_view(content_).substr(data + begin, end - begin)};
}

namespace {

template <typename Stored, typename Value>
std::vector<Value> Widen(std::string_view bytes) {
  std::vector<Value> values(bytes.size() / sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = static_cast<Value>(stored);
  }
  return values;
}

}  // namespace

std::vector<float> Reference::Floats(const std::string& name) const {
  const View view = Find(name);
  Check(view.dtype == "F32", "a float tensor");
  return Widen<float, float>(view.bytes);
}

std::vector<int32_t> Reference::Ints(const std::string& name) const {
  const View view = Find(name);
  if (view.dtype == "U8") return Widen<uint8_t, int32_t>(view.bytes);
  if (view.dtype == "U16") return Widen<uint16_t, int32_t>(view.bytes);
  if (view.dtype == "I16") return Widen<int16_t, int32_t>(view.bytes);
  Check(view.dtype == "I32", "an integer tensor");
  return Widen<int32_t, int32_t>(view.bytes);
}

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
