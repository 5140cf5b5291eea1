// The rule for reduced precision: prefill with activations rounded to 8 bits may be the default
// only as long as it stays this close to FP32 on held-out text that the demo model predicts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/units.h"
#include "engine/golden_model.h"

namespace mference {
namespace {

#ifndef MFERENCE_SANITIZED  // three times 8,192 tokens: minutes under a sanitizer, nothing new to
                            // it

using testing_support::InstalledSnapshot;
using testing_support::LogitsOf;
using testing_support::Recorder;
using testing_support::Reference;

constexpr size_t kWindows = 8;
constexpr size_t kVocab = 8192;
constexpr int kLayers = 12;
constexpr int32_t kChunk = 512;

constexpr double kMaxDivergence = 1e-3;  // mean KL divergence, in nats
constexpr double kMinAgreement = 0.99;   // of the likeliest token
constexpr double kMaxPerplexityChange = 0.002;
constexpr double kMaxLayerError = 0.01;  // rms over rms, after each layer, the same experts chosen

// Shows a later run the experts that an earlier one chose.
class Replay : public Recorder {
 public:
  explicit Replay(const std::map<int32_t, std::vector<int32_t>>& chosen) : chosen_(chosen) {}

  std::span<const int32_t> ForceExperts(int32_t store_layer, int32_t rows, int32_t top_k) override {
    size_t& at = next_[store_layer];
    const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(top_k);
    at += count;
    return std::span(chosen_.at(store_layer)).subspan(at - count, count);
  }

 private:
  const std::map<int32_t, std::vector<int32_t>>& chosen_;
  std::map<int32_t, size_t> next_;
};

std::unique_ptr<LoadedModel> Load(bool precise) {
  LoadOptions options;
  options.path = InstalledSnapshot(MFERENCE_DEMO_SNAPSHOT);
  options.memory_budget_bytes = kGiB;
  options.context = 1100;
  options.chunk_rows = kChunk;
  options.threads = 2;
  options.precise = precise;
  return LoadedModel::Load(options);
}

std::vector<float> Observe(LoadedModel& model, std::span<const int32_t> ids, Recorder& recorder) {
  model.session().Reset();
  model.backend().SetProbe(&recorder);
  std::vector<float> logits = LogitsOf(model, ids, kChunk);
  model.backend().SetProbe(nullptr);
  return logits;
}

// Logarithms of the probabilities of a row of logits.
std::vector<double> LogProbabilities(std::span<const float> logits) {
  std::vector<double> result(logits.begin(), logits.end());
  const double largest = *std::max_element(result.begin(), result.end());
  double sum = 0;
  for (const double value : result) sum += std::exp(value - largest);
  for (double& value : result) value -= largest + std::log(sum);
  return result;
}

struct ErrorSum {
  double error = 0;
  double reference = 0;

  void Add(std::span<const float> got, std::span<const float> expected) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference = static_cast<double>(got[i]) - static_cast<double>(expected[i]);
      error += difference * difference;
      reference += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
    }
  }
  double Relative() const { return std::sqrt(error / reference); }
};

TEST(Precision, RoundedActivationsStayWithinTheRule) {
  const auto precise = Load(true);
  const auto rounded = Load(false);
  const Reference reference(std::filesystem::path(MFERENCE_TEST_DATA) /
                            "demo/reference.safetensors");
  const std::vector<int32_t> all = reference.Ints("trace.ids");
  const size_t length = all.size() / kWindows;

  double divergence = 0;
  double likelihood = 0;
  double rounded_likelihood = 0;
  size_t agreed = 0;
  size_t positions = 0;
  size_t predictions = 0;
  std::vector<ErrorSum> layers(kLayers);
  for (size_t window = 0; window < kWindows; ++window) {
    const std::span<const int32_t> ids = std::span(all).subspan(window * length, length);
    Recorder expected_states;
    const std::vector<float> expected = Observe(*precise, ids, expected_states);
    Recorder unused;
    const std::vector<float> got = Observe(*rounded, ids, unused);
    ASSERT_NE(got, expected) << "the rounded path was not taken";
    for (size_t t = 0; t < length; ++t) {
      const std::span<const float> expected_row = std::span(expected).subspan(t * kVocab, kVocab);
      const std::span<const float> got_row = std::span(got).subspan(t * kVocab, kVocab);
      const std::vector<double> p = LogProbabilities(expected_row);
      const std::vector<double> q = LogProbabilities(got_row);
      for (size_t i = 0; i < kVocab; ++i) divergence += std::exp(p[i]) * (p[i] - q[i]);
      const auto top = [](std::span<const float> row) {
        return std::max_element(row.begin(), row.end()) - row.begin();
      };
      agreed += top(expected_row) == top(got_row) ? 1 : 0;
      ++positions;
      if (t + 1 == length) continue;
      likelihood += p[static_cast<size_t>(ids[t + 1])];
      rounded_likelihood += q[static_cast<size_t>(ids[t + 1])];
      ++predictions;
    }

    Replay same_experts(expected_states.experts);
    Observe(*rounded, ids, same_experts);
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::string name = "layer" + std::to_string(layer) + ".out";
      layers[static_cast<size_t>(layer)].Add(same_experts.tensors.at(name),
                                             expected_states.tensors.at(name));
    }
  }

  const auto count = static_cast<double>(positions);
  const double agreement = static_cast<double>(agreed) / count;
  const double perplexity_change =
      std::exp((likelihood - rounded_likelihood) / static_cast<double>(predictions)) - 1;
  divergence /= count;
  std::printf("divergence %.3g, agreement %.4f, perplexity %+.3f%%, rms after each layer:",
              divergence, agreement, 100 * perplexity_change);
  for (const ErrorSum& layer : layers) std::printf(" %.3f%%", 100 * layer.Relative());
  std::printf("\n");
  EXPECT_LE(divergence, kMaxDivergence);
  EXPECT_GE(agreement, kMinAgreement);
  EXPECT_LE(std::abs(perplexity_change), kMaxPerplexityChange);
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    EXPECT_LE(layers[layer].Relative(), kMaxLayerError) << "layer " << layer;
  }
}

#endif

}  // namespace
}  // namespace mference
