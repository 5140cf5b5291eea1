// The rule for reduced precision: activations rounded to 8 bits in prefill, and to 16 in decode,
// may be the default only as long as they stay this close to FP32 on held-out text that the demo
// model predicts.
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
constexpr size_t kDecoded = 256;  // tokens of each window, one by one

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

std::unique_ptr<LoadedModel> Load(bool precise, int threads = 2, const char* slots = "auto") {
  LoadOptions options;
  options.path = InstalledSnapshot(MFERENCE_DEMO_SNAPSHOT);
  options.memory_budget_bytes = kGiB;
  options.context = 1100;
  options.chunk_rows = kChunk;
  options.threads = threads;
  options.slots = ParseSlotRequest(slots);
  options.precise = precise;
  return LoadedModel::Load(options);
}

std::vector<float> Observe(LoadedModel& model, std::span<const int32_t> ids, int32_t chunk,
                           Recorder& recorder) {
  model.session().Reset();
  model.backend().SetProbe(&recorder);
  std::vector<float> logits = LogitsOf(model, ids, chunk);
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

// What logits say about the next token, with rounding and without.
class Comparison {
 public:
  // Logits of all positions of a window, [ids, vocab].
  void Add(std::span<const float> expected, std::span<const float> got,
           std::span<const int32_t> ids) {
    for (size_t t = 0; t < ids.size(); ++t) {
      const std::span<const float> expected_row = expected.subspan(t * kVocab, kVocab);
      const std::span<const float> got_row = got.subspan(t * kVocab, kVocab);
      const std::vector<double> p = LogProbabilities(expected_row);
      const std::vector<double> q = LogProbabilities(got_row);
      for (size_t i = 0; i < kVocab; ++i) divergence_ += std::exp(p[i]) * (p[i] - q[i]);
      agreed_ += Top(expected_row) == Top(got_row) ? 1 : 0;
      ++positions_;
      if (t + 1 == ids.size()) continue;
      const auto next = static_cast<size_t>(ids[t + 1]);
      likelihood_change_ += q[next] - p[next];
      ++predictions_;
    }
  }

  void ExpectWithinTheRule() const {
    const double divergence = divergence_ / static_cast<double>(positions_);
    const double agreement = static_cast<double>(agreed_) / static_cast<double>(positions_);
    const double perplexity_change =
        std::exp(-likelihood_change_ / static_cast<double>(predictions_)) - 1;
    std::printf("divergence %.3g, agreement %.4f, perplexity %+.3f%%\n", divergence, agreement,
                100 * perplexity_change);
    EXPECT_LE(divergence, kMaxDivergence);
    EXPECT_GE(agreement, kMinAgreement);
    EXPECT_LE(std::abs(perplexity_change), kMaxPerplexityChange);
  }

 private:
  static ptrdiff_t Top(std::span<const float> row) {
    return std::max_element(row.begin(), row.end()) - row.begin();
  }

  double divergence_ = 0;
  double likelihood_change_ = 0;
  size_t agreed_ = 0;
  size_t positions_ = 0;
  size_t predictions_ = 0;
};

class Precision : public testing::Test {
 protected:
  std::span<const int32_t> Window(size_t window) const {
    const size_t length = ids_.size() / kWindows;
    return std::span(ids_).subspan(window * length, length);
  }

  const std::unique_ptr<LoadedModel> precise_ = Load(true);
  const std::unique_ptr<LoadedModel> rounded_ = Load(false);
  const std::vector<int32_t> ids_ =
      Reference(std::filesystem::path(MFERENCE_TEST_DATA) / "demo/reference.safetensors")
          .Ints("trace.ids");
};

TEST_F(Precision, PrefillStaysWithinTheRule) {
  Comparison comparison;
  std::vector<ErrorSum> layers(kLayers);
  for (size_t window = 0; window < kWindows; ++window) {
    const std::span<const int32_t> ids = Window(window);
    Recorder expected_states;
    const std::vector<float> expected = Observe(*precise_, ids, kChunk, expected_states);
    Recorder unused;
    const std::vector<float> got = Observe(*rounded_, ids, kChunk, unused);
    ASSERT_NE(got, expected) << "the rounded path was not taken";
    comparison.Add(expected, got, ids);

    Replay same_experts(expected_states.experts);
    Observe(*rounded_, ids, kChunk, same_experts);
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::string name = "layer" + std::to_string(layer) + ".out";
      layers[static_cast<size_t>(layer)].Add(same_experts.tensors.at(name),
                                             expected_states.tensors.at(name));
    }
  }
  comparison.ExpectWithinTheRule();
  std::printf("rms after each layer:");
  for (const ErrorSum& layer : layers) std::printf(" %.3f%%", 100 * layer.Relative());
  std::printf("\n");
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    EXPECT_LE(layers[layer].Relative(), kMaxLayerError) << "layer " << layer;
  }
}

TEST_F(Precision, DecodeStaysWithinTheRule) {
  Comparison comparison;
  for (size_t window = 0; window < kWindows; ++window) {
    const std::span<const int32_t> ids = Window(window).first(kDecoded);
    Recorder unused;
    const std::vector<float> expected = Observe(*precise_, ids, 1, unused);
    const std::vector<float> got = Observe(*rounded_, ids, 1, unused);
    ASSERT_NE(got, expected) << "the rounded path was not taken";
    comparison.Add(expected, got, ids);
  }
  comparison.ExpectWithinTheRule();
}

TEST_F(Precision, NeitherThreadsNorSlotsChangeRoundedBytes) {
  const std::span<const int32_t> ids = Window(0).first(300);
  const auto run = [&](LoadedModel& model) {
    model.session().Reset();
    std::vector<float> logits = LogitsOf(model, ids.first(270), kChunk);
    const std::vector<float> decoded = LogitsOf(model, ids.subspan(270), 1);
    logits.insert(logits.end(), decoded.begin(), decoded.end());
    return logits;
  };
  const std::vector<float> expected = run(*rounded_);
  for (const int threads : {1, 3}) EXPECT_EQ(run(*Load(false, threads)), expected) << threads;
  for (const char* slots : {"8", "resident"}) {
    EXPECT_EQ(run(*Load(false, 2, slots)), expected) << slots;
  }
}

#endif

}  // namespace
}  // namespace mference
