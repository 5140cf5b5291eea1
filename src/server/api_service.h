// The API: which routes there are, and how a request travels through preparation and generation.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/loaded_model.h"
#include "server/api/served_model.h"
#include "server/generation/generation_worker.h"
#include "server/generation/job_queue.h"
#include "server/http/handler.h"
#include "server/http/origin.h"
#include "server/metrics.h"
#include "server/request_log.h"
#include "server/task_thread.h"

namespace mference::server {

// Heads are judged on the I/O thread; bodies are parsed, rendered and tokenised on a thread of
// their own; the model runs on a third.
class ApiService : public HttpHandler {
 public:
  // `model` and `log` must outlive it; only this may use the model meanwhile.
  ApiService(LoadedModel& model, ServedModel served, AccessPolicy policy, size_t queue_limit,
             RequestLog& log);
  ~ApiService() override;

  std::optional<ApiError> CheckHead(const HttpRequest& head,
                                    std::vector<HttpHeader>* headers) override;
  void Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override;
  void OnAnswer(std::string_view path, int status) override;

  // Refuses further requests, fails those that wait, cancels the one that runs, and waits for it.
  // Every open stream has been told when this returns.
  void Shutdown();

  // For /metrics; set before the first request.
  std::function<size_t()> count_connections;

 private:
  enum class Endpoint { kChat, kCompletion };
  struct Route {
    std::string_view method;
    std::string_view path;  // one that ends in '/' takes everything below it
    void (ApiService::*handle)(HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
    bool needs_key = true;
  };
  static const std::vector<Route>& Routes();
  // The route of a path, with or without /v1; null if there is none.
  static const Route* Find(std::string_view path);

  void HandleHealth(HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void HandleModels(HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void HandleModel(HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void HandleMetrics(HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void HandleChat(HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void HandleCompletion(HttpRequest& request, const std::shared_ptr<Exchange>& exchange);

  void Accept(Endpoint endpoint, HttpRequest request, const std::shared_ptr<Exchange>& exchange);
  // On the preparation thread.
  void Prepare(Endpoint endpoint, HttpRequest& request, const std::shared_ptr<Job>& job);
  void NoteIgnored(Job& job, const std::vector<std::string>& names);
  void Refuse(const std::shared_ptr<Job>& job, const ApiError& error);
  void Cancel(Job& job);

  OrderedJson ModelJson() const;

  LoadedModel& model_;
  const ServedModel served_;
  const AccessPolicy policy_;
  RequestLog& log_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  Metrics metrics_;
  TurnHistory history_;
  JobQueue queue_;
  TaskThread preparation_;
  std::unique_ptr<GenerationWorker> worker_;
};

}  // namespace mference::server
