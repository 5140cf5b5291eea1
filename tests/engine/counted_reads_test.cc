// What a prompt and its continuation read from the expert files, counted. Counts depend on neither
// the machine nor its load: a change that makes the engine read more than its policy needs fails
// here.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/units.h"
#include "engine/golden_model.h"
#include "experts/fault_reader.h"
#include "experts/replay.h"
#include "experts/routing_trace.h"

namespace mference {
namespace {

using testing_support::InstalledSnapshot;
using testing_support::Reference;

constexpr size_t kPromptTokens = 128;
constexpr size_t kDecodedTokens = 48;

// A disk without delays or faults that remembers what was read.
class RecordingReader : public FaultReader {
 public:
  using Reads = std::map<std::pair<int, uint64_t>, int>;  // by file and offset

  explicit RecordingReader(Reads& reads) : FaultReader({}), reads_(reads) {}
  void Submit(std::span<const BlobRead> reads) override {
    for (const BlobRead& read : reads) ++reads_[{read.fd, read.offset}];
    FaultReader::Submit(reads);
  }

 private:
  Reads& reads_;
};

// What every layer chose.
class RoutingProbe : public BackendProbe {
 public:
  explicit RoutingProbe(const ExpertFiles& files)
      : builder_(files.layers, files.experts_per_layer, files.blob_bytes) {}
  void OnTensor(const char*, int32_t, std::span<const float>, int32_t) override {}
  void OnRouting(int32_t store_layer, int32_t top_k, std::span<const int32_t> experts,
                 std::span<const float> weights) override {
    builder_.Add(store_layer, top_k, experts, weights);
  }
  RoutingTrace Trace() { return builder_.Finish(); }

 private:
  TraceBuilder builder_;
};

// The demo model continues a text of its reference's.
class CountedReadsTest : public testing::Test {
 protected:
  struct Counted {
    ExpertCounters prefill;
    ExpertCounters decode;
    ReplayResult needed;  // by the same policy, for the same routing, without guesses; all of it
    ReplayResult needed_to_decode;
    int most_reads_of_a_blob = 0;  // within one chunk of the prompt
    uint64_t chosen = 0;           // distinct experts of every layer and chunk of the prompt
  };

  Counted Run(int slots_per_layer, int32_t chunk_rows, int expert_prefetch) {
    RecordingReader::Reads reads;
    LoadOptions options;
    options.path = InstalledSnapshot(MFERENCE_DEMO_SNAPSHOT);
    options.memory_budget_bytes = kGiB;
    options.context = kPromptTokens + kDecodedTokens + 1;
    options.threads = 2;
    options.chunk_rows = chunk_rows;
    options.slots = {.kind = SlotRequest::Kind::kPerLayer, .per_layer = slots_per_layer};
    options.expert_prefetch = expert_prefetch;
    options.make_reader = [&reads](std::span<std::byte>, uint64_t) {
      return std::make_unique<RecordingReader>(reads);
    };
    const auto model = LoadedModel::Load(options);
    RoutingProbe probe(model->experts().files());
    model->backend().SetProbe(&probe);

    const Reference reference{std::filesystem::path(MFERENCE_TEST_DATA) /
                              "demo/reference.safetensors"};
    std::vector<int32_t> prompt = reference.Ints("plain.ids");
    EXPECT_GE(prompt.size(), kPromptTokens);
    prompt.resize(kPromptTokens);
    Counted counted;
    std::span<const float> logits = model->session()
                                        .Prefill(prompt, nullptr,
                                                 [&](int64_t, int64_t) {
                                                   for (const auto& [blob, times] : reads) {
                                                     counted.most_reads_of_a_blob = std::max(
                                                         counted.most_reads_of_a_blob, times);
                                                   }
                                                   reads.clear();
                                                 })
                                        .logits;
    counted.prefill = model->experts().counters();
    model->ResetCounters();
    for (size_t i = 0; i < kDecodedTokens; ++i) logits = model->session().Append(Argmax(logits));
    counted.decode = model->experts().counters();
    model->backend().SetProbe(nullptr);

    const RoutingTrace trace = probe.Trace();
    ReplayOptions replay{.slots = model->plan().slots};
    counted.needed = Replay(trace, options.cache_policy, replay);
    replay.warm_up_tokens = kPromptTokens;
    counted.needed_to_decode = Replay(trace, options.cache_policy, replay);
    counted.chosen = counted.needed.asked - counted.needed_to_decode.asked;
    EXPECT_EQ(counted.decode.bytes_read, counted.decode.reads * trace.blob_bytes);
    return counted;
  }
};

TEST_F(CountedReadsTest, WithoutGuessesAreThoseOfThePolicy) {
  for (const int slots : {2, 4, 12}) {
    // Chunks so narrow that no layer is sure to need all its experts.
    const Counted counted = Run(slots, /*chunk_rows=*/16, /*expert_prefetch=*/0);
    EXPECT_EQ(counted.prefill.reads + counted.decode.reads, counted.needed.blobs_read) << slots;
    EXPECT_EQ(counted.decode.reads, counted.needed_to_decode.blobs_read) << slots;
    EXPECT_LT(counted.decode.reads, counted.needed_to_decode.asked) << slots;
  }
}

// A guess that is wrong costs its own read and perhaps one of what it displaced. Of 2, 4 and 12
// slots per layer 6, 9 and 16 % of the guesses are: the more are cached, the harder are the rest.
TEST_F(CountedReadsTest, GuessesAddTheirBoundedShare) {
  for (const int slots : {2, 4, 12}) {
    const Counted counted = Run(slots, /*chunk_rows=*/16, /*expert_prefetch=*/2);
    const uint64_t wrong = counted.decode.prefetched - counted.decode.confirmed;
    EXPECT_GT(counted.decode.confirmed, 0u) << slots;
    EXPECT_LE(counted.decode.reads, counted.needed_to_decode.blobs_read + 2 * wrong) << slots;
    EXPECT_LE(wrong * 4, counted.decode.prefetched) << slots;
  }
}

// Wide chunks read all experts of a layer ahead; one in 20 at most is then not chosen.
TEST_F(CountedReadsTest, AChunkReadsAnExpertAtMostOnce) {
  for (const int slots : {2, 12}) {
    for (const int32_t chunk_rows : {16, 64, 128}) {
      const Counted counted = Run(slots, chunk_rows, /*expert_prefetch=*/2);
      EXPECT_EQ(counted.most_reads_of_a_blob, 1) << slots << " slots, chunks of " << chunk_rows;
      const uint64_t ahead = chunk_rows < 64 ? 0 : counted.chosen / 20;
      EXPECT_LE(counted.prefill.reads, counted.chosen + ahead) << slots << ", " << chunk_rows;
    }
  }
}

}  // namespace
}  // namespace mference
