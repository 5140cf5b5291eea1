// The bundled demo model against its float32 reference (tests/data/demo): a trained model with real
// routing, longer than its window, so what the tiny goldens cannot show shows here.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "engine/golden_model.h"
#include "engine/trace_recorder.h"
#include "experts/replay.h"

namespace mference {
namespace {

using testing_support::GreedyContinuation;
using testing_support::InstalledSnapshot;
using testing_support::LogitsOf;
using testing_support::Near;
using testing_support::Recorder;
using testing_support::Reference;

constexpr size_t kVocab = 8192;
constexpr size_t kLayers = 12;
constexpr size_t kTopK = 4;
constexpr size_t kHidden = 384;

class DemoTest : public testing::Test {
 protected:
  static LoadOptions Options(ElementType kv_type = ElementType::kF32) {
    LoadOptions options;
    options.path = InstalledSnapshot(MFERENCE_DEMO_SNAPSHOT);
    options.memory_budget_bytes = kGiB;
    options.context = 1100;
    options.threads = 2;
    options.precise = true;
    options.kv_type = kv_type;
    return options;
  }
  static std::unique_ptr<LoadedModel> Load(ElementType kv_type = ElementType::kF32) {
    return LoadedModel::Load(Options(kv_type));
  }

  const Reference reference_{std::filesystem::path(MFERENCE_TEST_DATA) /
                             "demo/reference.safetensors"};
};

// The NumPy runner agrees with the reference to 2.6e-5 on these; allow four times as much.
TEST_F(DemoTest, LogitsOfProseAndChat) {
  const auto model = Load();
  for (const char* name : {"plain", "chat"}) {
    const std::string prefix = name;
    model->session().Reset();
    const std::vector<float> all = LogitsOf(*model, reference_.Ints(prefix + ".ids"), 128);
    std::vector<float> got;
    for (const int32_t position : reference_.Ints(prefix + ".positions")) {
      const auto at = all.begin() + position * static_cast<ptrdiff_t>(kVocab);
      got.insert(got.end(), at, at + kVocab);
    }
    EXPECT_TRUE(Near(got, reference_.Floats(prefix + ".logits"), 1e-4)) << name;
  }
}

TEST_F(DemoTest, HiddenStatesAndExperts) {
  const auto model = Load();
  for (const char* name : {"plain", "chat"}) {
    const std::string prefix = name;
    Recorder recorder;
    model->session().Reset();
    model->backend().SetProbe(&recorder);
    const std::vector<int32_t> ids = reference_.Ints(prefix + ".ids");
    LogitsOf(*model, ids, 128);
    model->backend().SetProbe(nullptr);

    // After the embedding and after each layer, at the first, middle and last position.
    std::vector<float> hidden;
    for (int layer = -1; layer < static_cast<int>(kLayers); ++layer) {
      const std::vector<float>& rows =
          layer < 0 ? recorder.tensors["embed"]
                    : recorder.tensors["layer" + std::to_string(layer) + ".out"];
      for (const size_t position : {size_t{0}, ids.size() / 2, ids.size() - 1}) {
        const auto at = rows.begin() + static_cast<ptrdiff_t>(position * kHidden);
        hidden.insert(hidden.end(), at, at + kHidden);
      }
    }
    EXPECT_TRUE(Near(hidden, reference_.Floats(prefix + ".hidden"), 2e-4)) << name;

    // The reference lists experts by weight, the probe by id.
    const std::vector<int32_t> expected = reference_.Ints(prefix + ".experts");
    for (size_t layer = 0; layer < kLayers; ++layer) {
      for (size_t token = 0; token < ids.size(); ++token) {
        const auto from =
            expected.begin() + static_cast<ptrdiff_t>((layer * ids.size() + token) * kTopK);
        std::vector<int32_t> chosen(from, from + kTopK);
        std::sort(chosen.begin(), chosen.end());
        const auto got = recorder.experts[static_cast<int32_t>(layer)].begin() +
                         static_cast<ptrdiff_t>(token * kTopK);
        EXPECT_TRUE(std::equal(chosen.begin(), chosen.end(), got))
            << name << ", layer " << layer << ", token " << token;
      }
    }
  }
}

TEST_F(DemoTest, GreedyContinuationsUpToANearTie) {
  const auto model = Load();
  for (const char* name : {"plain", "chat"}) {
    const std::string prefix = name;
    std::vector<int32_t> expected = reference_.Ints(prefix + ".greedy");
    const std::vector<float> margins = reference_.Floats(prefix + ".greedy_margin");
    const auto near_tie =
        std::find_if(margins.begin(), margins.end(), [](float margin) { return margin < 1e-3f; });
    expected.resize(static_cast<size_t>(near_tie - margins.begin()));
    ASSERT_FALSE(expected.empty());
    EXPECT_EQ(GreedyContinuation(*model, reference_.Ints(prefix + ".ids"), expected.size()),
              expected)
        << name;
  }
}

#ifndef MFERENCE_SANITIZED  // 8,192 tokens: minutes under a sanitizer, and nothing new to it

// Perplexity of each held-out window as the NumPy runner computes it from the same files.
constexpr double kWindowPerplexity[] = {41.1194, 24.3923, 58.4743, 39.6478,
                                        21.7860, 35.1376, 34.0519, 25.5928};
constexpr double kPerplexity = 33.4069;

TEST_F(DemoTest, PerplexityAndRoutingOfTheHeldOutWindows) {
  const auto model = Load();
  const std::vector<int32_t> all = reference_.Ints("trace.ids");
  const std::vector<int32_t> trace = reference_.Ints("trace.experts");
  const size_t length = all.size() / 8;
  double total = 0;
  size_t wrong_sets = 0;
  for (size_t window = 0; window < 8; ++window) {
    const std::span<const int32_t> ids = std::span(all).subspan(window * length, length);
    Recorder recorder;
    model->session().Reset();
    model->backend().SetProbe(&recorder);
    const std::vector<float> logits = LogitsOf(*model, ids, 512);
    model->backend().SetProbe(nullptr);
    double sum = 0;
    for (size_t t = 0; t + 1 < length; ++t) {
      const std::span<const float> row = std::span(logits).subspan(t * kVocab, kVocab);
      double normaliser = 0;
      for (const float value : row) normaliser += std::exp(static_cast<double>(value));
      sum += std::log(normaliser) - static_cast<double>(row[static_cast<size_t>(ids[t + 1])]);
    }
    total += sum;
    const double perplexity = std::exp(sum / static_cast<double>(length - 1));
    EXPECT_NEAR(perplexity, kWindowPerplexity[window], 1e-3 * kWindowPerplexity[window]) << window;

    for (size_t layer = 0; layer < kLayers; ++layer) {
      for (size_t token = 0; token < length; ++token) {
        const auto from =
            trace.begin() + static_cast<ptrdiff_t>(((layer * 8 + window) * length + token) * kTopK);
        std::vector<int32_t> chosen(from, from + kTopK);
        std::sort(chosen.begin(), chosen.end());
        const auto got = recorder.experts[static_cast<int32_t>(layer)].begin() +
                         static_cast<ptrdiff_t>(token * kTopK);
        if (!std::equal(chosen.begin(), chosen.end(), got)) ++wrong_sets;
      }
    }
  }
  const double overall = std::exp(total / static_cast<double>(8 * (length - 1)));
  EXPECT_NEAR(overall, kPerplexity, 1e-3 * kPerplexity);
  RecordProperty("perplexity", std::to_string(overall));
  RecordProperty("wrong_sets", std::to_string(wrong_sets));
  // Of 98,304 choices, those with a margin below 1e-4 may fall the other way: some 0.1 %.
  EXPECT_LE(wrong_sets, 98u);
}

// The committed trace is the reference's routing, but for near ties; and on it the default policy
// of the expert cache is the best of those there are.
TEST_F(DemoTest, TheCommittedTraceIsTheReferencesRouting) {
  const RoutingTrace trace =
      ReadTrace(std::filesystem::path(MFERENCE_TEST_DATA) / "demo/routing.trace");
  ASSERT_EQ(trace.tokens(), 8 * 1024);
  ASSERT_EQ(trace.routed_layers.size(), kLayers);
  const std::vector<int32_t> expected = reference_.Ints("trace.experts");
  size_t at = 0;
  size_t token = 0;
  size_t wrong_sets = 0;
  for (const int32_t rows : trace.rows) {
    for (size_t layer = 0; layer < kLayers; ++layer) {
      for (size_t row = 0; row < static_cast<size_t>(rows); ++row, at += kTopK) {
        const auto from =
            expected.begin() + static_cast<ptrdiff_t>((layer * 8192 + token + row) * kTopK);
        std::vector<int32_t> chosen(from, from + kTopK);
        std::sort(chosen.begin(), chosen.end());
        const auto got = trace.experts.begin() + static_cast<ptrdiff_t>(at);
        if (!std::equal(chosen.begin(), chosen.end(), got)) ++wrong_sets;
      }
    }
    token += static_cast<size_t>(rows);
  }
  EXPECT_LE(wrong_sets, 98u);
}

TEST_F(DemoTest, TheDefaultPolicyReadsLeastOnRealText) {
  const RoutingTrace trace =
      ReadTrace(std::filesystem::path(MFERENCE_TEST_DATA) / "demo/routing.trace");
  for (const int slots : {24, 96}) {
    const ReplayOptions options{.slots = slots, .token_by_token = true};
    const double chosen = Replay(trace, LoadOptions{}.cache_policy, options).hit_rate();
    const double lfu = Replay(trace, CachePolicyKind::kLfu, options).hit_rate();
    EXPECT_GE(chosen, lfu + 0.04) << slots;
    EXPECT_LT(chosen, ReplayBelady(trace, options).hit_rate()) << slots;
  }
}

// Steps too narrow for the store to read all experts ahead, then tokens one by one.
TEST_F(DemoTest, TheEngineReadsWhatAReplayOfItsRoutingReads) {
  constexpr int kSlotsPerLayer = 8;
  LoadOptions options = Options();
  options.slots = {.kind = SlotRequest::Kind::kPerLayer, .per_layer = kSlotsPerLayer};
  options.expert_prefetch = 0;
  const auto model = LoadedModel::Load(options);
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("demo_routing_" + std::to_string(getpid()) + ".trace");
  TraceRecorder recorder(path, *model);
  const std::vector<int32_t> ids = reference_.Ints("plain.ids");
  LogitsOf(*model, std::span(ids).first(64), 16);
  LogitsOf(*model, std::span(ids).subspan(64, 32), 1);
  recorder.Write();
  const ReplayResult replay = Replay(ReadTrace(path), options.cache_policy,
                                     {.slots = kSlotsPerLayer * static_cast<int>(kLayers)});
  std::filesystem::remove(path);
  const ExpertCounters counters = model->experts().counters();
  EXPECT_EQ(replay.asked, counters.hits + counters.misses);
  EXPECT_EQ(replay.hits, counters.hits);
  EXPECT_EQ(replay.blobs_read, counters.reads);
  EXPECT_GT(counters.hits, 0u);
}

#endif

}  // namespace
}  // namespace mference
