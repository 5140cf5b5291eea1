// Every family against its golden: a tiny checkpoint and what an independent implementation
// computes from it (tests/data/goldens; tolerances are those of the goldens' own description).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "backend/cpu/kernels.h"
#include "base/units.h"
#include "engine/golden_model.h"

namespace mference {
namespace {

using testing_support::Compare;
using testing_support::Difference;
using testing_support::GoldenPath;
using testing_support::GreedyContinuation;
using testing_support::InstalledSnapshot;
using testing_support::LogitsOf;
using testing_support::Near;
using testing_support::Recorder;
using testing_support::Reference;

struct Golden {
  const char* family;
  double tolerance;          // of a float32 implementation's logits
  double fp16_kv_tolerance;  // with K and V in FP16, up to the first changed routing decision
  std::vector<const char*> observed;  // per-layer states that the reference holds
};

constexpr int kSequences = 3;

// Intermediate states: ten times the oracle's own float32-float64 difference at its largest (6.0e-4
// at Gemma 4's final norm), the same factor that the logits' tolerance has.
constexpr double kStateTolerance = 6e-3;

// The fewest slots that a layer can run with, and many.
constexpr const char* kSlotRequests[] = {"8", "resident"};

class GoldenTest : public testing::TestWithParam<Golden> {
 protected:
  LoadOptions Options() const {
    LoadOptions options;
    options.path = InstalledSnapshot(GoldenPath(GetParam().family) / "snapshot");
    options.memory_budget_bytes = 512 * kMiB;
    options.context = 256;
    options.chunk_rows = 128;
    options.threads = 2;
    options.precise = true;
    options.kv_type = ElementType::kF32;
    return options;
  }

  const Reference& reference() const {
    static std::map<std::string, std::unique_ptr<Reference>> loaded;
    std::unique_ptr<Reference>& entry = loaded[GetParam().family];
    if (!entry) {
      entry = std::make_unique<Reference>(GoldenPath(GetParam().family) / "reference.safetensors");
    }
    return *entry;
  }
  std::vector<int32_t> Tokens(int sequence) const {
    return reference().Ints("seq" + std::to_string(sequence) + ".tokens");
  }
  std::vector<float> Logits(int sequence) const {
    return reference().Floats("seq" + std::to_string(sequence) + ".logits");
  }
};

TEST_P(GoldenTest, LogitsOfOnePrefill) {
  const auto model = LoadedModel::Load(Options());
  for (int sequence = 0; sequence < kSequences; ++sequence) {
    model->session().Reset();
    const std::vector<float> got = LogitsOf(*model, Tokens(sequence), 128);
    EXPECT_TRUE(Near(got, Logits(sequence), GetParam().tolerance)) << "sequence " << sequence;
    const Difference difference = Compare(got, Logits(sequence));
    RecordProperty("max" + std::to_string(sequence), std::to_string(difference.max));
    RecordProperty("rms" + std::to_string(sequence), std::to_string(difference.rms));
  }
}

TEST_P(GoldenTest, LogitsInChunksOfEverySize) {
  const auto model = LoadedModel::Load(Options());
  for (int sequence = 0; sequence < kSequences; ++sequence) {
    const std::vector<int32_t> tokens = Tokens(sequence);
    const std::vector<float> expected = Logits(sequence);
    for (int32_t chunk = 1; chunk <= static_cast<int32_t>(tokens.size()); ++chunk) {
      model->session().Reset();
      EXPECT_TRUE(Near(LogitsOf(*model, tokens, chunk), expected, GetParam().tolerance))
          << "sequence " << sequence << ", chunk " << chunk;
    }
  }
}

TEST_P(GoldenTest, LogitsWhenDecodingStartsAnywhere) {
  const auto model = LoadedModel::Load(Options());
  const std::vector<int32_t> tokens = Tokens(2);
  const std::vector<float> expected = Logits(2);
  for (const size_t prefilled : {size_t{1}, size_t{15}, size_t{16}, size_t{17}, size_t{60}}) {
    model->session().Reset();
    const std::span<const int32_t> all(tokens);
    std::vector<float> got = LogitsOf(*model, all.first(prefilled), 128);
    const std::vector<float> rest = LogitsOf(*model, all.subspan(prefilled), 1);
    got.insert(got.end(), rest.begin(), rest.end());
    EXPECT_TRUE(Near(got, expected, GetParam().tolerance)) << "prefilled " << prefilled;
  }
}

// State that cannot be rewound comes back whole, wherever it was when the snapshot was taken.
TEST_P(GoldenTest, ASnapshotOfAnyPositionContinuesWithTheSameBytes) {
  const auto model = LoadedModel::Load(Options());
  SequenceState& state = model->session().state();
  const std::vector<int32_t> tokens = Tokens(1);
  const std::span<const int32_t> all(tokens);
  for (size_t position = 0; position < tokens.size(); ++position) {
    model->session().Reset();
    LogitsOf(*model, all.first(position), 128);
    const StateSnapshot snapshot = state.Snapshot(model->ledger());
    const std::vector<float> rest = LogitsOf(*model, all.subspan(position), 128);
    state.Restore(snapshot);
    EXPECT_EQ(state.position(), static_cast<int64_t>(position));
    EXPECT_EQ(LogitsOf(*model, all.subspan(position), 128), rest) << "position " << position;
  }
}

TEST_P(GoldenTest, EveryInstructionSet) {
  for (const char* kernels : {"scalar", "avx2", "avx2-vnni", "avx512", "neon"}) {
    if (cpu::SelectKernels(kernels).kernels == nullptr) continue;
    LoadOptions options = Options();
    options.kernels = kernels;
    const auto model = LoadedModel::Load(options);
    for (const int32_t chunk : {1, 3, 40, 128}) {
      model->session().Reset();
      EXPECT_TRUE(Near(LogitsOf(*model, Tokens(2), chunk), Logits(2), GetParam().tolerance))
          << kernels << ", chunk " << chunk;
    }
  }
}

TEST_P(GoldenTest, ExpertsAndTheirWeights) {
  const auto model = LoadedModel::Load(Options());
  for (int sequence = 0; sequence < kSequences; ++sequence) {
    Recorder recorder;
    model->session().Reset();
    model->backend().SetProbe(&recorder);
    LogitsOf(*model, Tokens(sequence), 128);
    model->backend().SetProbe(nullptr);
    std::vector<int32_t> experts;
    std::vector<float> weights;
    for (const auto& [layer, ids] : recorder.experts) {
      experts.insert(experts.end(), ids.begin(), ids.end());
      const std::vector<float>& values = recorder.weights[layer];
      weights.insert(weights.end(), values.begin(), values.end());
    }
    const std::string prefix = "seq" + std::to_string(sequence) + ".router.";
    EXPECT_EQ(experts, reference().Ints(prefix + "experts")) << "sequence " << sequence;
    // Ten times the oracle's own difference of 8.9e-6.
    EXPECT_TRUE(Near(weights, reference().Floats(prefix + "weights"), 9e-5));
  }
}

TEST_P(GoldenTest, IntermediateStates) {
  const auto model = LoadedModel::Load(Options());
  Recorder recorder;
  model->backend().SetProbe(&recorder);
  LogitsOf(*model, Tokens(1), 128);
  size_t compared = 0;
  for (const auto& [name, values] : recorder.tensors) {
    const size_t dot = name.find('.');
    const std::string state = dot == std::string::npos ? name : name.substr(dot + 1);
    if (std::find(GetParam().observed.begin(), GetParam().observed.end(), state) ==
        GetParam().observed.end()) {
      continue;
    }
    EXPECT_TRUE(Near(values, reference().Floats("seq1." + name), kStateTolerance)) << name;
    ++compared;
  }
  EXPECT_GE(compared, GetParam().observed.size());
}

TEST_P(GoldenTest, GreedyContinuations) {
  const auto model = LoadedModel::Load(Options());
  for (int sequence = 0; sequence < kSequences; ++sequence) {
    const std::vector<int32_t> expected =
        reference().Ints("seq" + std::to_string(sequence) + ".greedy.tokens");
    EXPECT_EQ(GreedyContinuation(*model, Tokens(sequence), expected.size()), expected)
        << "sequence " << sequence;
  }
}

TEST_P(GoldenTest, BytesDoNotDependOnThreadsSlotsOrIo) {
  const std::vector<int32_t> tokens = Tokens(2);
  for (const int32_t chunk : {1, 40, 128}) {
    std::vector<float> first;
    for (const int threads : {1, 2, 4}) {
      for (const char* slots : kSlotRequests) {
        for (const ExpertIo io : {ExpertIo::kBuffered, ExpertIo::kDirect}) {
          LoadOptions options = Options();
          options.threads = threads;
          options.slots = ParseSlotRequest(slots);
          options.expert_io = io;
          const auto model = LoadedModel::Load(options);
          const std::vector<float> got = LogitsOf(*model, tokens, chunk);
          if (first.empty()) first = got;
          EXPECT_EQ(got, first) << "chunk " << chunk << ", " << threads << " threads, " << slots
                                << " slots, io " << static_cast<int>(io);
        }
      }
    }
  }
}

// Any pool of at least top-k slots runs: the smallest budget that the plan accepts gives just that.
TEST_P(GoldenTest, TheSmallestPoolGivesTheSameBytes) {
  LoadOptions options = Options();
  const auto ample = LoadedModel::Load(options);
  const std::vector<float> expected = LogitsOf(*ample, Tokens(2), 40);
  options.memory_budget_bytes = ample->plan().smallest_budget_bytes;
  const auto tight = LoadedModel::Load(options);
  EXPECT_EQ(tight->plan().slots,
            static_cast<int>(tight->directory().manifest().arch.top_k_experts));
  EXPECT_EQ(LogitsOf(*tight, Tokens(2), 40), expected);
}

TEST_P(GoldenTest, Fp16KvStaysWithinItsBound) {
  LoadOptions options = Options();
  options.kv_type = ElementType::kF16;
  const auto model = LoadedModel::Load(options);
  const auto vocab = static_cast<size_t>(model->model().vocab_size());
  for (int sequence = 0; sequence < kSequences; ++sequence) {
    Recorder recorder;
    model->session().Reset();
    model->backend().SetProbe(&recorder);
    const std::vector<float> got = LogitsOf(*model, Tokens(sequence), 128);
    model->backend().SetProbe(nullptr);

    // The first position where some layer chose other experts.
    const std::vector<int32_t> experts =
        reference().Ints("seq" + std::to_string(sequence) + ".router.experts");
    const size_t length = Tokens(sequence).size();
    size_t comparable = length;
    size_t at = 0;
    for (const auto& [layer, ids] : recorder.experts) {
      const size_t top_k = ids.size() / length;
      for (size_t i = 0; i < ids.size(); ++i, ++at) {
        if (ids[i] != experts[at]) comparable = std::min(comparable, i / top_k);
      }
    }
    const std::vector<float> expected = Logits(sequence);
    // The oracle rounds keys before the rotation, a cache holds them rotated: the same error in
    // size, other near-ties. Enough must be left to compare.
    EXPECT_GE(comparable, length / 4) << "sequence " << sequence;
    EXPECT_TRUE(Near(std::span(got).first(comparable * vocab),
                     std::span(expected).first(comparable * vocab), GetParam().fp16_kv_tolerance))
        << "sequence " << sequence;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, GoldenTest,
    testing::Values(Golden{"gemma4",
                           3.4e-3,
                           0.14 * 1.5,
                           {"embed", "attn", "dense_ffn", "routed_ffn", "out", "final_norm"}},
                    Golden{"qwen3_5_moe",
                           4.0e-3,
                           0.0018 * 2,
                           {"embed", "attn", "ffn", "routed_ffn", "out", "final_norm"}}),
    [](const testing::TestParamInfo<Golden>& golden) { return std::string(golden.param.family); });

}  // namespace
}  // namespace mference
