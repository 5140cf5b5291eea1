// The cache laboratory: what a policy would have hit on a recorded trace, with any number of slots.
//
// A replay drives the very `ExpertStore` that inference runs on, over a reader that delivers at
// once and memory that is not there, so that what is measured is what the engine would do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experts/policy_choice.h"
#include "experts/routing_trace.h"

namespace mference {

struct ReplayOptions {
  int slots = 0;
  // Serve each token on its own, as decoding does, whatever the width of the steps it came in.
  bool token_by_token = false;
  // Tokens at the beginning that fill the cache and are not counted.
  int64_t warm_up_tokens = 0;
};

struct ReplayResult {
  int64_t tokens = 0;  // counted
  uint64_t asked = 0;  // distinct experts per layer and step
  uint64_t hits = 0;
  uint64_t blobs_read = 0;  // misses, and blobs read twice in one step for want of slots
  uint64_t blob_bytes = 0;
  // Of these, in steps of few rows, as decoding has them.
  int64_t decoded_tokens = 0;
  uint64_t decode_blobs_read = 0;

  double hit_rate() const {
    return asked == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(asked);
  }
  double bytes_per_token() const { return BytesPerToken(blobs_read, tokens); }
  double decode_bytes_per_token() const { return BytesPerToken(decode_blobs_read, decoded_tokens); }

 private:
  double BytesPerToken(uint64_t blobs, int64_t of_tokens) const {
    if (of_tokens == 0) return 0;
    return static_cast<double>(blobs) * static_cast<double>(blob_bytes) /
           static_cast<double>(of_tokens);
  }
};

// Throws kInvalidArgument when there are fewer slots than top_k.
ReplayResult Replay(const RoutingTrace& trace, CachePolicyKind policy,
                    const ReplayOptions& options);
// The optimum, which knows what will be asked.
ReplayResult ReplayBelady(const RoutingTrace& trace, const ReplayOptions& options);

}  // namespace mference
