#include "server/api_service.h"

#include <algorithm>

#include "server/api/chat_sinks.h"
#include "server/api/completion_sinks.h"
#include "server/generation/preparation.h"

namespace mference::server {
namespace {

constexpr std::string_view kVersionPrefix = "/v1";
// Names of ignored members in the response header.
constexpr size_t kMaxIgnoredShown = 20;
constexpr size_t kMaxNameBytes = 64;

// Gives a claimed place back unless the request gets as far as the queue.
class Place {
 public:
  explicit Place(JobQueue& queue) : queue_(queue) {}
  ~Place() {
    if (held_) queue_.Abandon();
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  void Claim() {
    switch (queue_.Claim()) {
      case JobQueue::Admission::kClaimed:
        held_ = true;
        return;
      case JobQueue::Admission::kFull:
        throw ApiError(429, "queue_full", "the server is busy and its queue is full; try again");
      case JobQueue::Admission::kClosed:
        throw ApiError(503, "shutting_down", "the server is shutting down");
    }
  }
  void PassOn() { held_ = false; }

 private:
  JobQueue& queue_;
  bool held_ = false;
};

std::string Heartbeat(const std::weak_ptr<Job>& weak) {
  const std::shared_ptr<Job> job = weak.lock();
  if (job == nullptr) return ": ping\n\n";
  const int64_t done = job->prefill_done;
  const int64_t total = job->prefill_total;
  if (done >= total) return ": ping\n\n";
  return fmt::format(": prefill {}/{}\n\n", done, total);
}

// The text of the body goes, and what it holds of the budget, whether it parses or not.
jinja::Value ParseAndRelease(HttpRequest& request) {
  const HttpRequest released = std::move(request);
  return ParseBody(released.body);
}

// Members that mean nothing here: by themselves, or to the model's chat template.
std::vector<std::string> IgnoredIn(const ChatRequest& chat, const PromptRenderer& renderer) {
  std::vector<std::string> names = chat.generation.ignored;
  for (const auto& [name, value] : chat.template_variables) {
    if (names.size() >= kMaxIgnoredShown) break;
    if (!renderer.Reads(name)) names.push_back("chat_template_kwargs." + name);
  }
  return names;
}

SinkOptions MakeSinkOptions(const std::shared_ptr<Job>& job, const GenerationFields& fields,
                            ReplyHead head, const TextLayer& text) {
  return {.head = std::move(head),
          .include_usage = fields.include_usage,
          .logprobs = fields.logprobs,
          .tokenizer = &text.tokenizer(),
          .call_ids = &job->call_ids,
          .heartbeat = [weak = std::weak_ptr(job)] { return Heartbeat(weak); }};
}

}  // namespace

ApiService::ApiService(LoadedModel& model, ServedModel served, AccessPolicy policy,
                       size_t queue_limit, RequestLog& log)
    : model_(model),
      served_(std::move(served)),
      policy_(std::move(policy)),
      log_(log),
      queue_(queue_limit),
      worker_(std::make_unique<GenerationWorker>(model_, history_, queue_, metrics_, log_)) {}

ApiService::~ApiService() { Shutdown(); }

void ApiService::Shutdown() {
  for (const std::shared_ptr<Job>& job : queue_.Close()) {
    log_.Info(job->id(), "failed status=503 streaming={} error=shutting_down", job->streaming);
    job->sink->Fail({503, "shutting_down", "the server is shutting down"});
  }
  preparation_.Stop();
  worker_.reset();
}

// ---- routes

const std::vector<ApiService::Route>& ApiService::Routes() {
  static const std::vector<Route> routes = {
      {"GET", "/health", &ApiService::HandleHealth, false},
      {"GET", "/metrics", &ApiService::HandleMetrics},
      {"GET", "/v1/models", &ApiService::HandleModels},
      {"GET", "/v1/models/", &ApiService::HandleModel},
      {"POST", "/v1/chat/completions", &ApiService::HandleChat},
      {"POST", "/v1/completions", &ApiService::HandleCompletion},
  };
  return routes;
}

const ApiService::Route* ApiService::Find(std::string_view path) {
  for (const Route& route : Routes()) {
    std::string_view known = route.path;
    if (known.starts_with(kVersionPrefix) && !path.starts_with("/v1/")) {
      known.remove_prefix(kVersionPrefix.size());
    }
    const bool below = known.ends_with('/');
    if (below ? path.starts_with(known) && path.size() > known.size() : path == known) {
      return &route;
    }
  }
  return nullptr;
}

std::optional<ApiError> ApiService::CheckHead(const HttpRequest& head,
                                              std::vector<HttpHeader>* headers) {
  if (std::optional<ApiError> refusal = policy_.CheckOrigin(head, headers)) return refusal;
  const bool preflight = head.method == "OPTIONS" && policy_.cors();
  const Route* route = Find(head.path);
  if (preflight) return std::nullopt;
  if (route == nullptr || route->needs_key) {
    if (std::optional<ApiError> refusal = policy_.CheckKey(head)) return refusal;
  }
  if (route == nullptr) {
    return ApiError(404, "not_found", fmt::format("there is no {}", Sanitise(head.path, 100)));
  }
  if (head.method != route->method) {
    headers->push_back({"Allow", route->method == "GET" ? "GET, HEAD" : "POST"});
    return ApiError(405, "method_not_allowed",
                    fmt::format("{} takes {} only", route->path, route->method));
  }
  constexpr std::string_view kJson = "application/json";
  const std::string_view type = head.Header("Content-Type");
  if (route->method == "POST" && !EqualsIgnoringCase(type.substr(0, kJson.size()), kJson)) {
    return ApiError(415, "unsupported_media_type", "the body must be application/json");
  }
  return std::nullopt;
}

void ApiService::Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  if (request.method == "OPTIONS") return exchange->Send(policy_.Preflight(request));
  (this->*Find(request.path)->handle)(request, exchange);
}

void ApiService::OnAnswer(std::string_view path, int status) {
  const Route* route = Find(path);
  metrics_.CountAnswer(route == nullptr ? "other" : std::string(route->path), status);
}

void ApiService::HandleHealth(HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  const JobQueue::Occupancy queue = queue_.occupancy();
  const auto uptime =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - started_);
  exchange->Send(
      {.body =
           Dump({{"status", "ok"},
                 {"model", served_.id},
                 {"queue",
                  {{"active", queue.active}, {"waiting", queue.waiting}, {"limit", queue.limit}}},
                 {"uptime_s", uptime.count()}})});
}

OrderedJson ApiService::ModelJson() const {
  return {{"id", served_.id},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "mference"},
          {"context_length", served_.context},
          {"max_model_len", served_.context},
          {"max_output_tokens", served_.context - 1},
          {"capabilities",
           {{"tools",
             model_.text().renderer().has_template() || served_.family == TextFamily::kDeepseekV4},
            {"reasoning", true},
            {"vision", false}}}};
}

void ApiService::HandleModels(HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  exchange->Send({.body = Dump({{"object", "list"}, {"data", OrderedJson::array({ModelJson()})}})});
}

void ApiService::HandleModel(HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const std::string id = request.path.substr(request.path.find("models/") + 7);
  if (id == served_.id) return exchange->Send({.body = Dump(ModelJson())});
  exchange->Send(ErrorResponse({404, "model_not_found",
                                fmt::format("the model '{}' does not exist here; this server has "
                                            "'{}'",
                                            Sanitise(id, 100), served_.id),
                                "model"}));
}

void ApiService::HandleMetrics(HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(
      {.content_type = "text/plain; version=0.0.4; charset=utf-8",
       .body = metrics_.Format(queue_.occupancy(), count_connections ? count_connections() : 0,
                               model_.ledger().parts(), model_.ledger().budget_bytes())});
}

void ApiService::HandleChat(HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  Accept(Endpoint::kChat, std::move(request), exchange);
}

void ApiService::HandleCompletion(HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  Accept(Endpoint::kCompletion, std::move(request), exchange);
}

// ---- generation

void ApiService::Accept(Endpoint endpoint, HttpRequest request,
                        const std::shared_ptr<Exchange>& exchange) {
  auto job = std::make_shared<Job>();
  job->exchange = exchange;
  exchange->OnClosed([this, weak = std::weak_ptr(job)] {
    if (const std::shared_ptr<Job> left = weak.lock()) Cancel(*left);
  });
  // Shared, because a std::function must be copyable.
  auto held = std::make_shared<HttpRequest>(std::move(request));
  preparation_.Post([this, endpoint, held, job] { Prepare(endpoint, *held, job); });
}

void ApiService::Cancel(Job& job) {
  job.cancelled = true;
  log_.Info(job.id(), "{}", queue_.Remove(&job) ? "cancelled while waiting" : "its client left");
}

void ApiService::Refuse(const std::shared_ptr<Job>& job, const ApiError& error) {
  log_.Info(job->id(), "failed status={} streaming={} error={} param={}", error.status(),
            job->streaming, error.code(),
            error.param().empty() ? "-" : Sanitise(error.param(), 80));
  job->exchange->Send(ErrorResponse(error));
}

void ApiService::NoteIgnored(Job& job, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::string shown;
  for (size_t i = 0; i < std::min(names.size(), kMaxIgnoredShown); ++i) {
    const std::string name = Sanitise(names[i], kMaxNameBytes);
    shown += (shown.empty() ? "" : ", ") + name;
    if (log_.FirstTime(name)) log_.Info(job.id(), "ignores the member {}", name);
  }
  job.exchange->AddHeader({"x-mference-ignored", shown});
}

void ApiService::Prepare(Endpoint endpoint, HttpRequest& request, const std::shared_ptr<Job>& job) {
  if (job->cancelled) return;
  try {
    if (queue_.closed()) throw ApiError(503, "shutting_down", "the server is shutting down");
    const jinja::Value parsed = ParseAndRelease(request);
    Place place(queue_);
    if (endpoint == Endpoint::kChat) {
      const ChatRequest chat = ParseChatRequest(parsed, served_);
      NoteIgnored(*job, IgnoredIn(chat, model_.text().renderer()));
      place.Claim();
      job->streaming = chat.generation.stream;
      job->generation = PrepareChat(chat, model_.text(), served_, history_);
      SinkOptions options = MakeSinkOptions(
          job, chat.generation, MakeReplyHead("chatcmpl-", served_.id, served_.fingerprint),
          model_.text());
      job->sink = job->streaming ? MakeChatStreamSink(job->exchange, std::move(options))
                                 : MakeChatSink(job->exchange, std::move(options));
    } else {
      const CompletionRequest completion = ParseCompletionRequest(parsed, served_);
      NoteIgnored(*job, completion.generation.ignored);
      place.Claim();
      job->streaming = completion.generation.stream;
      job->generation = PrepareCompletion(completion, model_.text(), served_);
      SinkOptions options =
          MakeSinkOptions(job, completion.generation,
                          MakeReplyHead("cmpl-", served_.id, served_.fingerprint), model_.text());
      job->sink = job->streaming ? MakeCompletionStreamSink(job->exchange, std::move(options))
                                 : MakeCompletionSink(job->exchange, std::move(options));
    }
    job->prefill_total = static_cast<int64_t>(job->generation.prompt.size());
    log_.Debug(job->id(), "prepared prompt={}", job->generation.prompt.size());
    if (job->cancelled) return;
    job->sink->Begin();
    place.PassOn();
  } catch (const ApiError& error) {
    return Refuse(job, error);
  } catch (const std::exception& error) {
    log_.Error(job->id(), "failed status=500 streaming={} error={}", job->streaming, error.what());
    return job->exchange->Send(ErrorResponse(
        {500, "internal_error", "the request could not be prepared; the server's log has more"}));
  }
  const std::optional<size_t> before = queue_.Push(job);
  if (!before) return job->sink->Fail({503, "shutting_down", "the server is shutting down"});
  if (*before > 0) log_.Info(job->id(), "queued position={}", *before);
  // It may have been cancelled before it could be found in the queue.
  if (job->cancelled) queue_.Remove(job.get());
}

}  // namespace mference::server
