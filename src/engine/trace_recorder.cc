#include "engine/trace_recorder.h"

namespace mference {

TraceRecorder::TraceRecorder(LoadedModel& loaded)
    : loaded_(loaded),
      builder_(loaded.experts().files().layers, loaded.experts().files().experts_per_layer,
               loaded.experts().files().blob_bytes) {
  loaded_.backend().SetProbe(this);
}

TraceRecorder::~TraceRecorder() { loaded_.backend().SetProbe(nullptr); }

void TraceRecorder::OnRouting(int32_t store_layer, int32_t top_k, std::span<const int32_t> experts,
                              std::span<const float> weights) {
  builder_.Add(store_layer, top_k, experts, weights);
}

void TraceRecorder::Write(const std::filesystem::path& path) {
  WriteTrace(path, builder_.Finish());
}

}  // namespace mference
