#include "server/generation/generation_worker.h"

#include <algorithm>

namespace mference::server {
namespace {

using Clock = Job::Clock;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// How often a long prefill says in the log how far it is.
constexpr std::chrono::seconds kPrefillLogInterval{5};

// One generation: takes tokens, gives them to the sink as what they mean.
class ReplyRun {
 public:
  ReplyRun(Job& job, LoadedModel& model, TurnHistory& history, JobQueue& queue, RequestLog& log)
      : job_(job),
        model_(model),
        history_(history),
        queue_(queue),
        log_(log),
        generation_(job.generation),
        stream_(model.text(), generation_.stream) {}

  GenerationResult Generate() {
    const std::vector<TokenId>& prompt = ChoosePrompt();
    const auto prompt_tokens = static_cast<int64_t>(prompt.size());
    const int64_t room = std::max<int64_t>(model_.session().context() - prompt_tokens, 1);
    GenerationRequest request;
    request.prompt = prompt;
    request.sampling = generation_.sampling;
    request.max_new_tokens = std::min(generation_.max_tokens, room);
    request.cancel = &job_.cancelled;
    request.constraint = generation_.constraint.get();
    request.top_logprobs = generation_.top_logprobs;
    if (generation_.logprobs) {
      request.on_logprobs = [this](const TokenLogprobs& token) { token_logprobs_ = token; };
    }
    request.on_prefill_progress = [this](int64_t done, int64_t total) { OnPrefill(done, total); };
    request.on_token = [this](int32_t id) { return OnToken(id); };
    GenerationResult result = model_.Generate(request);
    if (result.reason == StopReason::kMaxTokens &&
        request.max_new_tokens < generation_.max_tokens) {
      result.reason = StopReason::kContextFull;
    }
    return result;
  }

  // Passes on what was held back; returns the outcome for log and metrics. The sink's end is for
  // `Close`.
  std::string Settle(const GenerationResult& result) {
    if (result.reason == StopReason::kCancelled) {
      if (!queue_.closed()) return "cancelled";
      error_.emplace(503, "shutting_down", "the server is shutting down");
      return error_->code();
    }
    events_.clear();
    logprobs_.clear();
    if (!stream_.Finish(result.reason, &events_)) {
      error_.emplace(MalformedCall());
      return error_->code();
    }
    Deliver();
    // A call that was begun in a stream and cut off cannot be taken back: the limit is the news.
    const bool cut_call = reply_.calls.size() > stream_.completed_calls();
    reason_ = cut_call ? FinishReason::kLength : stream_.finish_reason();
    reply_.calls.resize(stream_.completed_calls());
    Remember(result);
    std::string outcome = FinishReasonName(*reason_);
    if (result.reason == StopReason::kContextFull) outcome += "(context)";
    return outcome;
  }

  // Ends the reply, unless nobody is there to read it.
  void Close(const Usage& usage) {
    if (error_) {
      job_.sink->Fail(*error_);
    } else if (reason_) {
      job_.sink->Finish(*reason_, usage);
    }
  }

  Usage usage(const GenerationResult& result) const {
    return {.prompt_tokens = result.prompt_tokens,
            .cached_tokens = result.reused_tokens,
            .completion_tokens = static_cast<int64_t>(result.tokens.size()),
            .reasoning_tokens = reasoning_tokens_};
  }

 private:
  // A history that is rendered afresh differs from what the model said. Going on from the latter
  // pays only while its state is still there.
  const std::vector<TokenId>& ChoosePrompt() {
    const std::vector<TokenId>& continued = generation_.continued_prompt;
    if (continued.empty()) return generation_.prompt;
    const int64_t spared = model_.MatchPrefix(continued).tokens;
    const bool pays = spared > model_.MatchPrefix(generation_.prompt).tokens;
    prompt_ = pays ? &continued : &generation_.prompt;
    return *prompt_;
  }

  // Before the client learns the end: its next request may come at once.
  void Remember(GenerationResult result) {
    if (!generation_.turn) return;
    // The reply was cut after a whole call; nothing of it was thrown away.
    if (cut_after_call_) result.reason = StopReason::kMaxTokens;
    ChatMessage message;
    message.role = ChatRole::kAssistant;
    message.content = reply_.content;
    for (const ToolCall& call : reply_.calls) {
      message.tool_calls.push_back(
          {job_.call_ids.Get(message.tool_calls.size()), call.name,
           jinja::ParseJsonValue(call.arguments, "arguments", ErrorCode::kInternal,
                                 jinja::NumberStyle::kAsWritten, jinja::Origin::kData)});
    }
    const ChatTurn& turn = *generation_.turn;
    history_.Remember(model_.text(), turn.messages, turn.tools, turn.options, *prompt_, result,
                      message);
  }

  void OnPrefill(int64_t done, int64_t total) {
    job_.prefill_done = done;
    job_.prefill_total = total;
    const Clock::time_point now = Clock::now();
    if (now < next_log_) return;
    if (next_log_ != Clock::time_point()) log_.Info(job_.id(), "prefill {}/{}", done, total);
    next_log_ = now + kPrefillLogInterval;
  }

  bool OnToken(int32_t id) {
    const bool hidden = stream_.in_reasoning();
    events_.clear();
    const bool go_on = stream_.Push(id, &events_);
    if (hidden && stream_.in_reasoning()) ++reasoning_tokens_;
    if (generation_.reasoning_limit != nullptr) {
      generation_.reasoning_limit->Observe(stream_.in_reasoning());
    }
    if (generation_.logprobs && !hidden) logprobs_.push_back(token_logprobs_);
    Deliver();
    cut_after_call_ = generation_.one_call_only && go_on && stream_.completed_calls() > 0;
    return go_on && !cut_after_call_;
  }

  void Deliver() {
    if (!generation_.show_reasoning) {
      std::erase_if(events_, [](const DialectEvent& event) {
        return event.kind == DialectEvent::Kind::kReasoning;
      });
    }
    AppendEvents(events_, &reply_);
    if (events_.empty() && logprobs_.empty()) return;
    job_.sink->Add(events_, logprobs_);
    logprobs_.clear();
  }

  ApiError MalformedCall() const {
    const CallFailure& failure = *stream_.failure();
    ApiError error(500, "malformed_tool_call",
                   fmt::format("the model wrote a malformed tool call: {}", failure.Message()));
    error.details = {{"class", failure.ClassName()},
                     {"position", failure.position},
                     {"excerpt", failure.excerpt}};
    return error;
  }

  Job& job_;
  LoadedModel& model_;
  TurnHistory& history_;
  JobQueue& queue_;
  RequestLog& log_;
  PreparedGeneration& generation_;
  const std::vector<TokenId>* prompt_ = &generation_.prompt;
  ReplyStream stream_;
  std::vector<DialectEvent> events_;
  std::vector<TokenLogprobs> logprobs_;
  TokenLogprobs token_logprobs_;
  Reply reply_;  // as the client gets it
  std::optional<FinishReason> reason_;
  std::optional<ApiError> error_;
  bool cut_after_call_ = false;
  int64_t reasoning_tokens_ = 0;
  Clock::time_point next_log_;
};

}  // namespace

GenerationWorker::GenerationWorker(LoadedModel& model, TurnHistory& history, JobQueue& queue,
                                   Metrics& metrics, RequestLog& log)
    : model_(model),
      history_(history),
      queue_(queue),
      metrics_(metrics),
      log_(log),
      thread_([this] { Loop(); }) {}

GenerationWorker::~GenerationWorker() { thread_.join(); }

void GenerationWorker::Loop() {
  while (std::shared_ptr<Job> job = queue_.Take()) {
    try {
      Run(*job);
    } catch (const std::exception& error) {
      log_.Error(job->id(), "failed status=500 streaming={} error={}", job->streaming,
                 error.what());
      metrics_.CountGeneration({}, "internal_error");
      job->sink->Fail({500, "internal_error", "the generation failed; the server's log has more"});
    }
    queue_.Done();
    job.reset();
    if (queue_.occupancy().waiting == 0) model_.SavePrompt();
  }
}

void GenerationWorker::Run(Job& job) {
  const Clock::time_point start = Clock::now();
  ReplyRun run(job, model_, history_, queue_, log_);
  log_.Info(job.id(), "started streaming={} prompt={}", job.streaming,
            job.generation.prompt.size());
  const GenerationResult result = run.Generate();
  const std::string outcome = run.Settle(result);
  const Usage usage = run.usage(result);
  const double queued = Seconds(start - job.received);
  metrics_.CountGeneration({.usage = usage,
                            .queued_seconds = queued,
                            .first_token_seconds = queued + result.first_token_seconds,
                            .prefill_seconds = result.prefill_seconds,
                            .decode_seconds = result.decode_seconds},
                           outcome);
  metrics_.SetEngine(model_.experts().counters(), model_.prefix_cache().counters());
  // Who has the whole answer finds it counted.
  run.Close(usage);
  log_.Info(job.id(),
            "{} in {:.2f}s prompt={} cached={} completion={} finish={} queued={:.2f}s "
            "prefill={:.2f}s decode={:.2f}s",
            outcome == "cancelled" ? "cancelled" : "completed", Seconds(Clock::now() - start),
            usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, outcome, queued,
            result.prefill_seconds, result.decode_seconds);
}

}  // namespace mference::server
