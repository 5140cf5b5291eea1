#include "cli/footer.h"

#include <fmt/format.h>

#include "base/machine.h"
#include "base/units.h"

namespace mference::cli {
namespace {

double TokensPerSecond(const FooterFacts& facts) {
  return facts.decode_seconds > 0 ? static_cast<double>(facts.new_tokens) / facts.decode_seconds
                                  : 0.0;
}

double MebibytesPerToken(const FooterFacts& facts) {
  if (facts.new_tokens == 0) return 0;
  return static_cast<double>(facts.bytes_read) / static_cast<double>(kMiB) /
         static_cast<double>(facts.new_tokens);
}

}  // namespace

FooterFacts MakeFooterFacts(const GenerationResult& result, const ExpertCounters& decode) {
  const uint64_t asked = decode.hits + decode.joins + decode.misses;
  const ProcessMemory memory = ReadProcessMemory();
  return {
      .reason = result.reason,
      .prompt_tokens = result.prompt_tokens,
      .reused_tokens = result.reused_tokens,
      .new_tokens = static_cast<int64_t>(result.tokens.size()),
      .prefill_seconds = result.prefill_seconds,
      .decode_seconds = result.decode_seconds,
      .first_token_seconds = result.first_token_seconds,
      .hit_rate = asked == 0 ? 0.0 : static_cast<double>(decode.hits) / static_cast<double>(asked),
      .bytes_read = decode.bytes_read,
      .resident_bytes = memory.resident_bytes,
      .peak_resident_bytes = memory.peak_resident_bytes};
}

std::string FormatFooter(const FooterFacts& facts) {
  return fmt::format(
      "[stop={} prefill={}tok/{:.2f}s new={}tok decode={:.2f}s tok/s={:.3f} ttft={:.2f}s "
      "hit={:.1f}% io={:.2f}MiB/tok rss={}MiB cached={}tok]",
      StopReasonName(facts.reason), facts.prompt_tokens, facts.prefill_seconds, facts.new_tokens,
      facts.decode_seconds, TokensPerSecond(facts), facts.first_token_seconds, facts.hit_rate * 100,
      MebibytesPerToken(facts), facts.resident_bytes / kMiB, facts.reused_tokens);
}

Json FooterToJson(const FooterFacts& facts) {
  return {{"stop", StopReasonName(facts.reason)}, {"prompt_tokens", facts.prompt_tokens},
          {"cached_tokens", facts.reused_tokens}, {"new_tokens", facts.new_tokens},
          {"prefill_s", facts.prefill_seconds},   {"decode_s", facts.decode_seconds},
          {"ttft_s", facts.first_token_seconds},  {"tokens_per_s", TokensPerSecond(facts)},
          {"expert_hit_rate", facts.hit_rate},    {"expert_bytes_read", facts.bytes_read},
          {"rss_bytes", facts.resident_bytes},    {"peak_rss_bytes", facts.peak_resident_bytes}};
}

}  // namespace mference::cli
