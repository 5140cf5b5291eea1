// `mference replay`: what each cache policy would have hit on a recorded routing trace.

#include <algorithm>

#include "base/json.h"
#include "base/units.h"
#include "cli/commands.h"
#include "experts/replay.h"
#include "experts/slot_memory.h"

namespace mference::cli {
namespace {

struct ReplayFlags {
  std::string trace;
  std::vector<int> slots;
  std::optional<uint64_t> memory_bytes;
  std::optional<int64_t> warm_up;
  bool token_by_token = false;
  bool json = false;
};

std::vector<int> SlotCounts(const ReplayFlags& flags, const RoutingTrace& trace) {
  std::vector<int> counts = flags.slots;
  if (flags.memory_bytes) {
    counts.push_back(static_cast<int>(*flags.memory_bytes / SlotBytes(trace.blob_bytes)));
  }
  if (counts.empty()) throw UsageError("one of --slots and --memory is required");
  const int all = static_cast<int>(trace.routed_layers.size()) * trace.experts_per_layer;
  for (int& count : counts) {
    if (count < trace.top_k) {
      Fail(ErrorCode::kInvalidArgument, "{} slots cannot hold the {} experts of one token", count,
           trace.top_k);
    }
    count = std::min(count, all);
  }
  return counts;
}

struct Line {
  std::string policy;
  int slots = 0;
  ReplayResult result;
};

int RunReplay(const ReplayFlags& flags, Console& console) {
  Require(flags.trace, "TRACE");
  const RoutingTrace trace = ReadTrace(flags.trace);
  std::vector<Line> lines;
  for (const int slots : SlotCounts(flags, trace)) {
    const ReplayOptions options{.slots = slots,
                                .token_by_token = flags.token_by_token,
                                .warm_up_tokens = flags.warm_up.value_or(0)};
    for (const CachePolicyKind policy : kCachePolicies) {
      lines.push_back(
          {std::string(CachePolicyName(policy)), slots, Replay(trace, policy, options)});
    }
    lines.push_back({"optimum", slots, ReplayBelady(trace, options)});
  }
  if (flags.json) {
    Json results = Json::array();
    for (const Line& line : lines) {
      results.push_back({{"policy", line.policy},
                         {"slots", line.slots},
                         {"tokens", line.result.tokens},
                         {"hit_rate", line.result.hit_rate()},
                         {"bytes_per_token", line.result.bytes_per_token()},
                         {"decoded_tokens", line.result.decoded_tokens},
                         {"decode_bytes_per_token", line.result.decode_bytes_per_token()}});
    }
    console.Print("{}\n", Json{{"trace", flags.trace},
                               {"tokens", trace.tokens()},
                               {"experts", trace.experts_per_layer},
                               {"layers", trace.routed_layers.size()},
                               {"top_k", trace.top_k},
                               {"blob_bytes", trace.blob_bytes},
                               {"results", results}}
                              .dump(2));
    return 0;
  }
  console.Print("{} tokens, {} layers of {} experts of {}, {} per token\n", trace.tokens(),
                trace.routed_layers.size(), trace.experts_per_layer,
                FormatByteCount(trace.blob_bytes), trace.top_k);
  Table table({"slots", "policy", "hits", "read per token", "per decoded token"});
  for (const size_t column : {0, 2, 3, 4}) table.AlignRight(column);
  for (const Line& line : lines) {
    table.Add({std::to_string(line.slots), line.policy,
               fmt::format("{:.1f}%", line.result.hit_rate() * 100),
               FormatByteCount(static_cast<uint64_t>(line.result.bytes_per_token())),
               line.result.decoded_tokens == 0
                   ? "-"
                   : FormatByteCount(static_cast<uint64_t>(line.result.decode_bytes_per_token()))});
  }
  console.Write(table.Format());
  return 0;
}

}  // namespace

void AddReplayCommand(CommandSet& commands) {
  const auto flags = std::make_shared<ReplayFlags>();
  CLI::App& command =
      commands.Add("replay", "What cache policies would hit on a trace recorded with --trace",
                   [flags](Console& console) { return RunReplay(*flags, console); });
  AddPositional(command, "TRACE", "A file written with --trace", flags->trace);
  AddParsed(
      command, "--slots", "N", "Slots of the one pool; may be repeated",
      [flags](const std::string& text) {
        flags->slots.push_back(static_cast<int>(ParseInteger(text, 1, 1 << 24)));
      },
      /*repeatable=*/true);
  AddParsed(command, "--memory", "SIZE", "As many slots as fit into this",
            [flags](const std::string& text) { flags->memory_bytes = ParseByteCount(text); });
  AddInteger(command, "--warm-up", "N", "Tokens at the beginning that are not counted (0)",
             flags->warm_up, 0);
  AddSwitch(command, "--token-by-token", "Serve each token on its own, whatever it came in with",
            flags->token_by_token);
  AddSwitch(command, "--json", "A JSON object", flags->json);
}

}  // namespace mference::cli
