// Records the routing of a loaded model while it runs, for the cache laboratory.
#pragma once

#include <filesystem>

#include "backend/backend.h"
#include "engine/loaded_model.h"
#include "experts/routing_trace.h"

namespace mference {

// Attached to the model's backend from construction to destruction; keeps the trace in memory (some
// 500 bytes per token of Gemma 4). Not thread-safe.
class TraceRecorder : public BackendProbe {
 public:
  // `path` is where the trace will go; throws what OutputDestination throws, before anything is
  // run.
  TraceRecorder(const std::filesystem::path& path, LoadedModel& loaded);
  ~TraceRecorder() override;
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  // Writes all steps so far. Throws kIo or kDiskFull.
  void Write();

  void OnTensor(const char* /*name*/, int32_t /*layer*/, std::span<const float> /*values*/,
                int32_t /*cols*/) override {}
  void OnRouting(int32_t store_layer, int32_t top_k, std::span<const int32_t> experts,
                 std::span<const float> weights) override;

 private:
  std::filesystem::path destination_;
  LoadedModel& loaded_;
  TraceBuilder builder_;
};

}  // namespace mference
