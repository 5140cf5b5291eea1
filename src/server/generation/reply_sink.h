// Where a reply goes as it is generated.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/generator.h"
#include "engine/reply_stream.h"
#include "server/api/api_error.h"

namespace mference::server {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;
};

// One reply's way to its client, in one of the API's forms. Used by one thread at a time.
class ReplySink {
 public:
  virtual ~ReplySink() = default;

  // The request will be generated: a stream's head goes out. Afterwards failures are in-band.
  virtual void Begin() = 0;
  // What the last tokens settled, and the log-probabilities of those among them that are shown.
  virtual void Add(const std::vector<DialectEvent>& events,
                   const std::vector<TokenLogprobs>& logprobs) = 0;
  virtual void Finish(FinishReason reason, const Usage& usage) = 0;
  virtual void Fail(const ApiError& error) = 0;
};

}  // namespace mference::server
