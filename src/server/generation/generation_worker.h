// The thread that owns the model: one generation after the other.
#pragma once

#include <memory>
#include <thread>

#include "engine/loaded_model.h"
#include "server/generation/job_queue.h"
#include "server/metrics.h"
#include "server/request_log.h"

namespace mference::server {

class GenerationWorker {
 public:
  // Everything must outlive it. Nothing else may use `model` (but for its text) while it exists.
  GenerationWorker(LoadedModel& model, TurnHistory& history, JobQueue& queue, Metrics& metrics,
                   RequestLog& log);
  // The queue must have been closed.
  ~GenerationWorker();
  GenerationWorker(const GenerationWorker&) = delete;
  GenerationWorker& operator=(const GenerationWorker&) = delete;

 private:
  void Loop();
  void Run(Job& job);

  LoadedModel& model_;
  TurnHistory& history_;
  JobQueue& queue_;
  Metrics& metrics_;
  RequestLog& log_;
  std::thread thread_;
};

}  // namespace mference::server
