#include "experts/replay.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "experts/expert_store.h"
#include "experts/lab_policies.h"

namespace mference {
namespace {

// Steps of more rows than this take their experts in ascending order, as the backend's do.
constexpr int32_t kMaxRowsInAnyOrder = 4;

// Slots without bytes.
class NoMemory : public SlotMemory {
 public:
  explicit NoMemory(int slots) : slots_(slots) {}
  int slots() const override { return slots_; }
  size_t slot_bytes() const override { return 1; }
  std::byte* ReadTarget(int /*slot*/) override { return &byte_; }
  const std::byte* Commit(int /*slot*/) override { return &byte_; }
  std::span<std::byte> ReadRegion() override { return {&byte_, 1}; }

 private:
  int slots_;
  std::byte byte_{};
};

// A disk that takes no time.
class InstantReader : public BlobReader {
 public:
  int capacity() const override { return static_cast<int>(landed_.size()); }
  void Submit(std::span<const BlobRead> reads) override {
    for (const BlobRead& read : reads) {
      landed_.at(count_++) = {.id = read.id, .error = 0, .bytes_read = read.bytes};
    }
  }
  size_t Poll(std::span<ReadCompletion> completions) override {
    const size_t count = std::min(count_, completions.size());
    std::copy_n(landed_.begin(), count, completions.begin());
    std::copy(landed_.begin() + static_cast<ptrdiff_t>(count),
              landed_.begin() + static_cast<ptrdiff_t>(count_), landed_.begin());
    count_ -= count;
    return count;
  }
  size_t Wait(std::span<ReadCompletion> completions) override { return Poll(completions); }
  std::string Describe() const override { return "instant"; }

 private:
  std::array<ReadCompletion, 64> landed_;
  size_t count_ = 0;
};

// One layer's turn in one step, or in one token of it.
struct Request : BeladyPolicy::Request {
  int64_t token = 0;  // the first token it serves
  int32_t rows = 0;
  std::vector<int32_t> choosing;  // rows that chose each expert
};

std::vector<Request> RequestsOf(const RoutingTrace& trace, bool token_by_token) {
  std::vector<Request> requests;
  size_t step_begin = 0;
  int64_t token = 0;
  const auto top_k = static_cast<size_t>(trace.top_k);
  std::vector<int32_t> choosing(static_cast<size_t>(trace.experts_per_layer));
  for (const int32_t step_rows : trace.rows) {
    const auto rows = static_cast<size_t>(step_rows);
    const size_t width = token_by_token ? 1 : rows;
    for (size_t row = 0; row < rows; row += width) {
      for (size_t layer = 0; layer < trace.routed_layers.size(); ++layer) {
        const auto begin = trace.experts.begin() +
                           static_cast<ptrdiff_t>(step_begin + (layer * rows + row) * top_k);
        Request request;
        request.layer = trace.routed_layers[layer];
        std::fill(choosing.begin(), choosing.end(), 0);
        std::for_each(begin, begin + static_cast<ptrdiff_t>(width * top_k),
                      [&choosing](uint16_t expert) { ++choosing[expert]; });
        for (size_t expert = 0; expert < choosing.size(); ++expert) {
          if (choosing[expert] == 0) continue;
          request.experts.push_back(static_cast<int32_t>(expert));
          request.choosing.push_back(choosing[expert]);
        }
        request.token = token + static_cast<int64_t>(row);
        request.rows = static_cast<int32_t>(width);
        requests.push_back(std::move(request));
      }
    }
    step_begin += trace.EntriesOf(step_rows);
    token += step_rows;
  }
  return requests;
}

ReplayResult ReplayRequests(const RoutingTrace& trace, const std::vector<Request>& requests,
                            std::unique_ptr<CachePolicy> policy, const ReplayOptions& options) {
  ExpertFiles files{.layers = trace.layers,
                    .experts_per_layer = trace.experts_per_layer,
                    .blob_bytes = 1,
                    .open_layer = [&trace](int) {
                      return LayerFile{.file = FileDescriptor(),
                                       .name = "trace",
                                       .blob_offsets = std::vector<uint64_t>(
                                           static_cast<size_t>(trace.experts_per_layer))};
                    }};
  ExpertStore store(std::move(files), std::make_unique<NoMemory>(options.slots), std::move(policy),
                    std::make_unique<InstantReader>(), {.top_k = trace.top_k, .on_open = {}});
  bool counting = false;
  ReplayResult result{.tokens = trace.tokens() - options.warm_up_tokens,
                      .blob_bytes = trace.blob_bytes};
  for (const Request& request : requests) {
    if (!counting && request.token >= options.warm_up_tokens) {
      store.ResetCounters();
      counting = true;
    }
    const uint64_t reads_before = store.counters().reads;
    ExpertStream stream = store.Open(
        request.layer, request.experts,
        request.rows <= kMaxRowsInAnyOrder ? StreamOrder::kHitsFirst : StreamOrder::kAscending,
        {.rows = request.rows, .choosing = request.choosing});
    ExpertLease lease;
    while (stream.Next(lease) == StreamNext::kReady) store.Release(lease);
    if (counting && request.rows <= kMaxRowsInAnyOrder) {
      result.decode_blobs_read += store.counters().reads - reads_before;
      if (request.layer == trace.routed_layers.front()) result.decoded_tokens += request.rows;
    }
  }
  if (!counting) {
    Fail(ErrorCode::kInvalidArgument, "the trace has {} tokens, {} of them to warm up",
         trace.tokens(), options.warm_up_tokens);
  }
  const ExpertCounters counters = store.counters();
  result.asked = counters.hits + counters.joins + counters.misses;
  result.hits = counters.hits;
  result.blobs_read = counters.reads;
  return result;
}

}  // namespace

ReplayResult Replay(const RoutingTrace& trace, CachePolicyKind policy,
                    const ReplayOptions& options) {
  return ReplayRequests(
      trace, RequestsOf(trace, options.token_by_token),
      MakeCachePolicy(policy, trace.layers, trace.experts_per_layer, options.slots), options);
}

ReplayResult ReplayBelady(const RoutingTrace& trace, const ReplayOptions& options) {
  const std::vector<Request> requests = RequestsOf(trace, options.token_by_token);
  const std::vector<BeladyPolicy::Request> future(requests.begin(), requests.end());
  return ReplayRequests(
      trace, requests,
      std::make_unique<BeladyPolicy>(trace.layers, trace.experts_per_layer, options.slots, future),
      options);
}

}  // namespace mference
