#include "engine/trace_recorder.h"

#include "base/file.h"

namespace mference {

TraceRecorder::TraceRecorder(const std::filesystem::path& path, LoadedModel& loaded)
    : destination_(OutputDestination(path)),
      loaded_(loaded),
      builder_(loaded.experts().files().layers, loaded.experts().files().experts_per_layer,
               loaded.experts().files().blob_bytes) {
  loaded_.backend().SetProbe(this);
}

TraceRecorder::~TraceRecorder() { loaded_.backend().SetProbe(nullptr); }

void TraceRecorder::OnRouting(int32_t store_layer, int32_t top_k, std::span<const int32_t> experts,
                              std::span<const float> weights) {
  builder_.Add(store_layer, top_k, experts, weights);
}

void TraceRecorder::Write() { WriteTrace(destination_, builder_.Finish()); }

}  // namespace mference
