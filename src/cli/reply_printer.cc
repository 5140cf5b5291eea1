#include "cli/reply_printer.h"

#include <algorithm>
#include <ctime>

#include "cli/interrupts.h"

namespace mference::cli {
namespace {

bool OpensCall(Marker marker) {
  return marker == Marker::kCallOpen || marker == Marker::kInvokeJson ||
         marker == Marker::kInvokeText;
}

// Shows events and remembers what they add up to.
class EventPrinter {
 public:
  EventPrinter(Console& console, bool show_thinking, ReplyOutcome& outcome)
      : console_(console), show_thinking_(show_thinking), outcome_(outcome) {}

  void Show(const std::vector<DialectEvent>& events) {
    AppendEvents(events, &outcome_.reply);
    for (const DialectEvent& event : events) {
      if (event.kind == DialectEvent::Kind::kContent) {
        EndThinking();
        if (!console_.TryWrite(event.text)) outcome_.output_closed = true;
      } else if (event.kind == DialectEvent::Kind::kReasoning && show_thinking_) {
        thinking_ = true;
        console_.WriteError(console_.ForError(Style::kDim, event.text));
      }
    }
  }

  void EndThinking() {
    if (thinking_) console_.WriteError("\n");
    thinking_ = false;
  }

 private:
  Console& console_;
  const bool show_thinking_;
  ReplyOutcome& outcome_;
  bool thinking_ = false;
};

}  // namespace

ReplyOutcome PrintReply(LoadedModel& loaded, Console& console, const ReplyRequest& request) {
  const InterruptScope interrupts(InterruptMode::kCancel);
  ReplyOutcome outcome;
  ReplyStream stream(loaded.text(), request.stream);
  EventPrinter printer(console, request.show_thinking, outcome);
  ProgressLine progress(console);
  std::vector<DialectEvent> events;

  const auto room = std::max<int64_t>(
      loaded.session().context() - static_cast<int64_t>(request.prompt.size()), 1);
  GenerationRequest generation;
  generation.prompt = request.prompt;
  generation.sampling = request.sampling;
  generation.max_new_tokens = std::min(request.max_new, room);
  generation.cancel = &CancelRequested();
  generation.on_prefill_progress = [&](int64_t done, int64_t total) {
    progress.Update([&] {
      return fmt::format("prefill {} {}/{}",
                         ProgressBar(static_cast<uint64_t>(done), static_cast<uint64_t>(total)),
                         done, total);
    });
  };
  generation.before_first_token = [&] {
    progress.Clear();
    loaded.ResetCounters();
  };
  generation.on_token = [&](int32_t id) {
    if (!request.stream.raw && !stream.in_reasoning() && OpensCall(loaded.text().MarkerOf(id))) {
      outcome.tool_call = true;
      return false;
    }
    events.clear();
    const bool go_on = stream.Push(id, &events);
    printer.Show(events);
    return go_on && !outcome.output_closed;
  };
  outcome.result = loaded.Generate(generation);
  progress.Clear();
  GenerationResult& result = outcome.result;
  if (result.reason == StopReason::kMaxTokens && generation.max_new_tokens < request.max_new) {
    result.reason = StopReason::kContextFull;
  }

  events.clear();
  if (!outcome.tool_call) stream.Finish(result.reason, &events);
  printer.Show(events);
  printer.EndThinking();
  if (stream.stopped()) result.reason = StopReason::kStopString;
  if (result.reason == StopReason::kToolCalls || stream.failure()) outcome.tool_call = true;
  outcome.footer = MakeFooterFacts(result, loaded.experts().counters());
  return outcome;
}

void PrintFooter(Console& console, const FooterFacts& facts, bool json) {
  console.Note("{}\n", json ? FooterToJson(facts).dump() : FormatFooter(facts));
}

void PrintPrompt(Console& console, std::string_view text, std::span<const TokenId> ids) {
  console.Note("{}\n{}\n", text, Json(ids).dump());
}

std::tm LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

}  // namespace mference::cli
