// The line of figures after a reply. Scripts parse it: new fields go at its end.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "engine/generator.h"
#include "experts/expert_store.h"

namespace mference::cli {

struct FooterFacts {
  StopReason reason = StopReason::kMaxTokens;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;
  int64_t new_tokens = 0;  // the stopping one included
  double prefill_seconds = 0;
  double decode_seconds = 0;
  double first_token_seconds = 0;
  // Of decoding only: prefill reads every expert once per chunk and would drown it.
  double hit_rate = 0;  // 0..1, of the experts asked for
  uint64_t bytes_read = 0;
  uint64_t resident_bytes = 0;       // of the process, now
  uint64_t peak_resident_bytes = 0;  // and at its peak
};

FooterFacts MakeFooterFacts(const GenerationResult& result, const ExpertCounters& decode);

// "[stop=endOfTurn prefill=21tok/0.02s new=9tok decode=0.10s tok/s=90.000 ttft=0.02s hit=98.1%
// io=0.12MiB/tok rss=61MiB cached=0tok]"
std::string FormatFooter(const FooterFacts& facts);
Json FooterToJson(const FooterFacts& facts);

}  // namespace mference::cli
